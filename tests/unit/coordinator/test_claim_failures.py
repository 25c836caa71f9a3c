"""When a node whose claims fail says that another one should be nominated, and for how long."""

from __future__ import annotations

from diskless_core.coordinator.claim_failures import FIRST_REST_S, LONGEST_REST_S, PATIENCE_S, ClaimFailures


def fail_for(claims: ClaimFailures, seconds: float, now: float) -> float:
    """Claims that fail one after the other, one a second; when the last one failed."""
    until = now + seconds
    while now < until:
        claims.began(now)
        now += 1
        claims.failed(now)
    return now


def test_claims_that_fail_for_a_moment_tell_nothing_and_one_that_succeeds_ends_it() -> None:
    claims = ClaimFailures()
    now = fail_for(claims, PATIENCE_S - 1, 0.0)
    assert not claims.last(now)
    claims.began(now)
    claims.succeeded()
    now = fail_for(claims, PATIENCE_S - 1, now)
    assert not claims.last(now)


def test_one_claim_that_fails_after_a_long_time_tells_it() -> None:
    claims = ClaimFailures()
    claims.began(0.0)
    claims.failed(PATIENCE_S)
    assert claims.last(PATIENCE_S)


def test_another_node_is_preferred_for_twice_as_long_each_time_that_claims_fail_anew() -> None:
    claims, now, rests = ClaimFailures(), 0.0, []
    for _ in range(8):
        failed_at = fail_for(claims, 2 * PATIENCE_S, now)
        claims.interrupted()
        now = failed_at
        while claims.last(now):
            now += 1
        rests.append(now - failed_at)
    assert rests == [min(LONGEST_REST_S, FIRST_REST_S * 2**times) for times in range(8)]


def test_a_claim_that_succeeds_forgets_what_was_before() -> None:
    claims = ClaimFailures()
    now = fail_for(claims, 2 * PATIENCE_S, 0.0)
    claims.interrupted()
    assert claims.last(now)
    claims.began(now)
    claims.succeeded()
    assert not claims.last(now)
    now = fail_for(claims, 2 * PATIENCE_S, now)
    assert claims.last(now + FIRST_REST_S - 1)
    assert not claims.last(now + FIRST_REST_S)

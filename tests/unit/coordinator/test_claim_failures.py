"""When a node whose claims fail says that another one should be nominated, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from diskless_core.coordinator.claim_failures import PATIENCE_S, REST, ClaimFailures, Rests
from tests.support.virtual_time import VirtualClock, run

FIRST_REST_S = REST.first_ms / 1000
LONGEST_REST_S = REST.max_ms / 1000


def with_claims(told: Callable[[ClaimFailures], Awaitable[None]]) -> None:
    async def main() -> None:
        await told(ClaimFailures(VirtualClock(asyncio.get_running_loop()), Rests()))

    run(main)


async def fail_for(claims: ClaimFailures, seconds: float) -> None:
    """Claims that fail one after the other, one a second."""
    for _ in range(int(seconds)):
        claims.began()
        await asyncio.sleep(1)
        claims.failed()


def test_claims_that_fail_for_a_moment_tell_nothing_and_one_that_succeeds_ends_it() -> None:
    async def told(claims: ClaimFailures) -> None:
        await fail_for(claims, PATIENCE_S - 1)
        assert not claims.last
        claims.began()
        claims.succeeded()
        await fail_for(claims, PATIENCE_S - 1)
        assert not claims.last

    with_claims(told)


def test_one_claim_that_fails_after_a_long_time_tells_it() -> None:
    async def told(claims: ClaimFailures) -> None:
        claims.began()
        await asyncio.sleep(PATIENCE_S)
        claims.failed()
        assert claims.last

    with_claims(told)


def test_another_node_is_preferred_for_twice_as_long_each_time_that_claims_fail_anew() -> None:
    async def told(claims: ClaimFailures) -> None:
        rests = []
        for _ in range(8):
            await fail_for(claims, 2 * PATIENCE_S)
            claims.interrupted()
            rests.append(0)
            while claims.last:
                await asyncio.sleep(1)
                rests[-1] += 1
        assert rests == [min(LONGEST_REST_S, FIRST_REST_S * 2**times) for times in range(8)]

    with_claims(told)


def test_a_claim_that_succeeds_forgets_what_was_before() -> None:
    async def told(claims: ClaimFailures) -> None:
        await fail_for(claims, 2 * PATIENCE_S)
        claims.interrupted()
        assert claims.last
        claims.began()
        claims.succeeded()
        assert not claims.last
        await fail_for(claims, 2 * PATIENCE_S)
        await asyncio.sleep(FIRST_REST_S - 1)
        assert claims.last
        await asyncio.sleep(1)
        assert not claims.last

    with_claims(told)


def test_all_shards_of_a_node_rest_longer_for_what_one_of_them_failed_at_and_what_fails_together_counts_once() -> None:
    async def main() -> None:
        rests = Rests()
        shards = [ClaimFailures(VirtualClock(asyncio.get_running_loop()), rests) for _ in range(3)]
        for times, failing in enumerate((shards[:2], shards[2:], shards[:1])):
            await asyncio.gather(*(fail_for(claims, 2 * PATIENCE_S) for claims in failing))
            for claims in failing:
                claims.interrupted()
            await asyncio.sleep(FIRST_REST_S * 2**times - 1)
            assert all(claims.last for claims in failing)
            await asyncio.sleep(1)
            assert not any(claims.last for claims in shards)

    run(main)


def test_after_a_pause_claims_may_fail_for_as_long_again_before_it_is_told_anew() -> None:
    async def told(claims: ClaimFailures) -> None:
        await fail_for(claims, 2 * PATIENCE_S)
        assert claims.go_on
        claims.interrupted()
        await fail_for(claims, PATIENCE_S - 1)
        assert not claims.go_on
        assert claims.last, "another node is preferred still"
        await fail_for(claims, 2)
        assert claims.go_on

    with_claims(told)


def test_a_claim_of_another_shard_that_succeeds_in_between_makes_no_rest_shorter_than_the_first() -> None:
    async def main() -> None:
        rests, clock = Rests(), VirtualClock(asyncio.get_running_loop())
        failing, well = ClaimFailures(clock, rests), ClaimFailures(clock, rests)
        await fail_for(failing, 2 * PATIENCE_S)
        well.began()
        well.succeeded()
        await fail_for(failing, 1)
        await asyncio.sleep(FIRST_REST_S - 1)
        assert failing.last
        await asyncio.sleep(1)
        assert not failing.last

    run(main)

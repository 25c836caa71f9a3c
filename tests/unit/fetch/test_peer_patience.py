"""How long another broker's cache is waited for, and when it is not asked."""

from __future__ import annotations

from diskless_core.fetch.peer_patience import (
    FEW_SAMPLES,
    FIRST_WAIT_S,
    LATE_IN_A_ROW,
    LONGEST_PAUSE_S,
    LONGEST_WAIT_S,
    PAUSE_AFTER_WRONG_BYTES_S,
    SAMPLES,
    SHORTEST_PAUSE_S,
    SHORTEST_WAIT_S,
    PeerPatience,
)


def told(*seconds: float) -> PeerPatience:
    patience = PeerPatience()
    for taken in seconds:
        patience.answered(taken, in_time=True)
    return patience


def test_a_broker_that_nothing_is_known_of_gets_the_first_wait() -> None:
    assert PeerPatience().wait_s == told(*[0.2] * (FEW_SAMPLES - 1)).wait_s == FIRST_WAIT_S


def test_the_wait_is_the_p99_of_the_latest_answers() -> None:
    assert told(*[0.02] * 98, 0.09, 0.3).wait_s == 0.09
    assert told(*[0.02] * 99, 0.3).wait_s == 0.02
    assert told(*[0.3] * SAMPLES, *[0.02] * SAMPLES).wait_s == 0.02


def test_the_wait_has_bounds() -> None:
    assert told(*[0.0001] * 50).wait_s == SHORTEST_WAIT_S
    assert told(*[4.0] * 50).wait_s == LONGEST_WAIT_S


def test_answers_that_came_too_late_count_for_the_wait() -> None:
    patience = told(*[0.02] * SAMPLES)
    for _ in range(2):
        patience.late(0.0)
        patience.answered(0.2, in_time=False)
    assert patience.wait_s == 0.2


def test_a_broker_that_is_late_again_and_again_is_not_asked_for_a_while_each_time_longer() -> None:
    patience, now, pauses = PeerPatience(), 100.0, list[float]()
    for turn in range(10):
        assert patience.is_on_trial == (turn > 0)
        for _ in range(1 if patience.is_on_trial else LATE_IN_A_ROW):
            assert patience.may_ask(now)
            patience.late(now)
        began = now
        while not patience.may_ask(now):
            now += SHORTEST_PAUSE_S / 2
        pauses.append(now - began)
    assert pauses[:3] == [SHORTEST_PAUSE_S, 2 * SHORTEST_PAUSE_S, 4 * SHORTEST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_one_answer_in_time_ends_the_trial() -> None:
    patience = PeerPatience()
    patience.failed(0.0)
    patience.answered(2.0, in_time=False)
    assert patience.is_on_trial
    patience.answered(0.01, in_time=True)
    assert not patience.is_on_trial


def test_one_answer_in_time_and_the_late_ones_are_forgotten() -> None:
    patience = PeerPatience()
    for _ in range(3 * LATE_IN_A_ROW):
        patience.late(0.0)
        patience.answered(0.01, in_time=True)
    assert patience.may_ask(0.0)


def test_requests_that_fail_together_count_as_one_failure() -> None:
    patience = PeerPatience()
    for _ in range(20):
        patience.failed(5.0)
    assert not patience.may_ask(5.0 + SHORTEST_PAUSE_S - 0.01)
    assert patience.may_ask(5.0 + SHORTEST_PAUSE_S)


def test_a_broker_that_sent_wrong_bytes_is_not_asked_for_a_minute() -> None:
    patience = PeerPatience()
    patience.sent_wrong_bytes(5.0)
    patience.failed(6.0)
    assert not patience.may_ask(5.0 + PAUSE_AFTER_WRONG_BYTES_S - 0.01)
    assert patience.may_ask(5.0 + PAUSE_AFTER_WRONG_BYTES_S)

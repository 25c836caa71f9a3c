"""How much time has certainly passed since a time that was written down."""

from __future__ import annotations

import pytest

from diskless_core.passed_time import Doubt, Passed

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_700_000_000_000


def test_without_doubts_it_is_what_the_wall_clock_says() -> None:
    passed = Passed(now_ms=NOW_MS)
    assert passed.since(NOW_MS - 5) == 5
    assert passed.since(NOW_MS + 5) == -5, "a time in the future has not passed"
    assert passed.before(5) == NOW_MS - 5


def test_while_the_clock_of_a_live_broker_is_off_nothing_is_as_old_as_any_limit() -> None:
    passed = Passed(now_ms=NOW_MS, is_held=True)
    assert passed.since(NOW_MS - DAY_MS) < 0
    assert passed.since(NOW_MS + DAY_MS) == -DAY_MS
    assert passed.before(0) == 0


def test_what_was_written_before_a_jump_is_younger_by_the_jump_and_what_was_written_since_is_not() -> None:
    passed = Passed(now_ms=NOW_MS, now_s=60.0, doubts=[Doubt(until_ms=NOW_MS - 60_000, by_ms=DAY_MS, since_s=0.0)])
    assert passed.since(NOW_MS - 60_000 - DAY_MS - HOUR_MS) == HOUR_MS + 60_000
    assert passed.since(NOW_MS - 59_000) == 59_000


def test_what_is_in_doubt_is_at_least_as_old_as_the_process_has_known_it() -> None:
    """So a clock that was a year off for a moment does not keep everything for a year."""
    doubt = Doubt(until_ms=NOW_MS - HOUR_MS, by_ms=365 * DAY_MS, since_s=100.0)
    passed = Passed(now_ms=NOW_MS, now_s=100.0 + 3_600, doubts=[doubt])
    assert passed.since(NOW_MS - 2 * HOUR_MS) == HOUR_MS


def test_a_doubt_never_makes_anything_older_than_the_wall_clock_says() -> None:
    doubt = Doubt(until_ms=NOW_MS, by_ms=20_000, since_s=0.0)
    assert Passed(now_ms=NOW_MS, now_s=10_000.0, doubts=[doubt]).since(NOW_MS - 1_000) == 1_000


def test_doubts_add_up() -> None:
    doubts = [
        Doubt(until_ms=NOW_MS - DAY_MS, by_ms=HOUR_MS, since_s=0.0),
        Doubt(until_ms=NOW_MS, by_ms=2 * HOUR_MS, since_s=1.0),
    ]
    passed = Passed(now_ms=NOW_MS, now_s=1.0, doubts=doubts)
    assert passed.since(NOW_MS - 2 * DAY_MS) == 2 * DAY_MS - 3 * HOUR_MS
    assert passed.since(NOW_MS - DAY_MS + 1) == DAY_MS - 1 - 2 * HOUR_MS


@pytest.mark.parametrize("now_s", [1.0, 1_800.0, 3_600.0, 100_000.0])
@pytest.mark.parametrize("age_ms", [0, 30_000, HOUR_MS, DAY_MS])
def test_everything_up_to_a_time_before_which_all_is_old_is_old(now_s: float, age_ms: int) -> None:
    doubts = [
        Doubt(until_ms=NOW_MS - 2 * DAY_MS, by_ms=DAY_MS, since_s=0.5),
        Doubt(until_ms=NOW_MS - HOUR_MS, by_ms=HOUR_MS, since_s=1.0),
    ]
    passed = Passed(now_ms=NOW_MS, now_s=now_s, doubts=doubts)
    limit_ms = passed.before(age_ms)
    edges = [limit_ms, *(doubt.until_ms + step for doubt in doubts for step in (0, 1)), NOW_MS - 3 * DAY_MS]
    assert all(passed.since(stamp_ms) >= age_ms for stamp_ms in edges if stamp_ms <= limit_ms)

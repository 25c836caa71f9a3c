"""What casts doubt on a broker's wall clock: jumps, a gap before its start, and the clocks of other brokers."""

from __future__ import annotations

from diskless_core.clock import SystemClock
from diskless_core.clock_watch import MAX_DOUBTS, SETTLED_MS, TOLERANCE_MS, ClockWatch

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_700_000_000_000


class Hands(SystemClock):
    """A clock that the test moves: time passes on both, and the wall clock can be set."""

    def __init__(self) -> None:
        super().__init__(seed=1)
        self.elapsed_ms = 0
        self.wall_ms = START_MS

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return 1_000 + self.elapsed_ms / 1000

    def sleep(self, ms: int) -> None:
        self.elapsed_ms += ms
        self.wall_ms += ms


class Watched:
    def __init__(self) -> None:
        self.clock = Hands()
        self.watch = ClockWatch(self.clock)

    def since(self, stamp_ms: int) -> int:
        return self.watch.passed().since(stamp_ms)


# --- jumps ------------------------------------------------------------------------------------------------------------


def test_a_clock_that_jumps_a_day_ahead_makes_nothing_older() -> None:
    one = Watched()
    one.clock.sleep(HOUR_MS)
    one.clock.wall_ms += DAY_MS
    assert one.since(START_MS) == HOUR_MS
    one.clock.sleep(HOUR_MS)
    assert one.since(START_MS) == 2 * HOUR_MS


def test_what_is_written_after_a_jump_ages_from_then_on() -> None:
    one = Watched()
    one.clock.wall_ms += DAY_MS
    one.watch.passed()
    one.clock.sleep(1)
    written_ms = one.clock.now_ms()
    one.clock.sleep(HOUR_MS)
    assert one.since(written_ms) == HOUR_MS


def test_a_clock_that_was_a_day_behind_and_is_set_right_makes_what_it_wrote_no_older() -> None:
    one = Watched()
    one.clock.wall_ms -= DAY_MS
    one.watch.passed()
    written_ms = one.clock.now_ms()
    one.clock.sleep(HOUR_MS)
    one.clock.wall_ms += DAY_MS
    assert one.since(written_ms) == HOUR_MS


def test_a_clock_that_was_ahead_and_is_set_right_keeps_what_it_wrote_for_longer_and_all_else_as_long_as_ever() -> None:
    one = Watched()
    one.clock.wall_ms += DAY_MS
    one.watch.passed()
    written_ms = one.clock.now_ms()
    one.clock.wall_ms -= DAY_MS
    assert one.since(written_ms) == -DAY_MS
    assert one.since(START_MS - HOUR_MS) <= HOUR_MS


def test_steps_within_the_tolerance_are_nothing_and_many_of_them_are_a_jump() -> None:
    one = Watched()
    one.clock.wall_ms += TOLERANCE_MS // 2
    assert one.since(START_MS) == TOLERANCE_MS // 2
    one.clock.wall_ms += TOLERANCE_MS // 2 + 1
    assert one.since(START_MS) == 0


def test_however_often_a_clock_jumps_its_doubts_are_bounded_and_make_nothing_older() -> None:
    one = Watched()
    for _ in range(5 * MAX_DOUBTS):
        one.clock.sleep(1_000)
        one.clock.wall_ms += HOUR_MS
        one.watch.passed()
    assert len(one.watch.passed().doubts) == MAX_DOUBTS
    assert one.since(START_MS - 1) <= 5 * MAX_DOUBTS * 1_000 + 1


# --- the gap before the start -----------------------------------------------------------------------------------------


def test_a_broker_that_starts_a_day_after_the_newest_entry_counts_only_what_the_log_and_its_own_life_vouch_for() -> (
    None
):
    one = Watched()
    one.watch.saw(START_MS - DAY_MS)
    written_ms = START_MS - DAY_MS - HOUR_MS
    assert one.since(written_ms) == HOUR_MS, "the log vouches for it"
    one.clock.sleep(2 * HOUR_MS)
    assert one.since(written_ms) == 3 * HOUR_MS
    one.clock.sleep(DAY_MS)
    assert one.since(written_ms) == DAY_MS + 3 * HOUR_MS


def test_times_of_clients_that_are_a_little_ahead_of_the_newest_entry_are_in_doubt_too() -> None:
    one = Watched()
    one.watch.saw(START_MS - DAY_MS)
    assert one.since(START_MS - DAY_MS + 60_000) <= 0


def test_the_newest_entry_of_all_logs_counts_and_a_short_gap_is_none() -> None:
    one = Watched()
    for ago_ms in (DAY_MS, HOUR_MS, 2 * HOUR_MS):
        one.watch.saw(START_MS - ago_ms)
    assert one.since(START_MS - 3 * HOUR_MS) == 2 * HOUR_MS
    one.watch.saw(START_MS - TOLERANCE_MS)
    assert one.since(START_MS - 3 * HOUR_MS) == 3 * HOUR_MS


def test_what_the_broker_writes_itself_does_not_vouch_for_the_time_before_its_start() -> None:
    one = Watched()
    one.watch.saw(START_MS - DAY_MS)
    one.watch.saw(one.clock.now_ms())
    one.clock.sleep(1_000)
    one.watch.saw(one.clock.now_ms())
    assert one.since(START_MS - DAY_MS) == 1_000


def test_a_follower_whose_clock_is_ahead_learns_from_the_leaders_entries_by_how_much() -> None:
    one = Watched()
    for _ in range(3):
        one.clock.sleep(HOUR_MS)
        one.watch.saw(one.clock.now_ms() - DAY_MS)
    last_ms = one.clock.now_ms() - DAY_MS
    assert one.since(last_ms - HOUR_MS) == HOUR_MS
    one.clock.sleep(60_000)
    assert one.since(last_ms) == 60_000


def test_another_broker_whose_clock_agrees_vouches_for_the_time_in_which_nothing_happened() -> None:
    one = Watched()
    one.watch.saw(START_MS - DAY_MS)
    one.watch.compared({2: 100})
    assert one.since(START_MS - DAY_MS) == DAY_MS


def test_a_broker_that_is_alone_vouches_for_nothing() -> None:
    one = Watched()
    one.watch.saw(START_MS - DAY_MS)
    one.watch.compared({})
    assert one.since(START_MS - DAY_MS) == 0


# --- times that step back ---------------------------------------------------------------------------------------------


def test_a_follower_learns_from_the_first_entry_of_a_leader_whose_clock_was_set_back() -> None:
    one = Watched()
    newest_ms = one.watch.follow(one.clock.now_ms(), 0)
    for _ in range(3):
        one.clock.sleep(HOUR_MS)
        newest_ms = one.watch.follow(one.clock.now_ms() - DAY_MS, newest_ms)
    one.clock.sleep(60_000)
    assert one.since(one.clock.now_ms() - DAY_MS - 60_000) == 60_000
    newest_ms = one.watch.follow(one.clock.now_ms(), newest_ms)
    one.clock.sleep(HOUR_MS)
    assert one.since(newest_ms - DAY_MS) == HOUR_MS + 60_000


def test_a_leader_that_was_ahead_casts_no_doubt_on_the_next_one() -> None:
    one = Watched()
    newest_ms = one.watch.follow(one.clock.now_ms() + DAY_MS, 0)
    one.clock.sleep(60_000)
    assert one.watch.follow(one.clock.now_ms(), newest_ms) == one.clock.now_ms()
    assert one.since(START_MS) == 60_000


def test_entries_of_leaders_whose_clocks_differ_by_seconds_cast_no_doubt() -> None:
    one = Watched()
    newest_ms = one.watch.follow(one.clock.now_ms() + 2_000, 0)
    assert one.watch.follow(one.clock.now_ms() - 2_000, newest_ms) == newest_ms
    assert one.since(START_MS - HOUR_MS) == HOUR_MS


def test_a_log_that_is_read_again_says_that_a_clock_was_behind() -> None:
    one = Watched()
    newest_ms = 0
    for ago_ms in (3 * DAY_MS, 4 * DAY_MS, 2_000):
        newest_ms = one.watch.follow(START_MS - ago_ms, newest_ms)
    assert one.since(START_MS - 4 * DAY_MS) == 0
    one.clock.sleep(HOUR_MS)
    assert one.since(START_MS - 4 * DAY_MS) == HOUR_MS


# --- the clocks of others ---------------------------------------------------------------------------------------------


def test_two_seconds_are_no_disagreement() -> None:
    one = Watched()
    one.watch.compared({2: 2_000, 3: -2_000})
    assert not one.watch.is_held
    assert one.since(START_MS - HOUR_MS) == HOUR_MS
    assert one.watch.difference_ms == 2_000


def test_nothing_ages_while_the_clock_of_a_live_broker_is_off_in_either_direction() -> None:
    for off_ms in (DAY_MS, -DAY_MS):
        one = Watched()
        one.watch.compared({2: 5, 3: off_ms})
        assert one.watch.is_held
        assert one.since(START_MS - 2 * DAY_MS) < 0
        assert one.watch.difference_ms == DAY_MS


def test_what_a_clock_that_was_behind_may_have_written_stays_as_young_as_it_may_be_when_clocks_agree_again() -> None:
    one = Watched()
    one.watch.compared({2: -DAY_MS})
    written_ms = one.clock.now_ms() - DAY_MS  # by the other one, just now
    one.clock.sleep(HOUR_MS)
    one.watch.compared({})  # it is gone
    assert not one.watch.is_held
    assert one.since(written_ms) == HOUR_MS
    one.clock.sleep(DAY_MS)
    assert one.since(written_ms) == DAY_MS + HOUR_MS


def test_what_is_written_after_clocks_agree_again_ages_as_ever() -> None:
    one = Watched()
    one.watch.compared({2: -DAY_MS})
    one.watch.compared({2: 0})
    one.clock.sleep(1)
    written_ms = one.clock.now_ms()
    one.clock.sleep(HOUR_MS)
    assert one.since(written_ms) == HOUR_MS


def test_clocks_that_differ_by_about_the_tolerance_do_not_agree_and_disagree_in_turns() -> None:
    one = Watched()
    one.watch.compared({2: TOLERANCE_MS + 1})
    one.watch.compared({2: TOLERANCE_MS - 1})
    assert one.watch.is_held
    one.watch.compared({2: SETTLED_MS})
    assert not one.watch.is_held
    one.watch.compared({2: TOLERANCE_MS})
    assert not one.watch.is_held

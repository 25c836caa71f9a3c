"""What is due when, of objects without live batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diskless_core.diskless.commands import HandOver
from diskless_core.diskless.file_stages import EndingFile, Stage, stage_of
from diskless_core.diskless.tables import DELETED, DeadFile, GoneFile, ReceivedFile
from diskless_core.files.deletion_plan import ANSWERS_KEPT_MS, Moment, can_be_forgotten, horizon_over, plan
from diskless_core.passed_time import Passed

COMMITTED, DIED, DELAY = 1_000_000, 2_000_000, 60_000
KEY = f"wal/ab/{COMMITTED:013d}-x"
MOMENT = Moment(shard_index=1, passed=Passed(now_ms=DIED), delete_delay_ms=DELAY, led_for_ms=DIED, horizon_ms=0)
RECEIVED = ReceivedFile(DIED - 1, was_unknown=False)
TOMBSTONE = ReceivedFile(DIED - 1, was_unknown=True)


def at(now_ms: int, *, led_since_ms: int = 0, moment: Moment = MOMENT) -> Moment:
    return replace(moment, passed=Passed(now_ms=now_ms), led_for_ms=now_ms - led_since_ms)


def dead(*owner_ids: int, received: ReceivedFile | None = None, gone: GoneFile | None = None) -> EndingFile:
    return EndingFile(KEY, DeadFile(DIED, COMMITTED, owner_ids), received, gone)


@pytest.mark.parametrize(
    ("file", "stage"),
    [
        (dead(1), Stage.TO_DELETE),
        (dead(1, 0), Stage.TO_HAND_OVER),
        (dead(0, 1), Stage.WAITING),
        (dead(0, 1, received=RECEIVED), Stage.TO_DELETE),
        (dead(0, 1, 2, received=RECEIVED), Stage.TO_HAND_OVER),
        (dead(0, 1, 2, received=TOMBSTONE), Stage.TO_HAND_OVER),
        (dead(1, 0, gone=GoneFile(0)), Stage.GONE),
        (dead(0, 1, received=RECEIVED, gone=GoneFile(DELETED)), Stage.GONE),
    ],
)
def test_the_rows_tell_the_stage(file: EndingFile, stage: Stage) -> None:
    assert stage_of(1, file) is stage
    assert plan([file], MOMENT).stages == {stage: 1}


def test_a_dead_object_is_handed_to_the_next_owner_at_once_with_the_latest_death() -> None:
    later = ReceivedFile(DIED + 7, was_unknown=False)
    made = plan([dead(0, 1, 2, 3, received=later)], MOMENT)
    assert made.hand_over == [(2, HandOver(KEY, (0, 1, 2, 3), COMMITTED, DIED + 7))]
    assert made.due_in_ms is None


def test_a_young_object_is_not_handed_over_before_its_other_commits_had_their_time() -> None:
    early = at(COMMITTED + DELAY - 1)
    assert (plan([dead(1, 0)], early).hand_over, plan([dead(1, 0)], early).due_in_ms) == ([], 1)
    assert plan([dead(1, 0)], at(COMMITTED + DELAY)).hand_over


def test_the_last_owner_deletes_after_the_grace_period_since_the_latest_death() -> None:
    later = DIED + 500
    file = dead(0, 1, received=ReceivedFile(later, was_unknown=False))
    early = plan([file], at(later + DELAY - 1))
    assert (early.delete, early.due_in_ms) == ([], 1)
    assert plan([file], at(later + DELAY)).delete == [file]


@pytest.mark.parametrize(("committed", "elected"), [(COMMITTED, 0), (COMMITTED, 3_000_000)])
def test_the_answer_is_kept_for_a_while_after_commit_and_election(committed: int, elected: int) -> None:
    due = max(committed + 1, elected) + ANSWERS_KEPT_MS
    file = dead(1, 0, gone=GoneFile(0))
    early, then = at(due - 1, led_since_ms=elected), at(due, led_since_ms=elected)
    assert (plan([file], early).forget, plan([file], early).due_in_ms) == ([], 1)
    assert plan([file], then).forget == [KEY]
    assert not can_be_forgotten(file, early)
    assert can_be_forgotten(file, then)


def test_forgetting_never_raises_the_horizon_beyond_ten_minutes_ago_whatever_the_clock_of_the_uploader() -> None:
    """Else objects that other brokers have just made are refused."""
    ahead_ms = COMMITTED + ANSWERS_KEPT_MS - 60_000
    file = dead(1, 0, gone=GoneFile(0))._replace(object_key=f"wal/ab/{ahead_ms:013d}-x")
    due = horizon_over([file.object_key]) + ANSWERS_KEPT_MS
    early = at(due - 1)
    assert (plan([file], early).forget, plan([file], early).due_in_ms) == ([], 1)
    assert plan([file], at(due)).forget == [file.object_key]


def test_a_tombstone_stays_until_the_horizon_has_passed_its_object() -> None:
    file = dead(0, 1, received=TOMBSTONE, gone=GoneFile(DELETED))
    much_later = at(DIED + 1000 * ANSWERS_KEPT_MS)
    assert (plan([file], much_later).forget, plan([file], much_later).due_in_ms) == ([], None)
    assert plan([file], replace(much_later, horizon_ms=COMMITTED)).forget == []
    assert plan([file], replace(much_later, horizon_ms=COMMITTED + 1)).forget == [KEY]


def test_the_first_owner_is_reminded_of_an_object_below_the_horizon_that_it_keeps_back() -> None:
    file = dead(0, 2, 1)
    assert plan([file], replace(MOMENT, horizon_ms=COMMITTED)).remind == []
    reminded = plan([file], replace(MOMENT, horizon_ms=COMMITTED + 1)).remind
    assert reminded == [(0, HandOver(KEY, (0, 2, 1), COMMITTED, DIED))]


def test_the_next_look_is_when_the_first_of_all_is_due() -> None:
    files = [dead(1), dead(1, gone=GoneFile(DELETED)), dead(0, 1)]
    made = plan(files, at(DIED, led_since_ms=DIED))
    assert made.due_in_ms == DELAY
    assert made.stages.total() == 3

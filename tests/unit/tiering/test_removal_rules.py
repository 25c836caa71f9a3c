"""What is done with copies that earlier compactions left."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from diskless_core.passed_time import Passed
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.tiering.removal_rules import GRACE_MS, PartitionBounds, fits, is_given_up, leftovers
from diskless_core.wal.runs import Run

STARTED, FINISHED, DELETING, _ = RemoteLogSegmentState
PARTITION = TopicIdPartition(uuid.UUID(int=7), "t", 0)
BOUNDS = PartitionBounds(taken={uuid.UUID(int=1).bytes}, log_start_offset=10, local_start_offset=20, next_offset=40)


def copy(start: int, end: int, state: RemoteLogSegmentState, copy_id: int = 2) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(PARTITION, uuid.UUID(int=copy_id)),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=0,
        broker_id=1,
        event_timestamp_ms=0,
        segment_size_bytes=1,
        segment_leader_epochs={0: start},
        state=state,
    )


@pytest.mark.parametrize(
    ("segment", "given_up", "outcome"),
    [
        (copy(10, 19, FINISHED, 1), True, "stays"),
        (copy(10, 19, FINISHED), False, "removed"),
        (copy(15, 19, STARTED), True, "removed"),
        (copy(15, 19, STARTED), False, "stays"),
        (copy(20, 29, FINISHED), False, "finished"),
        (copy(20, 39, FINISHED), False, "finished"),
        (copy(20, 40, FINISHED), True, "stays"),
        (copy(20, 29, STARTED), True, "stays"),
        (copy(15, 25, FINISHED), False, "finished"),
        (copy(15, 25, STARTED), True, "stays"),
        (copy(25, 29, FINISHED), True, "stays"),
        (copy(0, 9, FINISHED), True, "stays"),
        (copy(0, 9, STARTED), True, "stays"),
        (copy(0, 9, DELETING), False, "removed"),
        (copy(20, 29, DELETING), False, "removed"),
    ],
)
def test_a_copy_is_taken_or_removed_only_when_nobody_else_can_take_it(segment, given_up, outcome) -> None:
    found = leftovers([segment], BOUNDS, lambda _: given_up)
    assert (found.finish, list(found.remove)) == {
        "stays": (None, []),
        "removed": (None, [segment]),
        "finished": (segment, []),
    }[outcome]


FIRST, LAST = Run(20, 24, "o", 0, 300, 0, 0, 0, 1000), Run(25, 29, "o", 0, 200, 0, 0, 0, 1300)


@pytest.mark.parametrize(
    ("start", "end", "size", "local_start_offset", "is_of_these_runs"),
    [
        (20, 29, 500, 20, True),
        (20, 29, 500, 22, True),  # the log start lies within the first run
        (18, 29, 500, 18, True),  # the segment before ended at 17
        (20, 29, 499, 20, False),
        (20, 28, 500, 20, False),
        (19, 29, 500, 20, False),
        (22, 29, 500, 22, False),
    ],
)
def test_a_copy_has_whole_runs_from_the_first_one_on_and_all_their_bytes(
    start, end, size, local_start_offset, is_of_these_runs
) -> None:
    segment = replace(copy(start, end, FINISHED), segment_size_bytes=size)
    assert fits(segment, local_start_offset, FIRST, LAST) is is_of_these_runs


@pytest.mark.parametrize(
    ("broker_id", "is_living", "age_ms", "given_up"),
    [
        (1, True, 0, False),
        (1, True, 10 * GRACE_MS, False),  # it takes long
        (1, True, -GRACE_MS, False),  # the clock was set back
        (1, False, 0, True),  # of a job that failed, or of an earlier process
        (1, False, 10 * GRACE_MS, True),
        (2, False, 0, False),
        (2, False, GRACE_MS, False),
        (2, False, GRACE_MS + 1, True),
    ],
)
def test_a_copy_of_this_broker_is_given_up_when_no_job_has_it_and_another_brokers_after_a_day(
    broker_id, is_living, age_ms, given_up
) -> None:
    segment = replace(copy(20, 29, STARTED), broker_id=broker_id)
    living = {segment.segment_id} if is_living else set()
    assert is_given_up(segment, node_id=1, living=living, passed=Passed(now_ms=age_ms)) is given_up


def test_an_unfinished_copy_of_another_broker_stays_while_the_clock_of_a_live_broker_is_off() -> None:
    segment = replace(copy(20, 29, STARTED), broker_id=2)
    passed = Passed(now_ms=10 * GRACE_MS, is_held=True)
    assert not is_given_up(segment, node_id=1, living=(), passed=passed)

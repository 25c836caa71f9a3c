"""How records of a partition move from WAL objects to segments; pure: no log, no store, only state."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from diskless_core.coordinator.slices import at_once
from diskless_core.diskless import operations, remote_segments, tiering_operations
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.remote_segments import REMOTE_DELETIONS, REMOTE_SEGMENTS
from diskless_core.diskless.tables import PARTITIONS, TIERED, TRIMS, PartitionHead
from diskless_core.protocol.errors import ErrorCode
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from diskless_core.remote_log.states import RemoteLogStateError
from diskless_core.remote_log.tiered import TieredSegment
from tests.support.shard_desk import Desk
from tests.support.shards import BATCH_BYTES, TOPIC, batch

P0 = PartitionKey(TOPIC, 0)


def segment(start: int, end: int, number: int = 1) -> TieredSegment:
    return TieredSegment(uuid.UUID(int=number).bytes, start, end, (end - start + 1) * BATCH_BYTES, 5)


@pytest.fixture
def desk() -> Desk:
    """Ten batches of one record each."""
    desk = Desk()
    desk.commit(*[batch() for _ in range(10)])
    return desk


def tier(desk: Desk, one: TieredSegment, expected: int) -> bool:
    answer: bool = desk.run(lambda command: tiering_operations.tier(command, P0, one, expected))
    return answer


def head(desk: Desk) -> PartitionHead:
    found = desk.state.get(PARTITIONS, P0)
    assert found is not None
    return found


def test_a_segment_takes_the_place_of_batches(desk: Desk) -> None:
    assert tier(desk, segment(0, 3), 0)
    assert tier(desk, segment(4, 6, 2), 4)
    assert (head(desk).log_start_offset, head(desk).local_start_offset, head(desk).next_offset) == (0, 7, 10)
    assert (head(desk).local_start_bytes, head(desk).size_bytes) == (7 * BATCH_BYTES, 10 * BATCH_BYTES)
    assert desk.state.get(TIERED, P0) == (segment(0, 3), segment(4, 6, 2))
    assert desk.state.get(TRIMS, P0) == 7


def test_of_two_compactions_of_the_same_records_one_wins_and_is_told_so_again(desk: Desk) -> None:
    assert tier(desk, segment(0, 3, 1), 0)
    assert not tier(desk, segment(0, 3, 2), 0)
    assert tier(desk, segment(4, 4, 3), 4)
    assert tier(desk, segment(0, 3, 1), 0)
    assert desk.records == []
    assert not tier(desk, segment(0, 4, 2), 0)


@pytest.mark.parametrize(("start", "end", "expected"), [(0, 10, 0), (1, 3, 0), (0, 3, 1), (3, 3, 4)])
def test_a_segment_that_does_not_fit_is_refused(desk: Desk, start: int, end: int, expected: int) -> None:
    assert not tier(desk, segment(start, end), expected)
    assert desk.records == []


def test_a_segment_of_a_partition_that_is_gone_is_refused(desk: Desk) -> None:
    desk.run(lambda command: at_once(operations.delete_topic(command, TOPIC)))
    assert not tier(desk, segment(0, 3), 0)


def test_what_was_planned_before_a_deletion_is_refused(desk: Desk) -> None:
    desk.run(lambda command: operations.delete_records(command, P0, 2, 2 * BATCH_BYTES))
    assert not tier(desk, segment(0, 3), 0)
    assert tier(desk, segment(0, 3, 2), 2), "a segment may begin with the whole run that has the log start"


def test_the_log_start_takes_segments_with_it_and_keeps_the_one_that_it_lies_in(desk: Desk) -> None:
    tier(desk, segment(0, 3), 0)
    tier(desk, segment(4, 6, 2), 4)
    desk.run(lambda command: operations.delete_records(command, P0, 5, 4 * BATCH_BYTES))
    assert desk.state.get(TIERED, P0) == (segment(4, 6, 2),)
    assert (head(desk).log_start_offset, head(desk).local_start_offset) == (5, 7)
    assert head(desk).size_bytes == 6 * BATCH_BYTES
    assert desk.state.get(TRIMS, P0) == 7, "what is garbage since the swap is still to be trimmed"
    desk.run(lambda command: operations.delete_records(command, P0, 8, 8 * BATCH_BYTES))
    assert desk.state.get(TIERED, P0) == ()
    assert (head(desk).log_start_offset, head(desk).local_start_offset) == (8, 8)
    assert head(desk).size_bytes == 2 * BATCH_BYTES


def adopt(desk: Desk, *segments: TieredSegment, start: int, partition: PartitionKey = P0) -> ErrorCode:
    answer: ErrorCode = desk.run(lambda command: tiering_operations.adopt(command, partition, start, segments))
    return answer


def test_an_empty_partition_adopts_segments_and_goes_on_behind_them() -> None:
    desk = Desk()
    segments = segment(20, 29), segment(30, 34, 2)
    assert adopt(desk, *segments, start=22) is ErrorCode.NONE
    assert head(desk)[:7] == (22, 35, 5, 0, 15 * BATCH_BYTES, 35, 15 * BATCH_BYTES)
    assert adopt(desk, *segments, start=22) is ErrorCode.NONE
    assert desk.records == []
    assert desk.commit(batch())[0].base_offset == 35
    assert head(desk).size_bytes == 16 * BATCH_BYTES


@pytest.mark.parametrize(
    ("segments", "start"),
    [
        ([], 0),
        ([segment(0, 3), segment(5, 6, 2)], 0),
        ([segment(0, 3), segment(3, 6, 2)], 0),
        ([segment(3, 2)], 3),
        ([segment(4, 6)], 3),
        ([segment(4, 6)], 7),
    ],
)
def test_segments_that_make_no_log_are_not_adopted(segments: list[TieredSegment], start: int) -> None:
    assert adopt(Desk(), *segments, start=start) is ErrorCode.INVALID_REQUEST


def test_only_a_partition_that_is_there_and_was_never_written_to_adopts(desk: Desk) -> None:
    assert adopt(desk, segment(0, 3), start=0) is ErrorCode.DUPLICATE_RESOURCE
    elsewhere = PartitionKey(TOPIC, 7)
    assert adopt(desk, segment(0, 3), start=0, partition=elsewhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- what is known of the copies -------------------------------------------------------------------------------------

PARTITION = TopicIdPartition(uuid.UUID(bytes=TOPIC), "t", 0)
COPY = RemoteLogSegmentMetadata(
    segment_id=RemoteLogSegmentId(PARTITION, uuid.UUID(int=1)),
    start_offset=0,
    end_offset=3,
    max_timestamp_ms=5,
    broker_id=1,
    event_timestamp_ms=7,
    segment_size_bytes=400,
    segment_leader_epochs={0: 0},
)
KEY = (TOPIC, 0, uuid.UUID(int=1).bytes)


def update(state: RemoteLogSegmentState) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment_id=COPY.segment_id, event_timestamp_ms=9, state=state, broker_id=2, custom_metadata=b"there"
    )


def test_a_copy_goes_from_state_to_state_until_it_is_deleted(desk: Desk) -> None:
    desk.run(lambda command: remote_segments.append(command, COPY))
    assert desk.state.get(REMOTE_SEGMENTS, KEY) == COPY
    desk.run(lambda command: remote_segments.append(command, COPY))
    assert desk.records == []
    finished = update(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    desk.run(lambda command: remote_segments.append(command, finished))
    assert desk.state.get(REMOTE_SEGMENTS, KEY) == replace(
        COPY, state=finished.state, event_timestamp_ms=9, broker_id=2, custom_metadata=b"there"
    )
    with pytest.raises(RemoteLogStateError):
        desk.run(lambda command: remote_segments.append(command, update(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)))
    deleting = update(RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
    desk.run(lambda command: remote_segments.append(command, deleting))
    known = desk.state.get(REMOTE_SEGMENTS, KEY)
    assert known is not None
    assert known.state is deleting.state
    desk.run(lambda command: remote_segments.append(command, update(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)))
    assert desk.state.get(REMOTE_SEGMENTS, KEY) is None


def test_copies_outlive_their_topic_are_marked_and_deleted(desk: Desk) -> None:
    desk.run(lambda command: remote_segments.append(command, COPY))
    desk.run(lambda command: at_once(operations.delete_topic(command, TOPIC)))
    assert desk.state.get(REMOTE_SEGMENTS, KEY) == COPY
    marked = desk.state.get(REMOTE_DELETIONS, (TOPIC, 0))
    assert marked is not None
    assert marked.topic_id_partition == PARTITION
    for state in (
        RemotePartitionDeleteState.DELETE_PARTITION_STARTED,
        RemotePartitionDeleteState.DELETE_PARTITION_FINISHED,
    ):
        assert desk.state.get(REMOTE_DELETIONS, (TOPIC, 0)) is not None
        desk.run(lambda command, state=state: remote_segments.append(command, replace(marked, state=state)))
    assert desk.state.get(REMOTE_DELETIONS, (TOPIC, 0)) is None


def test_no_copy_begins_where_its_segments_are_deleted(desk: Desk) -> None:
    deletion = RemotePartitionDeleteMetadata(
        topic_id_partition=PARTITION,
        state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
        event_timestamp_ms=1,
        broker_id=1,
    )
    desk.run(lambda command: remote_segments.append(command, deletion))
    with pytest.raises(RemoteLogStateError, match="t-0 is deleted"):
        desk.run(lambda command: remote_segments.append(command, COPY))
    desk.run(lambda command: at_once(operations.delete_topic(command, TOPIC)))
    assert desk.state.get(REMOTE_DELETIONS, (TOPIC, 0)) == deletion


def test_no_copy_of_a_partition_begins_that_is_not_there(desk: Desk) -> None:
    desk.run(lambda command: at_once(operations.delete_topic(command, TOPIC)))
    with pytest.raises(RemoteLogStateError, match="t-0 is deleted"):
        desk.run(lambda command: remote_segments.append(command, COPY))

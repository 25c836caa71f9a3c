"""What an export to Kafka decides."""

from __future__ import annotations

import uuid

import pytest

from diskless_core.log import producer_snapshot
from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.tiering.migration.kafka_export import (
    PARTITION_METADATA,
    ExportError,
    SourcePartition,
    Step,
    TargetPartition,
    check_topic,
    local_log_files,
    local_log_problem,
    next_step,
    states_of,
    superfluous_files,
    topic_config,
    topic_id_of,
    unpublished,
)

OURS = TopicIdPartition(uuid.UUID(int=7), "t", 0)
THEIRS = TopicIdPartition(uuid.UUID(int=8), "t", 0)
STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = RemoteLogSegmentState


def segment(start, end, **fields):
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(OURS, uuid.UUID(int=start + 1)),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=5,
        broker_id=1,
        event_timestamp_ms=6,
        segment_size_bytes=100,
        state=FINISHED,
        **{"segment_leader_epochs": {0: start}, **fields},
    )


SEGMENTS = (segment(0, 9), segment(10, 19))
IDS = [one.segment_id.id for one in SEGMENTS]
TOLD = dict.fromkeys(IDS, FINISHED)


def source(next_offset=20, log_start=0, segments=SEGMENTS):
    return SourcePartition(partition=0, log_start_offset=log_start, next_offset=next_offset, segments=segments)


def target(log_start, local_start, end, states=None, leader_epoch=0):
    return TargetPartition(
        topic_id_partition=THEIRS,
        log_start_offset=log_start,
        local_log_start_offset=local_start,
        log_end_offset=end,
        broker_id=3,
        leader_epoch=leader_epoch,
        states=states or {},
    )


@pytest.mark.parametrize(
    ("there", "step"),
    [
        (target(0, 0, 0), Step.PREPARE),
        (target(0, 20, 20), Step.NOTHING),
        (target(0, 20, 25), Step.NOTHING),
        (target(0, 20, 20, {IDS[0]: FINISHED}), Step.NOTHING),
        (target(0, 20, 20, {IDS[0]: FINISHED, IDS[1]: STARTED}), Step.NOTHING),
        (target(0, 20, 20, TOLD), Step.NOTHING),
        (target(0, 20, 25, TOLD), Step.NOTHING),
        (target(12, 30, 40, TOLD), Step.NOTHING),
        (target(0, 15, 15), Step.PREPARE),
        (target(0, 15, 15, {IDS[0]: FINISHED}), Step.PREPARE),
        (target(3, 20, 20), Step.PREPARE),
        (target(20, 20, 20, TOLD, leader_epoch=2), Step.PREPARE),
        (target(0, 0, 0, TOLD), Step.PREPARE),
    ],
)
def test_each_run_does_what_is_next(there, step):
    assert next_step(source(), there) is step


@pytest.mark.parametrize("there", [target(0, 0, 5), target(0, 15, 16), target(0, 0, 25), target(0, 25, 25)])
def test_a_topic_with_records_of_its_own_is_refused(there):
    with pytest.raises(ExportError, match="nobody has written to"):
        next_step(source(), there)


@pytest.mark.parametrize("state", [DELETE_STARTED, DELETE_FINISHED])
def test_a_topic_whose_segments_kafka_has_deleted_is_refused(state):
    with pytest.raises(ExportError, match="has deleted segments"):
        next_step(source(), target(0, 20, 20, {**TOLD, IDS[0]: state}))


def test_a_new_topic_whose_leader_has_changed_is_refused():
    with pytest.raises(ExportError, match="2 leader epochs"):
        next_step(source(), target(0, 0, 0, leader_epoch=2))


def test_a_partition_without_records_needs_nothing():
    assert next_step(source(0, segments=()), target(0, 0, 0)) is Step.NOTHING


def test_a_partition_whose_records_are_all_deleted_keeps_its_offsets():
    empty = source(20, 20, ())
    assert next_step(empty, target(0, 0, 0)) is Step.PREPARE
    assert next_step(empty, target(20, 20, 20)) is Step.NOTHING
    assert next_step(empty, target(25, 25, 25)) is Step.NOTHING


def test_kafka_is_told_of_every_segment_under_its_own_topic_id():
    first, then, *others = unpublished(source(), target(0, 20, 20), now_ms=99)
    assert isinstance(first, RemoteLogSegmentMetadata)
    assert first.segment_id == RemoteLogSegmentId(THEIRS, IDS[0])
    assert (first.state, first.broker_id, first.event_timestamp_ms) == (STARTED, 3, 99)
    assert (first.start_offset, first.end_offset, first.segment_size_bytes) == (0, 9, 100)
    assert then == RemoteLogSegmentMetadataUpdate(
        segment_id=first.segment_id, event_timestamp_ms=99, state=FINISHED, broker_id=3
    )
    assert len(others) == 2


def test_after_a_crash_kafka_is_told_of_the_rest():
    events = unpublished(source(), target(0, 20, 20, {IDS[0]: STARTED}), now_ms=99)
    assert [(event.segment_id.id, event.state) for event in events] == [
        (IDS[0], FINISHED),
        (IDS[1], STARTED),
        (IDS[1], FINISHED),
    ]


def test_segments_of_other_leader_epochs_become_those_of_a_new_topic():
    imported = source(segments=(segment(0, 19, segment_leader_epochs={4: 0, 6: 12}),))
    (started, _) = unpublished(imported, target(0, 20, 20), now_ms=99)
    assert started.segment_leader_epochs == {0: 0}


def test_the_last_event_of_a_segment_is_its_state():
    events = [*unpublished(source(), target(0, 20, 20), now_ms=99)]
    assert states_of(events, THEIRS) == TOLD
    assert states_of(events, OURS) == {}


def test_the_topic_in_kafka_keeps_what_it_has_and_expires_nothing():
    assert topic_config({"max.message.bytes": "5", "retention.ms": "10", "cleanup.policy": "delete"}) == {
        "max.message.bytes": "5",
        "remote.storage.enable": "true",
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }


GOOD = {**topic_config({}), "cleanup.policy": "delete", "remote.log.copy.disable": "false"}


def test_a_topic_as_the_command_makes_it_is_taken():
    check_topic("t", 3, 3, GOOD)


@pytest.mark.parametrize(
    ("partitions", "changed", "named"),
    [
        (2, {}, "2 partitions"),
        (3, {"remote.storage.enable": "false"}, "remote.storage.enable=true"),
        (3, {"retention.ms": "604800000"}, "retention.ms=-1"),
        (3, {"retention.bytes": "5"}, "retention.bytes=-1"),
        (3, {"cleanup.policy": "compact"}, "cleanup.policy=delete"),
        (3, {"remote.log.copy.disable": "true"}, "remote.log.copy.disable=false"),
    ],
)
def test_a_topic_that_cannot_take_segments_is_refused(partitions, changed, named):
    with pytest.raises(ExportError, match=named):
        check_topic("t", partitions, 3, {**GOOD, **changed})


def test_the_topic_id_is_read_from_the_folder():
    written = f"version: 0\ntopic_id: {uuid_text(THEIRS.topic_id)}".encode()
    assert topic_id_of(written) == THEIRS.topic_id
    assert topic_id_of(written + b"\n") == THEIRS.topic_id


@pytest.mark.parametrize(
    "damaged",
    [b"", b"version: 0\n", b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAACA", b"version: 0\ntopic_id: x", b"\xff"],
)
def test_a_damaged_partition_metadata_is_refused(damaged):
    with pytest.raises(ExportError, match="not as Kafka writes it"):
        topic_id_of(damaged)


FRESH = {
    "00000000000000000000.log": 0,
    "00000000000000000000.index": 10,
    "00000000000000000000.timeindex": 10,
    "leader-epoch-checkpoint": 8,
    PARTITION_METADATA: 43,
}


def test_an_empty_log_can_be_prepared_and_once_more():
    assert local_log_problem(FRESH, 20) is None
    prepared = dict.fromkeys([PARTITION_METADATA, *local_log_files(20, b"")], 0)
    assert local_log_problem(prepared, 20) is None
    assert local_log_problem({**FRESH, **prepared}, 20) is None


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({**FRESH, "00000000000000000000.log": 1}, "it has records"),
        ({"00000000000000000000.log": 0}, PARTITION_METADATA),
        ({PARTITION_METADATA: 1, "00000000000000000021.log": 0}, "begins at 21"),
    ],
)
def test_another_log_is_refused(files, problem):
    assert problem in str(local_log_problem(files, 20))


def test_the_prepared_log_begins_where_the_segments_end():
    snapshot = producer_snapshot.encode(())
    assert local_log_files(20, snapshot) == {
        "00000000000000000020.log": b"",
        "00000000000000000020.index": b"",
        "00000000000000000020.timeindex": b"",
        "00000000000000000020.snapshot": snapshot,
        "leader-epoch-checkpoint": b"0\n1\n0 0\n",
    }


def test_nothing_of_the_log_before_is_left():
    names = [*FRESH, *local_log_files(20, b""), "00000000000000000000.snapshot"]
    assert sorted(superfluous_files(names, 20)) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.snapshot",
        "00000000000000000000.timeindex",
    ]

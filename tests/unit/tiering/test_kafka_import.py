"""Which segments of a Kafka a partition of Diskless can have."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.tiering.migration.kafka_import import (
    TopicImportError,
    finished_segments,
    importable,
    imported_metadata,
    topic_config,
)

THEIRS = TopicIdPartition(uuid.UUID(int=8), "t", 3)
OURS = TopicIdPartition(uuid.UUID(int=7), "t", 3)
STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = RemoteLogSegmentState


def segment(start, end, epochs=None, **fields):
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(THEIRS, uuid.UUID(int=1000 * start + end + 1)),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=5,
        broker_id=1,
        event_timestamp_ms=6,
        segment_size_bytes=100,
        segment_leader_epochs=epochs or {0: start},
        **{"state": FINISHED, **fields},
    )


def events(one, *states):
    yield replace(one, state=STARTED)
    for state in states:
        yield RemoteLogSegmentMetadataUpdate(segment_id=one.segment_id, event_timestamp_ms=9, state=state, broker_id=1)


def test_what_was_copied_and_not_deleted_is_there():
    kept, going, gone, begun = (segment(start, start + 9) for start in (0, 10, 20, 30))
    noted = [
        *events(kept, FINISHED),
        *events(going, FINISHED, DELETE_STARTED),
        *events(gone, FINISHED, DELETE_STARTED, DELETE_FINISHED),
        *events(begun),
    ]
    assert [one.segment_id for one in finished_segments(THEIRS, noted)] == [kept.segment_id]


def test_notes_without_their_beginning_are_refused():
    _, *rest = events(segment(0, 9), FINISHED)
    with pytest.raises(TopicImportError, match="t-3 is not complete"):
        finished_segments(THEIRS, rest)


def test_the_segments_from_the_log_start_on_are_taken():
    segments = [segment(0, 9), segment(10, 19), segment(20, 29, {2: 20})]
    assert importable(THEIRS, segments, 12, {0: 0, 2: 20}) == segments[1:]


def test_segments_whose_records_the_log_has_lost_are_left_out():
    lost = segment(10, 25, {0: 10, 1: 15})
    segments = [segment(0, 9), lost, segment(10, 19, {0: 10, 2: 15})]
    assert importable(THEIRS, segments, 0, {0: 0, 2: 15}) == [segments[0], segments[2]]


def test_a_gap_is_refused():
    with pytest.raises(TopicImportError, match="t-3 has no segment with offset 10"):
        importable(THEIRS, [segment(0, 9), segment(11, 19)], 0, {0: 0})


def test_segments_that_overlap_are_refused():
    with pytest.raises(TopicImportError, match="overlap at offset 5"):
        importable(THEIRS, [segment(0, 9), segment(5, 19)], 0, {0: 0})


def test_aborted_transactions_are_refused():
    with pytest.raises(TopicImportError, match="offset 10 has records of aborted transactions"):
        importable(THEIRS, [segment(0, 9), segment(10, 19, txn_index_empty=False)], 0, {0: 0})


def test_aborted_transactions_below_the_log_start_do_not_matter():
    segments = [segment(0, 9, txn_index_empty=False), segment(10, 19)]
    assert importable(THEIRS, segments, 10, {0: 0}) == segments[1:]


def test_an_imported_segment_keeps_its_id_and_its_leader_epochs():
    one = segment(0, 9, {0: 0, 4: 5}, custom_metadata=b"theirs")
    imported = imported_metadata(one, OURS)
    assert imported == replace(one, segment_id=RemoteLogSegmentId(OURS, one.segment_id.id), custom_metadata=None)


def test_the_topic_keeps_the_settings_that_mean_the_same():
    configured = {"retention.ms": "5", "remote.storage.enable": "true", "local.retention.ms": "1"}
    assert topic_config(configured) == {"retention.ms": "5"}

"""What a broker and the driver of its compaction say to each other arrives as it was sent."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from diskless_core.admin.driver_models import CopyAnswer, CopyBody, JobAnswer, PlannedAnswer, SegmentAnswer
from diskless_core.plugin.segment_compaction import BatchRange, SegmentPlan
from diskless_core.remote_log import records
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, TopicIdPartition
from diskless_core.testing.remote_log_metadata_tools import segment

PARTITION = TopicIdPartition(uuid.UUID(int=7), "t", 3)
LONG = st.integers(min_value=-1, max_value=2**63 - 1)
KEYS = st.sampled_from(["wal/a", "wal/b", "wal/\N{SNOWMAN}"])
RANGES = st.builds(BatchRange, LONG, LONG, KEYS, LONG, LONG, LONG, LONG, st.integers(0, 1))


@settings(deadline=None)
@given(ranges=st.lists(RANGES, max_size=6))
def test_a_plan_arrives_as_it_was_made(ranges):
    plan = SegmentPlan(
        partition=PARTITION,
        start_offset=5,
        end_offset=9,
        size_bytes=100,
        max_timestamp_ms=6,
        index_interval_bytes=4096,
        ranges=ranges,
    )
    sent = SegmentAnswer(segment=PlannedAnswer.of(plan)).model_dump_json()
    assert SegmentAnswer.model_validate_json(sent).segment.plan(PARTITION) == plan


def test_partitions_keep_their_order():
    partitions = [TopicIdPartition(uuid.UUID(int=i), name, p) for i, name in ((2, "b"), (1, "a")) for p in (3, 0, 1)]
    job = SimpleNamespace(partitions=partitions, parallel_partitions=4, producer_id_expiration_ms=5)
    answer = JobAnswer.model_validate_json(JobAnswer.of(job, 60_000).model_dump_json())
    assert list(answer.partitions()) == partitions
    assert (answer.parallel_partitions, answer.producer_id_expiration_ms, answer.session_timeout_ms) == (4, 5, 60_000)


def test_a_copy_arrives_as_it_was_noted():
    metadata = segment(1, 0, 9)
    assert CopyAnswer.model_validate_json(CopyAnswer.of(metadata).model_dump_json()).metadata() == metadata


def test_a_record_that_is_no_copy_is_refused():
    update = RemoteLogSegmentMetadataUpdate(
        segment_id=segment(1, 0, 9).segment_id,
        event_timestamp_ms=1,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        broker_id=1,
    )
    with pytest.raises(TypeError, match="RemoteLogSegmentMetadataUpdate"):
        CopyAnswer(record=records.encode(update)).metadata()


def test_what_a_driver_must_not_say_is_refused():
    with pytest.raises(ValidationError, match="extra"):
        CopyBody.model_validate({"token": "a", "other": 1})

"""What a broker and the driver of its compaction say to each other arrives as it was sent."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from diskless_core.admin.driver_models import (
    STEPS_IN_REQUEST,
    AbandonStep,
    BeginAnswer,
    BeginStep,
    FinishStep,
    JobAnswer,
    SegmentsAnswer,
    SegmentsStep,
    StepsBody,
)
from diskless_core.log.producer_snapshot import ProducerEntry
from diskless_core.plugin.segment_compaction import SegmentPlan
from diskless_core.remote_log import records
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, TopicIdPartition
from diskless_core.testing.remote_log_metadata_tools import segment
from diskless_core.tiering.external_job import Portion
from diskless_core.wal.runs import Run

PARTITION = TopicIdPartition(uuid.UUID(int=7), "t", 3)
LONG = st.integers(min_value=-1, max_value=2**63 - 1)
KEYS = st.sampled_from(["wal/a", "wal/b", "wal/\N{SNOWMAN}"])
RANGES = st.builds(Run, LONG, LONG, KEYS, LONG, LONG, LONG, LONG, st.integers(0, 1), st.just(0))


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
    portion = Portion(segments=[plan, plan], is_last=True)
    sent = SegmentsAnswer.of(portion).model_dump_json()
    assert SegmentsAnswer.model_validate_json(sent).portion(PARTITION) == portion


@pytest.mark.parametrize("producers", [None, {}, {7: ProducerEntry(*range(7, 7 + len(ProducerEntry._fields)))}])
def test_producers_arrive_with_the_first_portion(producers):
    portion = Portion(segments=[], is_last=False, producers=producers)
    sent = SegmentsAnswer.of(portion).model_dump_json()
    assert SegmentsAnswer.model_validate_json(sent).portion(PARTITION) == portion


def test_steps_arrive_as_they_were_asked_for():
    steps = [
        SegmentsStep(partition=1, number=0),
        BeginStep(partition=1, start_offset=5, token="a"),
        FinishStep(segment_id=uuid.UUID(int=1), custom_metadata=b"\xff\x00"),
        FinishStep(segment_id=uuid.UUID(int=2), custom_metadata=None),
        AbandonStep(segment_id=uuid.UUID(int=3)),
    ]
    assert StepsBody.model_validate(StepsBody(steps=steps).model_dump(mode="json")).steps == steps


def test_more_steps_than_a_request_may_have_are_refused():
    step = SegmentsStep(partition=0, number=0).model_dump()
    StepsBody.model_validate({"steps": [step] * STEPS_IN_REQUEST})
    with pytest.raises(ValidationError, match="at most"):
        StepsBody.model_validate({"steps": [step] * (STEPS_IN_REQUEST + 1)})


def test_partitions_keep_their_order():
    partitions = [TopicIdPartition(uuid.UUID(int=i), name, p) for i, name in ((2, "b"), (1, "a")) for p in (3, 0, 1)]
    job = SimpleNamespace(partitions=partitions, parallel_partitions=4, producer_id_expiration_ms=5)
    answer = JobAnswer.model_validate_json(JobAnswer.of(job, 60_000).model_dump_json())
    assert list(answer.partitions()) == partitions
    assert (answer.parallel_partitions, answer.producer_id_expiration_ms, answer.session_timeout_ms) == (4, 5, 60_000)


def test_a_copy_arrives_as_it_was_noted():
    metadata = segment(1, 0, 9)
    assert BeginAnswer.model_validate_json(BeginAnswer.of(metadata).model_dump_json()).metadata() == metadata


def test_a_record_that_is_no_copy_is_refused():
    update = RemoteLogSegmentMetadataUpdate(
        segment_id=segment(1, 0, 9).segment_id,
        event_timestamp_ms=1,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        broker_id=1,
    )
    with pytest.raises(TypeError, match="RemoteLogSegmentMetadataUpdate"):
        BeginAnswer(record=records.encode(update)).metadata()


def test_what_a_driver_must_not_say_is_refused():
    known = {"step": "begin", "partition": 0, "start_offset": 0, "token": "a"}
    for wrong, message in (({"other": 1}, "[Ee]xtra"), ({"step": "other"}, "other"), ({"token": None}, "string")):
        with pytest.raises(ValidationError, match=message):
            StepsBody.model_validate({"steps": [known | wrong]})

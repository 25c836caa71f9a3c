"""The steps that a driver asks for in one request."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from diskless_core.admin import driver_steps
from diskless_core.admin.driver_models import (
    AbandonStep,
    BeginAnswer,
    BeginStep,
    FinishStep,
    SegmentsAnswer,
    SegmentsStep,
    StepsAnswer,
)
from diskless_core.admin.driver_steps import rendered, take
from diskless_core.plugin.segment_compaction import SegmentCompactionError, SegmentPlan
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.testing.remote_log_metadata_tools import segment
from diskless_core.tiering.external_job import JobNotRunningError, Portion, UnknownStepError
from diskless_core.wal.runs import Run

PARTITION = TopicIdPartition(uuid.UUID(int=7), "t", 3)
RANGE = Run(0, 9, "wal/a", 0, 100, 1, 1, 0)
ERRORS: list[tuple[Exception, int, str]] = [
    (UnknownStepError("what"), 404, "what"),
    (JobNotRunningError("ended"), 409, "ended"),
    (SegmentCompactionError("broken"), 503, "broken"),
    (ValueError("secret"), 500, "see the log of the broker"),
]


def portion(start_offset: int, ranges: int = 1) -> Portion:
    plan = SegmentPlan(
        partition=PARTITION,
        start_offset=start_offset,
        end_offset=start_offset,
        size_bytes=100,
        max_timestamp_ms=1,
        index_interval_bytes=4096,
        ranges=[RANGE] * ranges,
    )
    return Portion(segments=[plan], is_last=False)


class ExternalJobStub:
    """Plans portions that begin at the partition's index, later ones sooner. Copies may fail."""

    def __init__(self, *, ranges: int = 1, failure: BaseException | None = None) -> None:
        self.ranges = ranges
        self.failure = failure
        self.planned: list[int] = []
        self.together = self.at_once = 0

    async def segments(self, index: int, number: int) -> Portion:
        self.planned.append(index)
        self.at_once += 1
        self.together = max(self.together, self.at_once)
        for _ in range(10 - index % 10):
            await asyncio.sleep(0)
        self.at_once -= 1
        return portion(index, self.ranges)

    async def begin(self, index: int, start_offset: int, token: str) -> RemoteLogSegmentMetadata:
        if self.failure is not None:
            raise self.failure
        return segment(1, start_offset, start_offset + 9)

    async def finish(self, segment_id: uuid.UUID, custom_metadata: bytes | None, written: Any) -> bool:
        return custom_metadata == b"yes"

    async def abandon(self, segment_id: uuid.UUID) -> None:
        pass


async def answered(job: Any, *steps: Any) -> list[Any]:
    answers = StepsAnswer.model_validate_json(rendered(await take(job, steps))).answers
    assert len(answers) == len(steps)
    return answers


def plans(count: int) -> list[SegmentsStep]:
    return [SegmentsStep(partition=index, number=0) for index in range(count)]


async def test_answers_are_in_the_order_of_the_steps():
    some_id = uuid.UUID(int=1)
    first, begun, taken, lost, last, abandoned = await answered(
        ExternalJobStub(),
        SegmentsStep(partition=0, number=0),
        BeginStep(partition=0, start_offset=40, token="a"),
        FinishStep(segment_id=some_id, custom_metadata=b"yes"),
        FinishStep(segment_id=some_id, custom_metadata=None),
        SegmentsStep(partition=5, number=0),
        AbandonStep(segment_id=some_id),
    )
    assert [one.portion(PARTITION) for one in (first, last)] == [portion(0), portion(5)]
    assert begun.metadata().start_offset == 40
    assert (taken.taken, lost.taken, abandoned.step) == (True, False, "abandon")


@pytest.mark.parametrize(("failure", "code", "message"), ERRORS)
async def test_a_step_that_fails_leaves_the_others_alone(failure, code, message):
    begin = BeginStep(partition=0, start_offset=0, token="a")
    before, failed, after = await answered(ExternalJobStub(failure=failure), plans(1)[0], begin, plans(2)[1])
    assert (failed.step, failed.error_code, failed.message) == ("refused", code, message)
    assert [type(one) for one in (before, after)] == [SegmentsAnswer] * 2


async def test_a_step_that_was_broken_off_is_to_be_asked_for_again():
    begin = BeginStep(partition=0, start_offset=0, token="a")
    assert await answered(ExternalJobStub(failure=asyncio.CancelledError()), begin) == [None]


async def test_plans_behind_a_large_one_are_not_answered_but_copies_are(monkeypatch):
    monkeypatch.setattr(driver_steps, "ANSWER_RANGES", 100)
    job = ExternalJobStub(ranges=60)
    begin = BeginStep(partition=0, start_offset=0, token="a")
    answers = await answered(job, *plans(40), begin)
    told = [index for index, one in enumerate(answers[:40]) if one is not None]
    assert told == sorted(job.planned) == [*range(len(told))]
    assert 2 <= len(told) <= 2 + driver_steps.PLANS_AT_ONCE
    assert isinstance(answers[40], BeginAnswer)


async def test_one_plan_is_told_however_large_it_is(monkeypatch):
    monkeypatch.setattr(driver_steps, "ANSWER_RANGES", 1)
    monkeypatch.setattr(driver_steps, "PLANS_AT_ONCE", 1)
    assert [one is not None for one in await answered(ExternalJobStub(ranges=5), *plans(3))] == [True, False, False]


async def test_few_plans_are_made_at_once():
    job = ExternalJobStub()
    await answered(job, *plans(40))
    assert (job.together, len(job.planned)) == (driver_steps.PLANS_AT_ONCE, 40)

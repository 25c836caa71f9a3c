"""Takes the steps that a driver asks for in one request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import status

from diskless_core.admin.driver_models import (
    AbandonAnswer,
    AbandonStep,
    BeginAnswer,
    BeginStep,
    FinishAnswer,
    FinishStep,
    RefusedAnswer,
    SegmentsAnswer,
    SegmentsStep,
    Step,
    StepAnswer,
    StepsAnswer,
)
from diskless_core.plugin.segment_compaction import SegmentCompactionError
from diskless_core.tiering.external_job import ExternalJob, JobNotRunningError, Portion, UnknownStepError

ANSWER_RANGES = 50_000
"""Ranges after which a request gets no more plans: some 8 MB of JSON."""

PLANS_AT_ONCE = 8
"""Portions of one request that are planned at the same time. By so many an answer may exceed `ANSWER_RANGES`."""

Taken = Portion | StepAnswer | BaseException | None


async def take(job: ExternalJob, steps: Sequence[Step]) -> Sequence[Taken]:
    """Take steps of a job, all at once.

    Returns:
        What came of each, in their order; None for a plan that has to be asked for again. The first step is taken.
    """
    room = _Room(job)
    return await asyncio.gather(*map(room.take, steps), return_exceptions=True)


class _Room:
    """The room for plans in the answer to one request."""

    def __init__(self, job: ExternalJob) -> None:
        self._job = job
        self._planning = asyncio.Semaphore(PLANS_AT_ONCE)
        self._ranges = 0

    async def take(self, step: Step) -> Taken:
        match step:
            case SegmentsStep():
                return await self._plan(step)
            case BeginStep():
                return BeginAnswer.of(await self._job.begin(step.partition, step.start_offset, step.token))
            case FinishStep():
                written = None if step.written is None else step.written.written()
                return FinishAnswer(taken=await self._job.finish(step.segment_id, step.custom_metadata, written))
            case AbandonStep():
                await self._job.abandon(step.segment_id)
                return AbandonAnswer()

    async def _plan(self, step: SegmentsStep) -> Portion | None:
        async with self._planning:
            if self._ranges >= ANSWER_RANGES:
                return None
            portion = await self._job.segments(step.partition, step.number)
            self._ranges += portion.ranges
            return portion


def rendered(taken: Sequence[Taken]) -> bytes:
    """The answer as JSON. It takes its time if there are many plans."""
    return StepsAnswer(answers=[_answer(one) for one in taken]).model_dump_json().encode()


def _answer(taken: Taken) -> StepAnswer | None:
    match taken:
        case Portion():
            return SegmentsAnswer.of(taken)
        case asyncio.CancelledError():  # the broker stops: asked again, there is no such job
            return None
        case UnknownStepError():
            return _refused(status.HTTP_404_NOT_FOUND, str(taken))
        case JobNotRunningError():
            return _refused(status.HTTP_409_CONFLICT, str(taken))
        case SegmentCompactionError():
            return _refused(status.HTTP_503_SERVICE_UNAVAILABLE, str(taken))
        case BaseException():
            return _refused(status.HTTP_500_INTERNAL_SERVER_ERROR, "see the log of the broker")
        case _:
            return taken


def _refused(code: int, message: str) -> RefusedAnswer:
    return RefusedAnswer(error_code=code, message=message)

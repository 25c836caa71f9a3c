"""The HTTP interface's routes for the driver of a compaction: an engine that runs in another process than the broker.

Every step can be asked for again, with the same answer, and is a sign of the driver's life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Response, status
from fastapi.responses import JSONResponse

from diskless_core.admin.compaction import CompactionAnswer, CompactionBody
from diskless_core.admin.driver_models import (
    CopyAnswer,
    CopyBody,
    EndBody,
    FinishAnswer,
    FinishBody,
    JobAnswer,
    PlannedAnswer,
    ProducersAnswer,
    ProgressBody,
    SegmentAnswer,
)
from diskless_core.admin.models import ErrorAnswer, KafkaUuid
from diskless_core.log import producer_snapshot
from diskless_core.plugin.segment_compaction import SegmentCompactionError, SegmentPlan
from diskless_core.tiering.compaction import Compactor, UnknownJobError
from diskless_core.tiering.lent_job import JobNotRunningError, UnknownStepError

_ERRORS: dict[int | str, dict[str, Any]] = {code: {"model": ErrorAnswer} for code in (404, 409, 503)}


class LendBody(CompactionBody):
    """What is to be compacted by the engine of this name, which is the driver's. The same driver gets the same job."""

    engine: str
    driver: str


def add_driver(app: FastAPI, compactor: Callable[[], Compactor]) -> None:
    """The routes. `compactor` raises CoordinatorError while there is none."""
    app.add_exception_handler(UnknownJobError, _unknown)
    app.add_exception_handler(UnknownStepError, _unknown)
    app.add_exception_handler(JobNotRunningError, _not_running)
    app.add_exception_handler(SegmentCompactionError, _failed)

    @app.post("/compaction/driver", responses=_ERRORS)
    async def lend(body: LendBody) -> CompactionAnswer:
        """Begin a compaction whose engine is the driver's. It waits for its turn, `state` says so."""
        return CompactionAnswer.of(compactor().lend(body.request(), body.engine, body.driver))

    @app.get("/compaction/{job_id}/driver", responses=_ERRORS)
    async def describe(job_id: str) -> JobAnswer:
        """What there is to do, once the job runs."""
        lent = compactor().lent(job_id)
        return JobAnswer.of(lent.running(), lent.session_timeout_ms)

    @app.post("/compaction/{job_id}/driver/progress", responses=_ERRORS)
    async def progress(job_id: str, body: ProgressBody) -> CompactionAnswer:
        """Say that the driver lives, and how far it is."""
        lent = compactor().lent(job_id)
        lent.heard(body.bytes_copied)
        return CompactionAnswer.of(lent.report)

    @app.post("/compaction/{job_id}/driver/end", responses=_ERRORS)
    async def end(job_id: str, body: EndBody) -> CompactionAnswer:
        """Say that the engine has ended. The job ends when what it left is cleared away."""
        lent = compactor().lent(job_id)
        lent.end(body.bytes_copied, body.failure)
        return CompactionAnswer.of(lent.report)

    @app.get(
        "/compaction/{job_id}/driver/partitions/{partition}/segments/{number}",
        response_model=SegmentAnswer,
        responses=_ERRORS,
    )
    async def segment(job_id: str, partition: int, number: int) -> Response:
        """A segment of a partition, counted from 0: the next one, which is planned now, or again the one before."""
        plan = await compactor().lent(job_id).segment(partition, number)
        return Response(await asyncio.to_thread(_rendered, plan), media_type="application/json")

    @app.get(
        "/compaction/{job_id}/driver/partitions/{partition}/offsets/{start_offset}/producers",
        responses=_ERRORS,
    )
    async def producers(job_id: str, partition: int, start_offset: int) -> ProducersAnswer:
        """The idempotent producers where a planned segment begins, the first one of its partition."""
        state = await compactor().lent(job_id).producers_before(partition, start_offset)
        return ProducersAnswer(snapshot=producer_snapshot.encode(state.values()))

    @app.post("/compaction/{job_id}/driver/partitions/{partition}/offsets/{start_offset}/copy", responses=_ERRORS)
    async def begin(job_id: str, partition: int, start_offset: int, body: CopyBody) -> CopyAnswer:
        """Note that the copy of a planned segment begins."""
        return CopyAnswer.of(await compactor().lent(job_id).begin(partition, start_offset, body.token))

    @app.post("/compaction/{job_id}/driver/copies/{segment_id}/finish", responses=_ERRORS)
    async def finish(job_id: str, segment_id: KafkaUuid, body: FinishBody) -> FinishAnswer:
        """Note that a copy is complete, and have the coordinator take it for the batches in WAL objects."""
        return FinishAnswer(taken=await compactor().lent(job_id).finish(segment_id, body.custom_metadata))

    @app.post("/compaction/{job_id}/driver/copies/{segment_id}/abandon", responses=_ERRORS)
    async def abandon(job_id: str, segment_id: KafkaUuid) -> FinishAnswer:
        """Remove a copy that failed."""
        await compactor().lent(job_id).abandon(segment_id)
        return FinishAnswer(taken=False)


def _rendered(plan: SegmentPlan | None) -> bytes:
    answer = SegmentAnswer(segment=None if plan is None else PlannedAnswer.of(plan))
    return answer.model_dump_json().encode()


async def _unknown(_request: object, error: Exception) -> JSONResponse:
    return _answer(status.HTTP_404_NOT_FOUND, error)


async def _not_running(_request: object, error: Exception) -> JSONResponse:
    return _answer(status.HTTP_409_CONFLICT, error)


async def _failed(_request: object, error: Exception) -> JSONResponse:
    return _answer(status.HTTP_503_SERVICE_UNAVAILABLE, error)


def _answer(code: int, error: Exception) -> JSONResponse:
    return JSONResponse(ErrorAnswer(error_code=code, message=str(error)).model_dump(), status_code=code)

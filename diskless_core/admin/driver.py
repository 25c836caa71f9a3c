"""The HTTP interface's routes for the driver of a compaction: an engine that runs in another process than the broker.

A request whose answer was lost can be made again: it is done once, and answered as before. Each is a sign of the
driver's life. Steps of many partitions go in one: the coordinators then note them together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Response, status

from diskless_core.admin.compaction import CompactionAnswer, CompactionBody
from diskless_core.admin.driver_models import EndBody, JobAnswer, ProgressBody, StepsAnswer, StepsBody
from diskless_core.admin.driver_steps import rendered, take
from diskless_core.admin.errors import answer_with
from diskless_core.admin.models import ErrorAnswer
from diskless_core.tiering.compaction import Compactor, UnknownJobError
from diskless_core.tiering.external_job import JobNotRunningError

_ERRORS: dict[int | str, dict[str, Any]] = {code: {"model": ErrorAnswer} for code in (404, 409)}


class ExternalJobBody(CompactionBody):
    """What is to be compacted by the engine of this name, which is the driver's.

    The same driver gets the same job, also when that has ended.
    """

    engine: str
    driver: str


def add_driver(app: FastAPI, compactor: Callable[[], Compactor]) -> None:
    """The routes. `compactor` raises CoordinatorError while there is none."""
    app.add_exception_handler(UnknownJobError, answer_with(status.HTTP_404_NOT_FOUND))
    app.add_exception_handler(JobNotRunningError, answer_with(status.HTTP_409_CONFLICT))

    @app.post("/compaction/driver", responses=_ERRORS)
    async def begin(body: ExternalJobBody) -> CompactionAnswer:
        """Begin a compaction whose engine is the driver's. It waits for its turn, `state` says so."""
        request = body.request()
        await compactor().learn_topics(request)
        return CompactionAnswer.of(compactor().begin_external(request, body.engine, body.driver))

    @app.get("/compaction/{job_id}/driver", responses=_ERRORS)
    async def describe(job_id: str) -> JobAnswer:
        """What there is to do, once the job runs."""
        job = compactor().external(job_id)
        return JobAnswer.of(job.running(), job.session_timeout_ms)

    @app.post("/compaction/{job_id}/driver/progress", responses=_ERRORS)
    async def progress(job_id: str, body: ProgressBody) -> CompactionAnswer:
        """Say that the driver lives, and how far it is."""
        job = compactor().external(job_id)
        job.heard(body.bytes_copied)
        return CompactionAnswer.of(job.report)

    @app.post("/compaction/{job_id}/driver/end", responses=_ERRORS)
    async def end(job_id: str, body: EndBody) -> CompactionAnswer:
        """Say that the engine has ended. The job ends when what it left is cleared away."""
        return CompactionAnswer.of(compactor().end_external(job_id, body.bytes_copied, body.failure))

    @app.post("/compaction/{job_id}/driver/steps", response_model=StepsAnswer, responses=_ERRORS)
    async def steps(job_id: str, body: StepsBody) -> Response:
        """Take steps, all at once, and answer when the last one is done."""
        taken = await take(compactor().external(job_id), body.steps)
        return Response(await asyncio.to_thread(rendered, taken), media_type="application/json")

"""What the driver of an external compaction job says to the broker, over HTTP."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pydantic import BaseModel
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, stop_never
from tenacity.stop import stop_base

from diskless_core.admin.compaction import CompactionAnswer
from diskless_core.admin.driver import ExternalJobBody
from diskless_core.admin.driver_models import EndBody, JobAnswer, ProgressBody, StepsAnswer, StepsBody
from diskless_core.cli import admin_client
from diskless_core.cli.admin_client import NoAnswerError
from diskless_core.cli.step_batches import REQUESTS_AT_ONCE, StepBatches
from diskless_core.clock import SystemClock
from diskless_core.plugin.retrying import Backoff

_PATIENCE_S = 30.0
_RETRY = Backoff(first_ms=100, max_ms=2_000)

AnswerT = TypeVar("AnswerT", bound=BaseModel)


class ExternalJobClient:
    """The calls of one driver, in threads of their own. Each is made again while no answer comes.

    All raise AdminClientError when the broker answers with an error, and all but steps when it is silent for
    `patience_s`. Whoever takes steps watches over the signs of life meanwhile, and gives up with these.
    """

    patience_s = _PATIENCE_S

    def __init__(self, url: str, node_id: int | None = None, cluster_id: str | None = None) -> None:
        self._url = url
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._step_threads = ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="compaction-step")
        self._sign_threads = ThreadPoolExecutor(1, thread_name_prefix="compaction-sign")
        self._batches: list[StepBatches] = []

    def close(self) -> None:
        """Make no further calls. Those under way end by themselves."""
        for batches in self._batches:
            batches.close()
        for threads in (self._step_threads, self._sign_threads):
            threads.shutdown(wait=False, cancel_futures=True)

    async def begin(self, body: ExternalJobBody) -> CompactionAnswer:
        """Begin a job."""
        return await self._sign("POST", "/compaction/driver", CompactionAnswer, body)

    async def describe(self, job_id: str) -> JobAnswer:
        """What there is to do in a job that runs. From now on patience ends well before the broker's."""
        described = await self._sign("GET", f"/compaction/{job_id}/driver", JobAnswer)
        self.patience_s = described.session_timeout_ms / 2000
        return described

    async def progress(self, job_id: str, bytes_copied: int) -> CompactionAnswer:
        """Give a sign of life."""
        body = ProgressBody(bytes_copied=bytes_copied)
        return await self._sign("POST", f"/compaction/{job_id}/driver/progress", CompactionAnswer, body)

    async def end(self, job_id: str, bytes_copied: int, failure: str | None) -> CompactionAnswer:
        """Say that the engine has ended."""
        body = EndBody(bytes_copied=bytes_copied, failure=failure)
        return await self._sign("POST", f"/compaction/{job_id}/driver/end", CompactionAnswer, body)

    def steps(self, job_id: str) -> StepBatches:
        """The steps of a job. They are asked for until there is an answer, or the client is closed."""
        path = f"/compaction/{job_id}/driver/steps"

        async def send(body: StepsBody) -> StepsAnswer:
            return await self._ask(self._step_threads, stop_never, None, "POST", path, StepsAnswer, body)

        batches = StepBatches(send)
        self._batches.append(batches)
        return batches

    async def _sign(self, method: str, path: str, answer: type[AnswerT], body: BaseModel | None = None) -> AnswerT:
        timeout_s = self.patience_s / 3
        stop = stop_after_delay(self.patience_s - timeout_s)
        return await self._ask(self._sign_threads, stop, timeout_s, method, path, answer, body)

    async def _ask(
        self,
        threads: ThreadPoolExecutor,
        stop: stop_base,
        timeout_s: float | None,
        method: str,
        path: str,
        answer: type[AnswerT],
        body: BaseModel | None,
    ) -> AnswerT:
        content = None if body is None else body.model_dump(mode="json")

        def ask() -> AnswerT:
            said: Any = admin_client.ask(
                method,
                self._url,
                path,
                content,
                timeout_s=timeout_s,
                node_id=self._node_id,
                cluster_id=self._cluster_id,
            )
            return answer.model_validate(said)

        async def attempt() -> AnswerT:
            return await asyncio.get_running_loop().run_in_executor(threads, ask)

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(NoAnswerError),
            stop=stop,
            wait=_RETRY.wait(SystemClock()),
            reraise=True,
        )
        return await retrying(attempt)

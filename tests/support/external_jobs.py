"""A driver and the broker's HTTP interface in one process, without sockets, so that it runs on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from diskless_core.admin.compaction import add_compaction
from diskless_core.admin.driver import add_driver
from diskless_core.cli.admin_client import NoAnswerError, RefusedError
from diskless_core.cli.compaction_driver import Driver
from diskless_core.cli.external_job_client import ExternalJobClient
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.segment_compaction import BackendSources, SegmentCompaction
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.tiering.compaction import Compactor
from diskless_core.tiering.report import JobReport
from diskless_tiering.config import InlineSettings
from diskless_tiering.inline import InlineCompaction
from tests.support.compaction_world import CompactionWorld


class InProcessClient(ExternalJobClient):
    """Asks a compactor's routes directly.

    Attributes:
        sent: method and path of the requests, in order.
        loses_answers: whether every request is sent twice, because the first answer is lost.
        is_cut_off: whether nothing gets through any more.
    """

    def __init__(self, compactor: Compactor) -> None:
        super().__init__("http://broker")
        app = FastAPI()
        add_compaction(app, lambda: compactor, None)  # type: ignore[arg-type]
        add_driver(app, lambda: compactor)
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://broker")
        self.sent: list[str] = []
        self.loses_answers = False
        self.is_cut_off = False

    async def _ask(
        self, threads: Any, stop: Any, timeout_s: Any, method: str, path: str, answer: Any, body: Any
    ) -> Any:
        if self.is_cut_off:
            raise NoAnswerError("nobody answers")
        self.sent.append(f"{method} {path}")
        content = None if body is None else body.model_dump(mode="json")
        for _ in range(2 if self.loses_answers else 1):
            response = await self._http.request(method, path, json=content)
        if response.status_code != 200:
            reason = response.json()["message"]
            raise RefusedError(f"the answer is {response.status_code}: {reason}", reason)
        return answer.model_validate_json(response.content)


class WorldBackends:
    """What a driver has of a world: the same as the broker, unless it is given others."""

    def __init__(
        self,
        world: CompactionWorld,
        *,
        engine: SegmentCompaction | None = None,
        objects: WalObjectStore | None = None,
        remote_storage: RemoteStorage | None = None,
    ) -> None:
        self.clock = world.path.clock
        self.engine_name = "elsewhere"
        context = PluginContext(node_id=-1, data_dir=None, log_dir=None, clock=self.clock)  # type: ignore[arg-type]
        self._engine = engine or InlineCompaction(context, InlineSettings())
        self._opened = objects or world.path.objects, remote_storage or world.remote

    @property
    def sources(self) -> BackendSources:
        return None  # type: ignore[return-value]

    def engine(self) -> SegmentCompaction:
        return self._engine

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[WalObjectStore, RemoteStorage]]:
        yield self._opened


def driver_of(client: InProcessClient, backends: WorldBackends) -> Driver:
    return Driver(backends, client, lambda *_: None)  # type: ignore[arg-type]


async def drive(compactor: Compactor, backends: WorldBackends, client: InProcessClient | None = None) -> JobReport:
    """A driver's whole job."""
    job_id = await driver_of(client or InProcessClient(compactor), backends).drive(None, everything=True)
    return await ended(compactor, job_id)


async def ended(compactor: Compactor, job_id: str) -> JobReport:
    """The report of a job when it has ended."""
    report = compactor.report(job_id)
    assert report is not None
    while report.ended_at_ms is None:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    return report

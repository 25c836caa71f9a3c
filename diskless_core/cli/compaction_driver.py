"""Runs a compaction engine in this process, for a broker that keeps the coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from diskless_core.admin.compaction import CompactionAnswer
from diskless_core.admin.driver import ExternalJobBody
from diskless_core.broker.tiering_backends import backend_sources
from diskless_core.cli.admin_client import AdminClientError
from diskless_core.cli.cluster_compaction import ClusterCompaction, is_lost
from diskless_core.cli.common import fail, load_or_exit
from diskless_core.cli.external_job_client import ExternalJobClient
from diskless_core.cli.leaders import Portion
from diskless_core.cli.remote_job import RemoteJob
from diskless_core.cli.remote_storages import RemoteStorages
from diskless_core.cli.signals import watching
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.segment_building.backends import ObjectsToRead, RetryingRemoteStorage
from diskless_core.plugin.segment_compaction import BackendSources, SegmentCompaction, SegmentCompactionError
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.plugin_host.nouns import SEGMENT_COMPACTION
from diskless_core.protocol.names import uuid_text
from diskless_core.tiering.compaction import compaction_obstacle
from diskless_core.tiering.report import JobState

SIGN_INTERVAL_S = 0.5

_INTERRUPTED = "interrupted"

Tell = Callable[[CompactionAnswer], None]


class DriverBackends(RemoteStorages):
    """What a driver needs: the engine that the configuration chooses, and what that reads from and copies to."""

    @classmethod
    def for_engine(
        cls, config: Path | None, override: Sequence[str] | None, *, engine: str | None, master: str | None
    ) -> Self:
        """From the options of a command; ends it with all problems if the configuration is bad."""
        overrides = [*(override or ())]
        if engine is not None:
            overrides.append(f"{SEGMENT_COMPACTION.name}={engine}")
        made = cls.configured(config, overrides)
        if master is None:
            return made
        if not made.has_master:
            fail(f"the engine {made.engine_name} has no --master: give --engine spark, or another one that has")
        return made.reloaded(config, [*overrides, f"{SEGMENT_COMPACTION.name}.{made.engine_name}.master={master}"])

    def reloaded(self, config: Path | None, overrides: Sequence[str]) -> Self:
        """The same with other overrides."""
        loaded = load_or_exit(config, overrides, self._plugins)
        return replace(self, config=loaded.broker, _loaded=loaded)

    @property
    def engine_name(self) -> str:
        """As it is installed."""
        return self._loaded.plugins[SEGMENT_COMPACTION.name].descriptor.name

    @property
    def has_master(self) -> bool:
        """Whether the engine can be told where to run its tasks."""
        fields = self._loaded.plugins[SEGMENT_COMPACTION.name].descriptor.settings.model_fields
        return "master" in {field.alias or name for name, field in fields.items()}

    def engine(self) -> SegmentCompaction:
        """The engine, with its settings."""
        return self._plugins.create(SEGMENT_COMPACTION, self._loaded.plugins, self._contexts)

    @property
    def sources(self) -> BackendSources:
        """What makes the backends in other processes."""
        return backend_sources(self._loaded, self._plugins, self._contexts, self.retries)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[WalObjectStore, RemoteStorage]]:
        """WAL objects and remote storage, with retries.

        Raises:
            AdminClientError: no records may be moved from the one to the other.
        """
        async with self.objects() as objects, self.own() as remote_storage:
            obstacle = compaction_obstacle(objects, remote_storage)
            if obstacle is not None:
                raise AdminClientError(obstacle)
            yield ObjectsToRead(objects, self.retries), RetryingRemoteStorage(remote_storage, self.retries)


class Driver:
    """Drives one job of a broker. It closes the client.

    Args:
        tell: called with what the broker says of the job, now and then.

    Attributes:
        job_id: of the job that has begun; None before.
    """

    def __init__(self, backends: DriverBackends, client: ExternalJobClient, tell: Tell) -> None:
        self._backends = backends
        self._client = client
        self._tell = tell
        self.job_id: str | None = None
        self._job: RemoteJob | None = None
        self._has_turn = False

    async def drive(
        self, topics: Sequence[str] | None, *, everything: bool, shards: Sequence[int] | None = None
    ) -> str:
        """Have the engine do a job, of some topics or all. A signal that asks for the end ends it in good order.

        Args:
            shards: the Diskless coordinators whose partitions are compacted; None for all that the broker leads.

        Returns:
            The id of the job. The broker ends it when it has cleared away what the engine left, and reports of it.

        Raises:
            AdminClientError: there is no job, or it was given up before it was its turn, or twice.
            PluginError, RemoteStorageError, WalObjectStoreError: a backend or the engine cannot be used.
        """
        work = asyncio.create_task(self._drive(topics, shards, everything=everything), name="driver")
        is_interrupted = False

        def interrupt() -> None:
            nonlocal is_interrupted
            is_interrupted = True
            work.cancel()

        with watching(interrupt):
            try:
                return await work
            except asyncio.CancelledError:
                if not is_interrupted:
                    raise
                when = "at the end of the compaction" if self._has_turn else "before the compaction began"
                raise AdminClientError(f"interrupted {when}") from None

    async def _drive(self, topics: Sequence[str] | None, shards: Sequence[int] | None, *, everything: bool) -> str:
        body = ExternalJobBody(
            topics=list(topics or ()),
            all=topics is None,
            shards=None if shards is None else list(shards),
            everything=everything,
            engine=self._backends.engine_name,
            driver=uuid_text(self._backends.clock.new_uuid()),
        )
        with closing(self._client):
            engine = self._backends.engine()
            async with self._backends.opened() as (objects, remote_storage):
                begun = await self._begin(body)
                self.job_id = begun.id
                failure: str | None = None
                try:
                    job = await self._begun(begun, objects, remote_storage)
                    await self._compact(engine, begun.id, job)
                except SegmentCompactionError as error:
                    failure = str(error)
                except asyncio.CancelledError:
                    failure = _INTERRUPTED
                    if not self._has_turn:
                        raise
                except Exception as error:
                    failure = f"its driver failed: {type(error).__name__}: {error}"
                    raise
                finally:
                    await self._end(begun.id, failure)
        return begun.id

    async def _begin(self, body: ExternalJobBody) -> CompactionAnswer:
        """Begin a job. Who is interrupted meanwhile has ended it."""
        beginning = asyncio.create_task(self._client.begin(body), name="beginning")
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            with suppress(AdminClientError):
                await self._end((await beginning).id, _INTERRUPTED)
            raise

    async def _begun(
        self, report: CompactionAnswer, objects: WalObjectStore, remote_storage: RemoteStorage
    ) -> RemoteJob:
        """The job, when it is its turn."""
        while report.state is JobState.WAITING:
            self._tell(report)
            await asyncio.sleep(SIGN_INTERVAL_S)
            report = await self._client.progress(report.id, 0)
        self._has_turn = True
        self._job = RemoteJob(
            report.id,
            await self._client.describe(report.id),
            self._client,
            self._backends.clock,
            objects=objects,
            remote_storage=remote_storage,
            backends=self._backends.sources,
        )
        return self._job

    async def _compact(self, engine: SegmentCompaction, job_id: str, job: RemoteJob) -> None:
        """Run the engine for as long as the broker hears of it, which ends when somebody else may have the job."""
        signs = asyncio.create_task(self._give_signs(job_id, job), name="signs of life")
        work = asyncio.create_task(engine.compact(job), name="engine")
        try:
            await asyncio.wait((signs, work), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await signs
            await work
        finally:
            for task in (work, signs):  # an engine may take its time to end
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _give_signs(self, job_id: str, job: RemoteJob) -> None:
        while True:
            self._tell(await self._client.progress(job_id, job.bytes_copied))
            await asyncio.sleep(SIGN_INTERVAL_S)

    async def _end(self, job_id: str, failure: str | None) -> None:
        """Tell the broker. If it knows better, or cannot be told, the job ends there by itself."""
        bytes_copied = self._job.bytes_copied if self._job is not None else 0
        with suppress(AdminClientError):
            await self._client.end(job_id, bytes_copied, failure)


async def driven(
    compaction: ClusterCompaction, backends: DriverBackends, topics: Sequence[str] | None, *, everything: bool
) -> dict[str, Any]:
    """Have this process' engine compact what all brokers of a cluster lead, for each in a job of its own.

    A signal that asks for the end ends it in good order.

    Returns:
        What became of it.

    Raises:
        AdminClientError: as `ClusterCompaction.by`; or it was interrupted, see `Driver.drive`.
        PluginError, RemoteStorageError, WalObjectStoreError: a backend or the engine cannot be used.
    """

    def tell(answer: CompactionAnswer) -> None:
        compaction.tell(answer.model_dump(mode="json"))

    async def begin(portion: Portion) -> str:
        driver = Driver(backends, ExternalJobClient(portion.url, portion.node_id, portion.cluster_id), tell)
        try:
            return await driver.drive(topics, everything=everything, shards=portion.shards)
        except AdminClientError as error:
            if driver.job_id is None or not is_lost(error):
                raise
            return driver.job_id  # what became of it, its report tells

    with watching(compaction.work.interrupt):
        return await compaction.by(begin)

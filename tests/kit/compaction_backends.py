"""Engines that faulty ones are made from: a simple one, each step of which can be replaced, and the real `inline`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import ClassVar

import pytest

from diskless_core.clock import SystemClock
from diskless_core.log import leader_epochs, producer_snapshot
from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.log.segment_indexer import SegmentIndexer
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData, RemoteStorageError
from diskless_core.plugin.segment_compaction import (
    CompactionJob,
    SegmentCompaction,
    SegmentCompactionError,
    SegmentPlan,
)
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStoreError
from diskless_core.protocol import record_batch
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.testing.compaction_folder import FolderCompactionJob
from diskless_core.testing.compaction_job import FakeCompactionJob
from diskless_core.testing.segment_compaction import SegmentCompactionContract
from diskless_core.wal import batches
from diskless_core.wal.runs import Run
from diskless_tiering.config import InlineSettings
from diskless_tiering.inline import InlineCompaction
from tests.kit.fault import Fault, MakeSuite

NOUN = "segment_compaction"

FAILURES = (SegmentCompactionError, RemoteStorageError, WalObjectStoreError)


class OneByOne(SegmentCompaction):
    """Makes one segment after the other, each whole in memory."""

    async def compact(self, job: CompactionJob) -> None:
        failures: list[str] = []
        for partition in job.partitions:
            try:
                await self.partition(job, partition)
            except FAILURES as error:
                failures.append(f"{partition.name}: {error}")
        self.report(failures)

    def report(self, failures: list[str]) -> None:
        if failures:
            raise SegmentCompactionError("; ".join(failures))

    async def partition(self, job: CompactionJob, partition: TopicIdPartition) -> None:
        producers: ProducerState | None = None
        async with aclosing(job.segments(partition)) as segments:
            async for plan in segments:
                if producers is None:
                    producers = await job.producers_before(plan)
                producers = await self.segment(job, plan, producers)
                if producers is None:
                    return

    async def segment(self, job: CompactionJob, plan: SegmentPlan, producers: ProducerState) -> ProducerState | None:
        metadata = await job.begin(plan)
        try:
            log = await self.read(job, plan)
            indexes, behind = self.indexes(job, plan, log, producers)
            custom_metadata = await self.copy(job, metadata, log, indexes)
        except FAILURES:
            await self.give_up(job, metadata)
            raise
        self.progressed(job, plan)
        return behind if await self.finish(job, metadata, custom_metadata) else None

    async def read(self, job: CompactionJob, plan: SegmentPlan) -> bytes:
        return b"".join([await self.read_run(job, run) for run in plan.ranges])

    async def read_run(self, job: CompactionJob, run: Run) -> bytes:
        found = bytearray(await job.objects.get(run.object_key, run.byte_offset, run.byte_offset + run.byte_size))
        return self.prepare(found, run)

    def prepare(self, found: bytearray, run: Run) -> bytes:
        prepared = batches.prepare(found, run)
        if prepared.problem is not None:
            raise SegmentCompactionError(f"{run.object_key}: {prepared.problem}")
        return bytes(found)

    def indexes(
        self, job: CompactionJob, plan: SegmentPlan, log: bytes, producers: ProducerState
    ) -> tuple[dict[IndexType, bytes], ProducerState]:
        indexer = SegmentIndexer(plan.start_offset, interval_bytes=plan.index_interval_bytes, producers=producers)
        for _, header in record_batch.walk(log):
            indexer.add(header)
        built = indexer.finish()
        behind = self.behind(job, plan, indexer.producers)
        return {
            IndexType.OFFSET: built.offset_index,
            IndexType.TIMESTAMP: built.time_index,
            IndexType.PRODUCER_SNAPSHOT: producer_snapshot.encode(behind.values()),
            IndexType.LEADER_EPOCH: leader_epochs.encode({0: 0}),
        }, behind

    def behind(self, job: CompactionJob, plan: SegmentPlan, producers: ProducerState) -> ProducerState:
        expiration_ms = job.producer_id_expiration_ms
        return dict(producer_snapshot.without_expired(producers, plan.max_timestamp_ms, expiration_ms))

    async def copy(
        self, job: CompactionJob, metadata: RemoteLogSegmentMetadata, log: bytes, indexes: Mapping[IndexType, bytes]
    ) -> bytes | None:
        async def whole() -> AsyncIterator[ObjectData]:
            yield log

        return await job.remote_storage.copy(metadata, LogSegmentData(log=whole, indexes=lambda: indexes))

    async def give_up(self, job: CompactionJob, metadata: RemoteLogSegmentMetadata) -> None:
        await job.abandon(metadata)

    def progressed(self, job: CompactionJob, plan: SegmentPlan) -> None:
        job.progressed(plan.size_bytes)

    async def finish(self, job: CompactionJob, metadata: RemoteLogSegmentMetadata, custom: bytes | None) -> bool:
        return await job.finish(metadata, custom)


class AtOnce(OneByOne):
    """Makes segments of as many partitions at once as the job allows."""

    async def compact(self, job: CompactionJob) -> None:
        failures: list[str] = []
        slots = asyncio.Semaphore(self.at_once(job))

        async def work(partition: TopicIdPartition) -> None:
            async with slots:
                try:
                    await self.partition(job, partition)
                except FAILURES as error:
                    failures.append(f"{partition.name}: {error}")

        async with asyncio.TaskGroup() as workers:
            for partition in job.partitions:
                workers.create_task(work(partition))
        self.report(failures)

    def at_once(self, job: CompactionJob) -> int:
        return job.parallel_partitions


def suite(made: Callable[[], SegmentCompaction], *, in_folders: bool = False) -> MakeSuite:
    """The suite for an engine; with jobs in memory, or in folders."""

    class Suite(SegmentCompactionContract):
        keeps_parallel_partitions: ClassVar[bool] = True

        @pytest.fixture
        def engine(self) -> SegmentCompaction:
            return made()

    class FolderSuite(Suite):
        @pytest.fixture
        def new_job(self, tmp_path: Path) -> Callable[[], FakeCompactionJob]:
            clock = SystemClock()
            return lambda: FolderCompactionJob(tmp_path / clock.new_uuid().hex)

    return lambda: FolderSuite if in_folders else Suite


def inline() -> SegmentCompaction:
    """The engine that comes with Diskless."""
    context = PluginContext(node_id=1, data_dir=Path(), log_dir=Path(), clock=SystemClock())
    return InlineCompaction(context, InlineSettings(buffer_max_bytes=1 << 20, read_max_bytes=1 << 20))


def fault(name: str, made: type[SegmentCompaction], promise: str) -> Fault:
    """A fault; what is wrong is its docstring."""
    return Fault(noun=NOUN, name=name, says=(made.__doc__ or "").strip(), promise=promise, suite=suite(made))

"""The engine `inline`: compaction in the broker itself, a few partitions at once, in bounded memory."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress

import structlog

from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import LogSegmentData, RemoteStorageError
from diskless_core.plugin.segment_compaction import (
    CompactionJob,
    SegmentCompaction,
    SegmentCompactionError,
    SegmentPlan,
)
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_tiering.config import InlineSettings
from diskless_tiering.reads import SharedReads
from diskless_tiering.segment_stream import SegmentStream

NICENESS = 10
"""How far the thread stands behind the broker's own work."""

_TOLD_FAILURES = 10

_log = structlog.get_logger(__name__)


class InlineCompaction(SegmentCompaction):
    """Reads ranges of WAL objects, prepares them on one thread, and streams them on."""

    def __init__(self, context: PluginContext, settings: InlineSettings) -> None:
        del context
        self._settings = settings

    async def compact(self, job: CompactionJob) -> None:
        with _low_priority_thread() as executor:
            await _Run(job, self._settings, executor).all()


class _Run:
    """One job."""

    def __init__(self, job: CompactionJob, settings: InlineSettings, executor: ThreadPoolExecutor) -> None:
        self._job = job
        self._settings = settings
        self._executor = executor
        self._reads = SharedReads(
            job.objects, buffer_max_bytes=settings.buffer_max_bytes, read_max_bytes=settings.read_max_bytes
        )
        self._failures: list[str] = []

    async def all(self) -> None:
        waiting = iter(self._job.partitions)

        async def work() -> None:
            for partition in waiting:
                try:
                    await self._partition(partition)
                except SegmentCompactionError as error:
                    self._failures.append(str(error))
                except Exception as error:
                    name = _name(partition)
                    _log.error("a defect, of a storage perhaps, ended a partition's compaction", of=name, exc_info=True)
                    self._failures.append(f"{name}: a defect: {type(error).__name__}: {error}")

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._job.parallel_partitions, len(self._job.partitions))):
                workers.create_task(work())
        if self._failures:
            more = len(self._failures) - _TOLD_FAILURES
            told = [*self._failures[:_TOLD_FAILURES], *([f"and {more} more"] if more > 0 else [])]
            raise SegmentCompactionError("; ".join(told))

    async def _partition(self, partition: TopicIdPartition) -> None:
        producers: ProducerState | None = None
        async with aclosing(self._job.segments(partition)) as segments:
            async for segment in segments:
                if producers is None:
                    producers = await self._job.producers_before(segment)
                producers = await self._segment(segment, producers)
                if producers is None:
                    return

    async def _segment(self, segment: SegmentPlan, producers: ProducerState) -> ProducerState | None:
        """Make one segment. The producers behind it; None when it was not wanted any more."""
        metadata = await self._job.begin(segment)
        stream = SegmentStream(
            segment,
            producers,
            self._job,
            self._reads,
            self._executor,
            parallel_reads=self._settings.parallel_reads,
            read_max_bytes=self._settings.read_max_bytes,
        )
        data = LogSegmentData(log=stream.log, indexes=stream.indexes)
        try:
            custom_metadata = await self._job.remote_storage.copy(metadata, data)
        except Exception as error:
            await self._job.abandon(metadata)
            if not isinstance(error, (RemoteStorageError, SegmentCompactionError)):
                raise
            where = f"{_name(segment.partition)} at offset {segment.start_offset}"
            raise SegmentCompactionError(f"{where}: {stream.failure or error}") from error
        finally:
            await stream.close()
        return stream.producers if await self._job.finish(metadata, custom_metadata) else None


def _name(partition: TopicIdPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _low_priority_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="compaction", initializer=_step_back)


def _step_back() -> None:
    """On Linux a thread has a priority of its own; elsewhere it would be the whole broker's."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)

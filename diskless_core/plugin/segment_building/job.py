"""Runs a whole job in this process: several partitions at once, each in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import aclosing

import structlog

from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.plugin.segment_building.builder import SegmentBuilder
from diskless_core.plugin.segment_building.settings import SegmentBuildingSettings
from diskless_core.plugin.segment_compaction import CompactionJob, SegmentCompactionError, SegmentPlan
from diskless_core.remote_log.metadata import TopicIdPartition

_TOLD_FAILURES = 10

_log = structlog.get_logger(__name__)


async def run_job(job: CompactionJob, settings: SegmentBuildingSettings, executor: Executor) -> None:
    """Make all segments of a job, as `SegmentCompaction.compact` has to.

    Args:
        executor: one thread, which checks and prepares batches.

    Raises:
        SegmentCompactionError: some partition was not done, after all others were tried.
    """
    await _Run(job, settings, executor).all()


def raise_failures(failures: Sequence[str]) -> None:
    """Raise what went wrong, if something did; of many failures a few are told.

    Raises:
        SegmentCompactionError: with these failures.
    """
    if failures:
        more = len(failures) - _TOLD_FAILURES
        told = [*failures[:_TOLD_FAILURES], *([f"and {more} more"] if more > 0 else [])]
        raise SegmentCompactionError("; ".join(told))


def defect(error: Exception, of: str) -> str:
    """Note the exception that is being handled, which nobody counts with, in the log; what to tell of it."""
    _log.error("a defect, of a storage perhaps, ended a partition's compaction", of=of, exc_info=True)
    return f"{of}: a defect: {type(error).__name__}: {error}"


class _Run:
    """One job."""

    def __init__(self, job: CompactionJob, settings: SegmentBuildingSettings, executor: Executor) -> None:
        self._job = job
        self._builder = SegmentBuilder(
            job.objects,
            job.remote_storage,
            settings,
            executor,
            progressed=job.progressed,
            producer_id_expiration_ms=job.producer_id_expiration_ms,
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
                    self._failures.append(defect(error, partition.name))

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._job.parallel_partitions, len(self._job.partitions))):
                workers.create_task(work())
        raise_failures(self._failures)

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
        try:
            built = await self._builder.build(segment, metadata, producers)
        except Exception:
            await self._job.abandon(metadata)
            raise
        return built.producers if await self._job.finish(metadata, built.custom_metadata) else None

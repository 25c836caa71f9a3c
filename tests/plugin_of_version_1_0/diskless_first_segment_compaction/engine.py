"""The engine `first_segment_compaction`: makes one segment after the other, each whole in memory.

Replace `_build` by what builds them elsewhere or in parallel. An engine that fails loses no data: what is finished
stays, and the next job does the rest. For streaming in bounded memory see `diskless_core.plugin.segment_building`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

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
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.protocol import record_batch
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.wal import batches

from diskless_first_segment_compaction.settings import FirstSegmentCompactionSettings

_FAILURES = (SegmentCompactionError, RemoteStorageError, WalObjectStoreError)


class FirstSegmentCompactionCompaction(SegmentCompaction):
    """One partition after the other. It may be cancelled at any time, and leaves nothing running."""

    def __init__(self, context: PluginContext, settings: FirstSegmentCompactionSettings) -> None:
        """A factory does no I/O."""
        del context
        self._max_segment_bytes = settings.max_segment_bytes

    async def compact(self, job: CompactionJob) -> None:
        failures = []
        for partition in job.partitions:
            try:
                await self._compact_partition(job, partition)
            except _FAILURES as error:  # ends this partition; the others go on
                failures.append(f"{partition.topic}-{partition.partition}: {error}")
        if failures:
            raise SegmentCompactionError("; ".join(failures))

    async def _compact_partition(self, job: CompactionJob, partition: TopicIdPartition) -> None:
        producers: ProducerState | None = None
        async with aclosing(job.segments(partition)) as segments:
            async for segment in segments:
                if segment.size_bytes > self._max_segment_bytes:
                    raise SegmentCompactionError(f"a segment of {segment.size_bytes} bytes does not fit into memory")
                if producers is None:
                    producers = await job.producers_before(segment)
                metadata = await job.begin(segment)
                try:
                    log = await self._read(job, segment)
                    # Parsing many batches takes long: on a thread, or the broker's event loop stands still.
                    data, producers = await asyncio.to_thread(_build, job, segment, log, producers)
                    custom_metadata = await job.remote_storage.copy(metadata, data)
                except _FAILURES:
                    await job.abandon(metadata)
                    raise
                job.progressed(segment.size_bytes)
                if not await job.finish(metadata, custom_metadata):
                    return  # the batches have gone, or another job was quicker: the rest of the plan is void

    async def _read(self, job: CompactionJob, segment: SegmentPlan) -> bytearray:
        log = bytearray()
        for run in segment.ranges:
            found = bytearray(await job.objects.get(run.object_key, run.byte_offset, run.byte_offset + run.byte_size))
            # Checks the batches against the plan, and gives them the offsets that they have in the topic.
            prepared = await asyncio.to_thread(batches.prepare, found, run)
            if prepared.problem:
                raise SegmentCompactionError(f"{run.object_key}: {prepared.problem}")
            log += found
        return log


def _build(
    job: CompactionJob, segment: SegmentPlan, log: bytearray, producers: ProducerState
) -> tuple[LogSegmentData, ProducerState]:
    """A segment's data with its indexes, and the producers as they are behind it. Pure."""
    indexer = SegmentIndexer(segment.start_offset, interval_bytes=segment.index_interval_bytes, producers=producers)
    for _, header in record_batch.walk(log):
        indexer.add(header)
    expiration_ms = job.producer_id_expiration_ms
    kept = producer_snapshot.without_expired(indexer.producers, segment.max_timestamp_ms, expiration_ms)
    built = indexer.finish()
    indexes = {
        IndexType.OFFSET: built.offset_index,
        IndexType.TIMESTAMP: built.time_index,
        IndexType.PRODUCER_SNAPSHOT: producer_snapshot.encode(kept.values()),
        IndexType.LEADER_EPOCH: leader_epochs.encode({0: 0}),
    }

    async def whole() -> AsyncIterator[bytes]:
        yield bytes(log)

    return LogSegmentData(log=whole, indexes=lambda: indexes), kept

"""The way of a batch with two tiers, in one process: `ProducePath`, and segments in a fake remote storage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from diskless_core.config.tiering import TieringConfig
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.fetch.part import SegmentReads
from diskless_core.log import leader_epochs, producer_snapshot
from diskless_core.log.segment_indexer import SegmentIndexer
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData
from diskless_core.protocol import record_batch
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
)
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.testing.fakes.remote_log_metadata import MemoryRemoteLogMetadata
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.tiering import chunks, index_cache
from diskless_core.tiering import segment_reader as segment_reader_module
from diskless_core.tiering.part import segment_reader
from diskless_core.tiering.segment_times import SegmentTimes
from diskless_core.tiering.topics import topic_id_partition
from tests.support.produce_path import ProducePath, key_of


class TieredPath(ProducePath):
    """Use it as an asynchronous context manager. `tier` moves records from WAL objects to a segment."""

    def __init__(
        self,
        *,
        chunk_cache_bytes: int = 1 << 20,
        index_cache_bytes: int = 1 << 20,
        at_once: int = 10,
        max_waiting: int = 100,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.storage = MemoryRemoteStorage()
        self.metadata = MemoryRemoteLogMetadata()
        limits = {
            "diskless_segment_cache_max_bytes": chunk_cache_bytes,
            "remote_log_index_file_cache_total_size_bytes": index_cache_bytes,
            "remote_log_reader_threads": at_once,
            "remote_log_reader_max_pending_tasks": max_waiting,
        }
        settings = TieringConfig().model_copy(update=limits)  # not checked: some are smaller than a broker may have
        self.segments = segment_reader(settings, self.storage, self.metadata, self.metrics)
        self.reads = self.segments._reads
        self.is_tiered = False

    async def __aenter__(self) -> TieredPath:
        await super().__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.segments.stop()
        await super().__aexit__(*exception)

    def replica_of(self, key: PartitionKey) -> DisklessShard | None:
        return self.node.shard if self.node.shard.head(key) is not None else None

    def segment_reads(self) -> SegmentReads:
        times = SegmentTimes(self.segments)
        return SegmentReads(reader=self.segments, times=times, is_tiered=lambda _: self.is_tiered)

    async def tier(
        self,
        partition: int = 0,
        through: int | None = None,
        *,
        interval_bytes: int = 4096,
        leader_epoch: int = 0,
    ) -> RemoteLogSegmentMetadata:
        """Move the batches from where WAL objects begin to the one with the offset `through`, or all, to a segment."""
        metadata = await self.copied(partition, through, interval_bytes=interval_bytes, leader_epoch=leader_epoch)
        await self.take(metadata)
        return metadata

    async def copied(
        self,
        partition: int = 0,
        through: int | None = None,
        *,
        interval_bytes: int = 4096,
        leader_epoch: int = 0,
    ) -> RemoteLogSegmentMetadata:
        """The complete copy that `tier` makes; no coordinator has taken it yet."""
        head = self.node.shard.head(key_of(partition))
        assert head is not None
        begin = head.local_start_offset
        data = await self.batches_from(partition, begin, head.next_offset - 1 if through is None else through)
        # The log start may lie within the first batch, which is copied whole.
        indexer = SegmentIndexer(min(begin, record_batch.read_header(data).base_offset), interval_bytes=interval_bytes)
        for position, header in record_batch.walk(data):
            record_batch.patch_base_offset(data, position, header.base_offset, leader_epoch)
            indexer.add(header)
        return await self.copy(partition, bytes(data), indexer, leader_epoch=leader_epoch)

    async def take(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Let the coordinator forget the batches that a copy has."""
        segment = TieredSegment(
            metadata.segment_id.id.bytes,
            metadata.start_offset,
            metadata.end_offset,
            metadata.segment_size_bytes,
            metadata.max_timestamp_ms,
        )
        key = key_of(metadata.segment_id.topic_id_partition.partition)
        head = self.node.shard.head(key)
        assert head is not None
        assert await self.node.shard.tier(key, segment, expected=head.local_start_offset)

    async def batches_from(self, partition: int, begin: int, through: int) -> bytearray:
        """The batches of WAL objects as consumers get them, up to the one that contains `through`."""
        data, key = bytearray(), key_of(partition)
        while begin <= through and (runs := await self.node.shard.runs_from(key, begin)):
            for run, read in zip(runs, await self.reader.read(runs), strict=True):
                assert read.failure is None
                for position, header in record_batch.walk(read.data):
                    if begin <= header.last_offset and header.base_offset <= through:
                        data += read.data[position : position + header.size]
                begin = run.last_offset + 1
        return data

    async def copy(
        self,
        partition: int,
        data: bytes,
        indexer: SegmentIndexer,
        *,
        leader_epoch: int = 0,
        end_offset: int | None = None,
    ) -> RemoteLogSegmentMetadata:
        """A complete copy of these batches, as compaction makes it.

        Args:
            end_offset: where it ends, if that is behind the last record: offsets that no record has belong to it too.
        """
        place = topic_id_partition(self.node.shard, key_of(partition))
        assert place is not None
        indexes = indexer.finish()
        metadata = RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(place, self.clock.new_uuid()),
            start_offset=indexer.base_offset,
            end_offset=indexes.end_offset if end_offset is None else end_offset,
            max_timestamp_ms=indexes.max_timestamp,
            broker_id=1,
            event_timestamp_ms=self.clock.now_ms(),
            segment_size_bytes=len(data),
            segment_leader_epochs={leader_epoch: indexer.base_offset},
        )

        async def log() -> AsyncIterator[bytes]:
            yield data

        await self.metadata.add(metadata)
        files = {
            IndexType.OFFSET: indexes.offset_index,
            IndexType.TIMESTAMP: indexes.time_index,
            IndexType.PRODUCER_SNAPSHOT: producer_snapshot.encode(indexer.producers.values()),
            IndexType.LEADER_EPOCH: leader_epochs.encode({leader_epoch: indexer.base_offset}),
        }
        await self.storage.copy(metadata, LogSegmentData(log=log, indexes=lambda: files))
        await self.note(metadata, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        return metadata

    async def note(self, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> None:
        """Let a copy come into another state."""
        await self.metadata.update(
            RemoteLogSegmentMetadataUpdate(
                segment_id=metadata.segment_id, event_timestamp_ms=self.clock.now_ms(), state=state, broker_id=1
            )
        )


@contextmanager
def small_chunks(chunk_bytes: int) -> Iterator[None]:
    """Chunks so small that a few batches make several."""
    with (
        patch.object(chunks, "CHUNK_BYTES", chunk_bytes),
        patch.object(index_cache, "PART_BYTES", chunk_bytes),
        patch.object(segment_reader_module, "MAX_CHUNK_BYTES", 1 << 20),
    ):
        yield

"""Reads records of segments in remote storage: indexes and chunks through caches of their own, never the hot path's."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, TypeVar

import structlog

from diskless_core.coordinator.client import DisklessShard
from diskless_core.coordinator.commands import PartitionKey
from diskless_core.coordinator.tiered import from_offset
from diskless_core.log import offset_index
from diskless_core.log.offset_index import CorruptIndexError
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataError
from diskless_core.plugin.remote_storage import RemoteResourceNotFoundError, RemoteStorageError
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import BatchHeader, CorruptBatchError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.tiering.chunks import (
    LEADER_EPOCH,
    MAX_CHUNK_BYTES,
    SLICE_BATCHES,
    Chunk,
    ChunkRange,
    check,
    range_around,
)
from diskless_core.tiering.index_cache import IndexCache, LoadedIndex
from diskless_core.tiering.loading_cache import LoadingCache
from diskless_core.tiering.partitions import topic_id_partition
from diskless_core.tiering.remote_reads import ReaderBusyError, RemoteReads

REMEMBERED_SEGMENTS = 10_000
REMEMBERED_READERS = 10_000

SegmentReadError = RemoteStorageError | RemoteLogMetadataError | CorruptBatchError
"""Why records of a segment cannot be read. RemoteResourceNotFoundError: the segment is not there (any more)."""

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class SegmentRead(NamedTuple):
    """What was read.

    Attributes:
        data: whole batches from the one that contains the offset, or the next one, on. It must not be written to.
        next_offset: the offset behind them. Without data, the first offset that is in no segment.
    """

    data: memoryview
    next_offset: int


class SegmentReader:
    """All reads of segments for Fetch and ListOffsets.

    Args:
        max_bytes: memory for chunks.
    """

    def __init__(self, metadata: RemoteLogMetadata, reads: RemoteReads, indexes: IndexCache, max_bytes: int) -> None:
        self.indexes = indexes
        self._metadata = metadata
        self._reads = reads
        self._chunks: LoadingCache[tuple[uuid.UUID, ChunkRange], Chunk] = LoadingCache(
            max_bytes, lambda chunk: chunk.size_bytes
        )
        self._segments: OrderedDict[bytes, RemoteLogSegmentMetadata] = OrderedDict()
        self._expected: OrderedDict[tuple[PartitionKey, int], None] = OrderedDict()
        self._ahead: set[asyncio.Task[None]] = set()

    async def read(self, shard: DisklessShard, partition: PartitionKey, offset: int, max_bytes: int) -> SegmentRead:
        """Batches from `offset` on: at most `max_bytes`, at least one, not more than one chunk has.

        A segment that vanishes meanwhile is looked up anew once.

        Raises:
            RemoteStorageError, RemoteLogMetadataError, CorruptBatchError: they cannot be read.
            ReaderBusyError: too many reads wait already.
        """
        is_sequential = self._expected.pop((partition, offset), self) is None
        found = await self.anew_if_vanished(lambda: self._read(shard, partition, offset))
        if found is None:
            head = shard.head(partition)
            return SegmentRead(memoryview(b""), offset if head is None else max(offset, head.local_start_offset))
        read = SegmentRead(*found.cut(offset, max_bytes))
        self._expect(partition, read.next_offset)
        if is_sequential:
            self._begin_ahead(shard, partition, found)
        return read

    async def _read(self, shard: DisklessShard, partition: PartitionKey, offset: int) -> Chunk | None:
        """The chunk that has `offset`, or else what comes next; None where no segment has."""
        for tiered in from_offset(shard.tiered(partition), offset):
            segment = await self.segment(shard, partition, tiered.segment_id, tiered.start_offset)
            chunk = await self._chunk_with(segment, offset)
            if chunk is not None:
                return chunk
        return None

    async def anew_if_vanished(self, look_up: Callable[[], Awaitable[T]]) -> T:
        """What is found; if a segment vanishes meanwhile, what is found anew, without all that was known of segments.

        Raises:
            RemoteResourceNotFoundError: a segment is missing.
        """
        try:
            return await look_up()
        except RemoteResourceNotFoundError:
            self._segments.clear()
            return await look_up()

    async def segment(
        self, shard: DisklessShard, partition: PartitionKey, segment_id: bytes, start_offset: int
    ) -> RemoteLogSegmentMetadata:
        """What is known of a segment that the coordinator has for a partition.

        Raises:
            RemoteResourceNotFoundError: nothing is known of it on this node.
            RemoteLogMetadataError: it cannot be looked up.
        """
        known = self._segments.get(segment_id)
        if known is not None:
            self._segments.move_to_end(segment_id)
            return known
        place = topic_id_partition(shard, partition)
        if place is None:
            raise RemoteResourceNotFoundError("the partition is gone")
        found = await self._metadata.find(place, LEADER_EPOCH, start_offset)
        if found is None or found.segment_id.id.bytes != segment_id:
            copies = await self._metadata.list(place)
            found = next((copy for copy in copies if copy.segment_id.id.bytes == segment_id), None)
        if found is None:
            raise RemoteResourceNotFoundError(
                f"nothing is known of the segment {uuid.UUID(bytes=segment_id)} of {place.topic}-{place.partition}"
            )
        self._segments[segment_id] = found
        if len(self._segments) > REMEMBERED_SEGMENTS:
            self._segments.popitem(last=False)
        return found

    async def batches(
        self, segment: RemoteLogSegmentMetadata, offset: int
    ) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        """All batches of a segment from the one that contains `offset`, or the next one, on; errors as `read`."""
        while (chunk := await self._chunk_with(segment, offset)) is not None:
            batches = record_batch.walk(chunk.data, chunk.position_of(offset) or 0, chunk.ends[-1])
            for count, (position, header) in enumerate(batches, start=1):
                yield header, chunk.data[position : position + header.size]
                if count % SLICE_BATCHES == 0:
                    await asyncio.sleep(0)
            offset = chunk.last_offset + 1

    async def stop(self) -> None:
        """End what is under way."""
        for task in self._ahead:
            task.cancel()
        await asyncio.gather(*self._ahead, return_exceptions=True)
        await self._chunks.stop()
        await self.indexes.stop()

    # --- chunks --------------------------------------------------------------------------------------------------

    async def _chunk_with(self, segment: RemoteLogSegmentMetadata, offset: int) -> Chunk | None:
        """The chunk with the batch that contains `offset`, or the next one; None where the segment has none such."""
        index = await self.indexes.offsets(segment)
        try:
            return await self._search(segment, index, offset)
        except CorruptIndexError as error:
            if index.is_rebuilt:
                raise CorruptBatchError(f"the segment {segment.segment_id.id} is damaged: {error}") from error
        return await self._search(segment, await self.indexes.rebuilt_offsets(segment), offset)

    async def _search(self, segment: RemoteLogSegmentMetadata, index: LoadedIndex, offset: int) -> Chunk | None:
        position = offset_index.lookup(index.data, segment.start_offset, offset).position
        while position < segment.segment_size_bytes:
            chunk = await self._chunk(segment, index, position)
            if chunk.last_offset >= offset:
                return chunk
            if chunk.failure is not None:
                raise chunk.failure
            position = chunk.end
        return None

    async def _chunk(self, segment: RemoteLogSegmentMetadata, index: LoadedIndex, position: int) -> Chunk:
        wanted = range_around(index.data, segment.start_offset, segment.segment_size_bytes, position)
        if wanted.end - wanted.start > MAX_CHUNK_BYTES and not index.is_rebuilt:
            raise CorruptIndexError(f"the offset index has no entry for {wanted.end - wanted.start} bytes")

        async def load() -> Chunk:
            return await self._load(segment, wanted, index_is_rebuilt=index.is_rebuilt)

        key = (segment.segment_id.id, wanted)
        chunk = await self._chunks.get(key, load)
        if chunk.failure is not None:
            self._chunks.discard(key)  # the next one to ask may be luckier
        return chunk

    async def _load(self, segment: RemoteLogSegmentMetadata, wanted: ChunkRange, *, index_is_rebuilt: bool) -> Chunk:
        data = await self._reads.fetch(segment, wanted.start, wanted.end)
        chunk = Chunk(wanted.start, memoryview(data))
        for _ in check(chunk, wanted, segment.start_offset, segment.end_offset, index_is_rebuilt=index_is_rebuilt):
            await asyncio.sleep(0)
        return chunk

    # --- reading ahead -------------------------------------------------------------------------------------------

    def _expect(self, partition: PartitionKey, offset: int) -> None:
        self._expected[partition, offset] = None
        self._expected.move_to_end((partition, offset))
        if len(self._expected) > REMEMBERED_READERS:
            self._expected.popitem(last=False)

    def _begin_ahead(self, shard: DisklessShard, partition: PartitionKey, chunk: Chunk) -> None:
        """Load the chunk behind one that is read from beginning to end, if nobody else waits for remote storage."""
        if chunk.failure is None and self._reads.is_idle and len(self._ahead) < self._reads.at_once:
            task = asyncio.create_task(self._load_behind(shard, partition, chunk.last_offset + 1), name="read ahead")
            self._ahead.add(task)
            task.add_done_callback(self._ahead.discard)

    async def _load_behind(self, shard: DisklessShard, partition: PartitionKey, offset: int) -> None:
        try:
            await self._read(shard, partition, offset)
        except (RemoteStorageError, RemoteLogMetadataError, CorruptBatchError, ReaderBusyError) as error:
            _log.debug("not read ahead", error=str(error))  # whoever wants it will be told

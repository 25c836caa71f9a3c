"""Reads records of segments in remote storage: indexes and chunks through caches of their own, never the hot path's."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import NamedTuple, TypeVar

import structlog

from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.loading_cache import LoadingCache
from diskless_core.log import offset_index
from diskless_core.log.offset_index import CorruptIndexError
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataError
from diskless_core.plugin.remote_storage import RemoteResourceNotFoundError, RemoteStorageError
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import BatchHeader, CorruptBatchError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from diskless_core.remote_log.tiered import from_offset
from diskless_core.tiering.chunks import (
    LEADER_EPOCH,
    MAX_CHUNK_BYTES,
    SLICE_BATCHES,
    Chunk,
    ChunkRange,
    check,
    range_around,
    worth_loading,
)
from diskless_core.tiering.index_cache import IndexCache, LoadedIndex
from diskless_core.tiering.remote_reads import ReaderBusyError, RemoteReads
from diskless_core.tiering.topics import topic_id_partition

REMEMBERED = 10_000
"""So many segments, so many readers and so many beginnings of chunks are known, the latest ones."""

SegmentReadError = RemoteStorageError | RemoteLogMetadataError | CorruptBatchError
"""Why records of a segment cannot be read. RemoteResourceNotFoundError: the segment is not there (any more)."""

K = TypeVar("K")
T = TypeVar("T")

_log = structlog.get_logger(__name__)


class SegmentRead(NamedTuple):
    """What was read.

    Attributes:
        data: whole batches from the one that contains the offset, or the next one, on. It must not be written to.
        next_offset: the offset behind them. Without data, the first one that is behind all segments that there are.
    """

    data: memoryview
    next_offset: int


class _Found(NamedTuple):
    segment: RemoteLogSegmentMetadata
    chunk: Chunk


class SegmentReader:
    """All reads of segments for Fetch and ListOffsets.

    Args:
        max_bytes: memory for chunks.
    """

    def __init__(self, metadata: RemoteLogMetadata, reads: RemoteReads, indexes: IndexCache, max_bytes: int) -> None:
        self.indexes = indexes
        self._metadata = metadata
        self._reads = reads
        self._max_bytes = max_bytes
        self._chunks: LoadingCache[tuple[uuid.UUID, ChunkRange], Chunk] = LoadingCache(
            max_bytes, lambda chunk: chunk.size_bytes
        )
        self._segments: OrderedDict[bytes, RemoteLogSegmentMetadata] = OrderedDict()
        self._reads_begun = 0
        self._expected: OrderedDict[tuple[PartitionKey, int], int] = OrderedDict()
        self._beginnings: OrderedDict[tuple[uuid.UUID, int], int] = OrderedDict()
        self._ahead: dict[tuple[uuid.UUID, int], asyncio.Task[None]] = {}

    async def read(self, shard: DisklessShard, partition: PartitionKey, offset: int, max_bytes: int) -> SegmentRead:
        """Batches from `offset` on: at most `max_bytes`, at least one, not more than one chunk has.

        A segment that vanishes meanwhile is looked up anew once.

        Raises:
            RemoteStorageError, RemoteLogMetadataError, CorruptBatchError: they cannot be read.
            ReaderBusyError: too many reads wait already.
        """
        self._reads_begun += 1
        expected_since = self._expected.pop((partition, offset), None)
        found = await self.anew_if_vanished(lambda: self._find(shard, partition, offset))
        if isinstance(found, int):
            return SegmentRead(memoryview(b""), found)
        read = SegmentRead(*found.chunk.cut(offset, max_bytes))
        _remember(self._expected, (partition, read.next_offset), self._reads_begun)
        if expected_since is not None:
            self._begin_ahead(shard, partition, found, self._reads_begun - expected_since)
        return read

    async def _find(self, shard: DisklessShard, partition: PartitionKey, offset: int) -> _Found | int:
        """The chunk that has `offset`, or else what comes next; the offset behind all segments where none has."""
        while tiered_log := from_offset(shard.tiered(partition), offset):
            for tiered in tiered_log:
                segment = await self.segment(shard, partition, tiered.segment_id, tiered.start_offset)
                chunk = await self._chunk_with(segment, offset)
                if chunk is not None:
                    return _Found(segment, chunk)
            offset = tiered_log[-1].end_offset + 1  # there may be more of them by now
        return offset

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
            RemoteResourceNotFoundError: nothing is known of it on this node, or not yet that its copy is complete.
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
            copies = (copy for copy in await self._metadata.list(place) if copy.segment_id.id.bytes == segment_id)
            found = next((copy for copy in copies if copy.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED), None)
        if found is None:
            raise RemoteResourceNotFoundError(
                f"nothing is known of the segment {uuid.UUID(bytes=segment_id)} of {place.name}, "
                "or not that it is complete"
            )
        _remember(self._segments, segment_id, found)
        return found

    async def batches(
        self, segment: RemoteLogSegmentMetadata, offset: int
    ) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        """All batches of a segment from the one that contains `offset`, or the next one, on; errors as `read`.

        What lies behind a damaged one is not told: it would pass for all that there is.
        """
        while (chunk := await self._chunk_with(segment, offset)) is not None:
            batches = record_batch.walk(chunk.data, chunk.position_of(offset) or 0, chunk.ends[-1])
            for count, (position, header) in enumerate(batches, start=1):
                if position in chunk.damaged:
                    raise chunk.damaged[position]
                yield header, chunk.data[position : position + header.size]
                if count % SLICE_BATCHES == 0:
                    await asyncio.sleep(0)
            offset = chunk.last_offset + 1

    async def stop(self) -> None:
        """End what is under way."""
        ahead = list(self._ahead.values())
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)
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
        # By the index alone it could be in the chunk before, which would be loaded to find that it is not.
        known = self._beginnings.get((segment.segment_id.id, offset))
        position = offset_index.lookup(index.data, segment.start_offset, offset).position if known is None else known
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
        if not chunk.is_sound:
            self._chunks.discard(key)  # the next one to ask may be luckier
        return chunk

    async def _load(self, segment: RemoteLogSegmentMetadata, wanted: ChunkRange, *, index_is_rebuilt: bool) -> Chunk:
        data = await self._reads.fetch(segment, wanted.start, wanted.end)
        chunk = Chunk(wanted.start, memoryview(data))
        for _ in check(chunk, wanted, segment.start_offset, segment.end_offset, index_is_rebuilt=index_is_rebuilt):
            await asyncio.sleep(0)
        if chunk.failure is None:
            _remember(self._beginnings, (segment.segment_id.id, chunk.last_offset + 1), chunk.end)
        return chunk

    # --- reading ahead -------------------------------------------------------------------------------------------

    def _begin_ahead(self, shard: DisklessShard, partition: PartitionKey, found: _Found, reads_between: int) -> None:
        """Load what comes behind a chunk that is read from beginning to end, if remote storage is idle."""
        segment, chunk = found
        if chunk.failure is not None:
            return
        at_once = self._reads.at_once
        positions = worth_loading(chunk, reads_between, at_once=at_once, cache_bytes=self._max_bytes)
        for number, position in positions.items():
            key = (segment.segment_id.id, number)
            if key not in self._ahead and len(self._ahead) < at_once and self._reads.is_idle:
                load = self._load_ahead(shard, partition, segment, position)
                self._ahead[key] = asyncio.create_task(load, name="read ahead")
                self._ahead[key].add_done_callback(partial(self._end_ahead, key))

    def _end_ahead(self, key: tuple[uuid.UUID, int], _: asyncio.Task[None]) -> None:
        del self._ahead[key]

    async def _load_ahead(
        self, shard: DisklessShard, partition: PartitionKey, segment: RemoteLogSegmentMetadata, position: int
    ) -> None:
        try:
            if position < segment.segment_size_bytes:
                await self._chunk(segment, await self.indexes.offsets(segment), position)
            else:
                await self._find(shard, partition, segment.end_offset + 1)
        except (
            RemoteStorageError,
            RemoteLogMetadataError,
            CorruptBatchError,
            CorruptIndexError,
            ReaderBusyError,
        ) as error:
            _log.debug("not read ahead", error=str(error))  # whoever wants it will be told


def _remember(known: OrderedDict[K, T], key: K, value: T) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > REMEMBERED:
        known.popitem(last=False)

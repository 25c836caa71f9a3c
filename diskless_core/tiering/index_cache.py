"""Offset and time indexes of segments in memory, bounded in bytes; one that is missing or damaged is built again.

(KIP-405, `remote.log.index.file.cache.total.size.bytes`.)
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import NamedTuple

import structlog

from diskless_core.loading_cache import LoadingCache
from diskless_core.log import offset_index, time_index
from diskless_core.log.offset_index import CorruptIndexError
from diskless_core.log.segment_indexer import SegmentIndexer, SegmentIndexes
from diskless_core.plugin.remote_storage import IndexType, RemoteResourceNotFoundError
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import CorruptBatchError, TornBatchError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.tiering.chunks import SLICE_BATCHES
from diskless_core.tiering.remote_reads import RemoteReads

PART_BYTES = 4 << 20
"""As much of a log is in memory while its indexes are built."""

_log = structlog.get_logger(__name__)


class LoadedIndex(NamedTuple):
    """An index. One that `is_rebuilt` says what the segment's log says, up to where that is damaged."""

    data: ObjectData
    is_rebuilt: bool = False


class IndexCache:
    """All indexes of segments that a broker reads."""

    def __init__(self, reads: RemoteReads, max_bytes: int) -> None:
        self._reads = reads
        self._indexes: LoadingCache[tuple[uuid.UUID, IndexType], LoadedIndex] = LoadingCache(
            max_bytes, lambda index: len(index.data)
        )
        self._rebuilds: LoadingCache[uuid.UUID, SegmentIndexes] = LoadingCache(0, lambda _: 1)

    @property
    def size_bytes(self) -> int:
        return self._indexes.size_bytes

    async def offsets(self, segment: RemoteLogSegmentMetadata) -> LoadedIndex:
        """The offset index.

        Raises:
            RemoteStorageError, ReaderBusyError: it cannot be read; RemoteResourceNotFoundError: the segment is gone.
        """
        return await self._get(segment, IndexType.OFFSET, _require_offsets)

    async def times(self, segment: RemoteLogSegmentMetadata) -> LoadedIndex:
        """The time index; errors as `offsets`."""
        return await self._get(segment, IndexType.TIMESTAMP, _require_times)

    async def rebuilt_offsets(self, segment: RemoteLogSegmentMetadata) -> LoadedIndex:
        """The offset index, built again from the log if that has not been done yet; errors as `offsets`."""
        known = self._indexes.peek((segment.segment_id.id, IndexType.OFFSET))
        if known is not None and known.is_rebuilt:
            return known
        return await self._rebuild(segment, IndexType.OFFSET, "the offset index does not fit the segment")

    async def stop(self) -> None:
        """End what is under way."""
        await self._indexes.stop()
        await self._rebuilds.stop()

    async def _get(
        self,
        segment: RemoteLogSegmentMetadata,
        index: IndexType,
        check: Callable[[ObjectData, RemoteLogSegmentMetadata], None],
    ) -> LoadedIndex:
        async def load() -> LoadedIndex:
            try:
                data = await self._reads.fetch_index(segment, index)
                check(data, segment)
            except (CorruptIndexError, RemoteResourceNotFoundError) as error:
                return await self._rebuild(segment, index, str(error))
            return LoadedIndex(data)

        return await self._indexes.get((segment.segment_id.id, index), load)

    async def _rebuild(self, segment: RemoteLogSegmentMetadata, index: IndexType, reason: str) -> LoadedIndex:
        segment_id = segment.segment_id.id

        async def build() -> SegmentIndexes:
            return await self._build(segment, reason)

        built = await self._rebuilds.get(segment_id, build)
        self._rebuilds.discard(segment_id)
        indexes = {
            IndexType.OFFSET: LoadedIndex(built.offset_index, is_rebuilt=True),
            IndexType.TIMESTAMP: LoadedIndex(built.time_index, is_rebuilt=True),
        }
        for kind, rebuilt in indexes.items():
            self._indexes.put((segment_id, kind), rebuilt)
        return indexes[index]

    async def _build(self, segment: RemoteLogSegmentMetadata, reason: str) -> SegmentIndexes:
        topic_id_partition = segment.segment_id.topic_id_partition
        log = _log.bind(
            segment=str(segment.segment_id.id),
            topic=topic_id_partition.topic,
            partition=topic_id_partition.partition,
            start_offset=segment.start_offset,
        )
        log.warning("the indexes of a segment are built again from its log", reason=reason)
        indexer = SegmentIndexer(segment.start_offset)
        rest = b""
        try:
            for start in range(0, segment.segment_size_bytes, PART_BYTES):
                end = min(start + PART_BYTES, segment.segment_size_bytes)
                data = rest + bytes(await self._reads.fetch(segment, start, end))
                rest = data[await _index(indexer, data) :]
        except (CorruptBatchError, ValueError) as error:
            log.error("the log of a segment is damaged", position=indexer.size_bytes, error=str(error))
        return indexer.finish()


async def _index(indexer: SegmentIndexer, data: bytes) -> int:
    """Note the whole batches of some bytes of a log; the position behind the last one."""
    end = in_slice = 0
    try:
        for position, header in record_batch.walk(data):
            indexer.add(header)
            end = position + header.size
            in_slice += 1
            if in_slice == SLICE_BATCHES:
                in_slice = 0
                await asyncio.sleep(0)
    except TornBatchError:
        pass  # its end comes with the bytes that follow
    return end


def _require_offsets(data: ObjectData, segment: RemoteLogSegmentMetadata) -> None:
    entries = offset_index.entries(data[-offset_index.ENTRY_BYTES :], segment.start_offset)
    if len(data) % offset_index.ENTRY_BYTES or not all(
        entry.offset <= segment.end_offset and 0 <= entry.position < segment.segment_size_bytes for entry in entries
    ):
        raise CorruptIndexError(f"an offset index of {len(data)} bytes is none of this segment")


def _require_times(data: ObjectData, segment: RemoteLogSegmentMetadata) -> None:
    entries = time_index.entries(data[-time_index.ENTRY_BYTES :], segment.start_offset)
    if len(data) % time_index.ENTRY_BYTES or not all(
        segment.start_offset <= entry.offset <= segment.end_offset and entry.timestamp <= segment.max_timestamp_ms
        for entry in entries
    ):
        raise CorruptIndexError(f"a time index of {len(data)} bytes is none of this segment")

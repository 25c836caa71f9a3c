"""Looks up records of segments by time: time index, then offset index, then batches.

(KIP-405, "ListOffsets".)
"""

from __future__ import annotations

from diskless_core.diskless.commands import ListedOffset, PartitionKey
from diskless_core.diskless.record_lookups import RecordLookups
from diskless_core.diskless.shard import DisklessShard
from diskless_core.log import time_index
from diskless_core.protocol import record_stream
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.remote_log.tiered import TieredSegment, from_offset
from diskless_core.tiering.segment_reader import SegmentReader

_NONE = ListedOffset()


class SegmentTimes:
    """Lookups in the segments of partitions. All raise what `SegmentReader.read` raises."""

    def __init__(self, reader: SegmentReader) -> None:
        self._reader = reader
        self._lookups = RecordLookups()

    async def first_at_or_after(
        self, shard: DisklessShard, partition: PartitionKey, timestamp: int, offset: int
    ) -> ListedOffset:
        """The first record of `timestamp`, in milliseconds, or later, of those at `offset` or behind."""

        async def look_up() -> ListedOffset:
            for tiered in from_offset(shard.tiered(partition), offset):
                if tiered.max_timestamp >= timestamp:
                    found = await self._first_in(await self._segment(shard, partition, tiered), timestamp, offset)
                    if found != _NONE:
                        return found
            return _NONE

        return await self._reader.anew_if_vanished(look_up)

    async def latest(
        self, shard: DisklessShard, partition: PartitionKey, offset: int, than: ListedOffset
    ) -> ListedOffset:
        """The latest record of those at `offset` or behind, the first of several; or `than`, if that is later."""

        async def look_up() -> ListedOffset:
            best = than
            segments = from_offset(shard.tiered(partition), offset)
            for tiered in sorted(segments, key=lambda segment: (-segment.max_timestamp, segment.start_offset)):
                if tiered.max_timestamp < max(best.timestamp, 0):
                    break
                if tiered.max_timestamp > best.timestamp or tiered.start_offset < best.offset:
                    found = await self._latest_in(await self._segment(shard, partition, tiered), offset)
                    best = max(best, found, key=lambda listed: (listed.timestamp, -listed.offset))
            return best

        return await self._reader.anew_if_vanished(look_up)

    async def _segment(
        self, shard: DisklessShard, partition: PartitionKey, tiered: TieredSegment
    ) -> RemoteLogSegmentMetadata:
        return await self._reader.segment(shard, partition, tiered.segment_id, tiered.start_offset)

    async def _first_in(self, segment: RemoteLogSegmentMetadata, timestamp: int, offset: int) -> ListedOffset:
        times = (await self._reader.indexes.times(segment)).data
        begin = time_index.lookup(times, segment.start_offset, timestamp).offset
        async for header, batch in self._reader.batches(segment, max(begin, offset)):
            if header.max_timestamp >= timestamp:
                found = await self._lookups.result(record_stream.first_at_or_after(batch, timestamp, offset))
                if found is not None:
                    return ListedOffset(offset=found.offset, timestamp=found.timestamp)
        return _NONE

    async def _latest_in(self, segment: RemoteLogSegmentMetadata, offset: int) -> ListedOffset:
        times = (await self._reader.indexes.times(segment)).data
        greatest = time_index.lookup(times, segment.start_offset, segment.max_timestamp_ms)
        begin = greatest.offset if greatest.timestamp == segment.max_timestamp_ms else segment.start_offset
        best = _NONE
        async for header, batch in self._reader.batches(segment, max(begin, offset)):
            if header.max_timestamp > best.timestamp:
                found = await self._lookups.result(record_stream.latest(batch, offset))
                if found.timestamp > best.timestamp:
                    best = ListedOffset(offset=found.offset, timestamp=found.timestamp)
            if best.timestamp == segment.max_timestamp_ms:
                break
        return best

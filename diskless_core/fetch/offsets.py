"""Answers ListOffsets: the special offsets from the coordinator, and the first record at or after a timestamp.

(KIP-1164, DisklessListOffsets; Apache Kafka's ListOffsetsRequest for the special timestamps.)
"""

from __future__ import annotations

from collections.abc import Callable

from diskless_core.diskless.commands import ListedOffset, PartitionKey, SpecialTimestamp
from diskless_core.diskless.record_lookups import RecordLookups
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import PartitionHead
from diskless_core.fetch.object_reader import ObjectReader, ReadRun
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.plugin.remote_storage import RemoteStorageError
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.protocol import record_batch, record_stream
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import CorruptBatchError, UnsupportedCompressionError
from diskless_core.tiering.remote_reads import ReaderBusyError
from diskless_core.tiering.segment_times import SegmentTimes
from diskless_core.wal.runs import Run


def _never(_: PartitionKey) -> bool:
    return False


class OffsetLookup:
    """ListOffsets for partitions whose coordinator is known. The caller has passed the coordinator's barrier.

    Args:
        segments: looks into segments.
        tiers: whether a partition's topic has remote.storage.enable=true.
    """

    def __init__(
        self,
        reader: ObjectReader,
        segments: SegmentTimes | None = None,
        tiers: Callable[[PartitionKey], bool] = _never,
    ) -> None:
        self._reader = reader
        self._segments = segments
        self._tiers = tiers
        self._lookups = RecordLookups()

    async def list(self, shard: DisklessShard, partition: PartitionKey, timestamp: int) -> ListedOffset:
        """The offset for a timestamp in milliseconds, or for one of `SpecialTimestamp`."""
        while (head := shard.head(partition)) is not None:
            listed = await self._list(shard, partition, head, timestamp)
            now = shard.head(partition)
            if now is None or now.local_start_offset == head.local_start_offset:
                return listed
            # Records went into a segment, perhaps after segments were asked and before WAL objects were.
        return ListedOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _list(
        self, shard: DisklessShard, partition: PartitionKey, head: PartitionHead, timestamp: int
    ) -> ListedOffset:
        has_segments = head.log_start_offset < head.local_start_offset
        match timestamp:
            case SpecialTimestamp.LATEST:
                return ListedOffset(offset=head.next_offset)
            case SpecialTimestamp.EARLIEST:
                return ListedOffset(offset=head.log_start_offset)
            case SpecialTimestamp.EARLIEST_LOCAL:
                return ListedOffset(offset=head.local_start_offset)
            case SpecialTimestamp.LATEST_TIERED:  # KIP-1005
                return ListedOffset(offset=head.local_start_offset - 1) if has_segments else ListedOffset()
            case SpecialTimestamp.EARLIEST_PENDING_UPLOAD:  # KIP-1023
                is_tiered = has_segments or self._tiers(partition)
                return ListedOffset(offset=head.local_start_offset) if is_tiered else ListedOffset()
        try:
            if timestamp == SpecialTimestamp.MAX_TIMESTAMP:
                return await self._of_max_timestamp(shard, partition, head)
            return await self._at_or_after(shard, partition, head, timestamp)
        except (WalObjectStoreError, RemoteStorageError, RemoteLogMetadataError, ReaderBusyError):
            return ListedOffset(ErrorCode.KAFKA_STORAGE_ERROR)
        except (CorruptBatchError, UnsupportedCompressionError):
            return ListedOffset(ErrorCode.CORRUPT_MESSAGE)

    async def _at_or_after(
        self, shard: DisklessShard, partition: PartitionKey, head: PartitionHead, timestamp: int
    ) -> ListedOffset:
        if timestamp > head.max_timestamp:
            return ListedOffset()
        if head.log_start_offset < head.local_start_offset:
            tiered = await self._times().first_at_or_after(shard, partition, timestamp, head.log_start_offset)
            if tiered != ListedOffset():
                return tiered
        offset = head.local_start_offset
        while (run := await shard.first_run_at_or_after(partition, timestamp, offset)) is not None:
            found = await self._first_of(run, timestamp, head.local_start_offset)
            if found is not None:
                return found
            offset = run.last_offset + 1
        return ListedOffset()

    def _times(self) -> SegmentTimes:
        if self._segments is None:
            raise RemoteStorageError("there is no remote storage")
        return self._segments

    async def _first_of(self, run: Run, timestamp: int, from_offset: int) -> ListedOffset | None:
        """The first of a run's records at or after a timestamp, of those at `from_offset` or later."""
        read = await self._read(run)
        for position, header in record_batch.walk(read.data):
            if header.max_timestamp < timestamp or header.last_offset < from_offset:
                continue
            batch = read.data[position : position + header.size]
            found = await self._lookups.result(record_stream.first_at_or_after(batch, timestamp, from_offset))
            if found is not None:
                return ListedOffset(offset=found.offset, timestamp=found.timestamp)
        if read.failure is not None:
            raise read.failure
        return None

    async def _of_max_timestamp(
        self, shard: DisklessShard, partition: PartitionKey, head: PartitionHead
    ) -> ListedOffset:
        best = ListedOffset()
        for run in await shard.latest_runs(partition):
            if run.max_timestamp > best.timestamp:
                best = max(
                    best, await self._latest_of(run, head.local_start_offset), key=lambda listed: listed.timestamp
                )
        if head.log_start_offset < head.local_start_offset:
            return await self._times().latest(shard, partition, head.log_start_offset, best)
        return best

    async def _latest_of(self, run: Run, from_offset: int) -> ListedOffset:
        """The latest of a run's records, of those at `from_offset` or later."""
        best = ListedOffset()
        read = await self._read(run)
        if read.failure is not None:
            raise read.failure
        for position, header in record_batch.walk(read.data):
            if header.max_timestamp > best.timestamp and header.last_offset >= from_offset:
                batch = read.data[position : position + header.size]
                found = await self._lookups.result(record_stream.latest(batch, from_offset))
                if found.timestamp > best.timestamp:
                    best = ListedOffset(offset=found.offset, timestamp=found.timestamp)
        return best

    async def _read(self, run: Run) -> ReadRun:
        [read] = await self._reader.read([run])
        return read

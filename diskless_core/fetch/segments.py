"""What a Fetch request gets of partitions whose offset is in a segment: read from remote storage, for a limited time.

(KIP-405, `remote.fetch.max.wait.ms`.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from diskless_core.clock import Clock
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.fetch.batch_slicing import cut, sound_prefix
from diskless_core.fetch.object_reader import ObjectReader, ReadError
from diskless_core.fetch.offset_range_check import OffsetRangeCheck
from diskless_core.fetch.query import FetchPartition
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.plugin.remote_storage import RemoteResourceNotFoundError, RemoteStorageError
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.side_by_side import side_by_side
from diskless_core.tiering.remote_reads import ReaderBusyError
from diskless_core.tiering.retrying import is_retriable
from diskless_core.tiering.segment_reader import SegmentRead, SegmentReader, SegmentReadError

RETRY = Backoff(first_ms=20, max_ms=200)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPart:
    """A part of a segment that is worth reading. `shard` is the replica that knows of it."""

    shard: DisklessShard
    wanted: FetchPartition
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FromSegment:
    """What could be read.

    Attributes:
        records: slices of whole batches from the one that contains the offset, or the next one, on.
        error: why there are none; NONE where it only takes too long.
        has_waited: whether it took all the time that there is.
    """

    records: Sequence[memoryview] = ()
    error: ErrorCode = ErrorCode.NONE
    has_waited: bool = False


class SegmentSource(Protocol):
    """Where a Fetcher gets from what is in segments."""

    async def read(self, parts: Mapping[int, SegmentPart]) -> Mapping[int, FromSegment]:
        """An answer for each part, by the same keys."""
        ...


class SegmentFetcher:
    """Reads parts of segments for Fetch requests, all parts of one at once.

    Args:
        max_wait_ms: after so long a request is answered without what is still being read; that goes on, for the next.
            Until then a read that fails and can succeed is tried again.
    """

    def __init__(
        self,
        reader: SegmentReader,
        objects: ObjectReader,
        offset_ranges: OffsetRangeCheck,
        *,
        max_wait_ms: int,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._reader = reader
        self._objects = objects
        self._offset_ranges = offset_ranges
        self._max_wait_ms = max_wait_ms
        self._retrying = Retrying(RETRY, clock, is_retriable=is_retriable)
        self._metrics = metrics
        self._bytes = metrics.fetch_bytes.labels("segments")

    async def read(self, parts: Mapping[int, SegmentPart]) -> Mapping[int, FromSegment]:
        answers = await side_by_side(self._read, parts.values())
        return dict(zip(parts, answers, strict=True))

    async def _read(self, part: SegmentPart) -> FromSegment:
        wanted = part.wanted
        failure: SegmentReadError | None = None

        async def attempt() -> SegmentRead:
            nonlocal failure
            try:
                return await self._reader.read(part.shard, wanted.key, wanted.offset, part.max_bytes)
            except (RemoteStorageError, RemoteLogMetadataError) as error:
                failure = error
                raise

        try:
            async with asyncio.timeout(self._max_wait_ms / 1000):
                read = await self._retrying.do(attempt, _report_nothing)
        except TimeoutError:
            if failure is not None:
                return FromSegment(error=await self._failed(part.shard, wanted, failure), has_waited=True)
            self._metrics.remote_fetch_timeouts.inc()
            return FromSegment(has_waited=True)
        except ReaderBusyError:
            return FromSegment()
        except (RemoteStorageError, RemoteLogMetadataError, CorruptBatchError) as error:
            return FromSegment(error=await self._failed(part.shard, wanted, error))
        head = part.shard.head(wanted.key)
        if head is not None and wanted.offset < head.log_start_offset:
            return FromSegment(error=ErrorCode.OFFSET_OUT_OF_RANGE)
        if not read.data:
            return await self._in_objects(part, read.next_offset)
        self._bytes.inc(len(read.data))
        return FromSegment(records=[read.data])

    async def _in_objects(self, part: SegmentPart, offset: int) -> FromSegment:
        """What comes behind the last batch of the last segment, where that ends before its last offset."""
        key = part.wanted.key
        try:
            found = await part.shard.find(key, offset, part.max_bytes)
        except CoordinatorStoreError as error:
            _log.warning("a coordinator store cannot be asked", shard=str(part.shard.id), error=str(error))
            return FromSegment(error=ErrorCode.KAFKA_STORAGE_ERROR)
        read = list(zip(found.runs, await self._objects.read(found.runs), strict=True))
        sound, failure = sound_prefix(await self._objects.read_past_damage(read, offset), offset)
        if failure is not None and not sound:
            return FromSegment(error=await self._failed(part.shard, part.wanted, failure))
        return FromSegment(records=cut(sound, offset, part.max_bytes, at_least_one=True), error=found.error)

    async def _failed(
        self, shard: DisklessShard, wanted: FetchPartition, failure: SegmentReadError | ReadError
    ) -> ErrorCode:
        """What a client is told. A segment that is missing may just have been deleted, with its offsets."""
        if isinstance(failure, RemoteResourceNotFoundError):
            again = shard.find_recent(wanted.key, wanted.offset, 1)
            if again is not None and again.error is not ErrorCode.NONE:
                return again.error
            if await self._offset_ranges.is_deleted(wanted.key, wanted.offset):
                return ErrorCode.OFFSET_OUT_OF_RANGE
        _log.error("a segment could not be read", **_place(wanted.key), offset=wanted.offset, error=str(failure))
        return ErrorCode.CORRUPT_MESSAGE if isinstance(failure, CorruptBatchError) else ErrorCode.KAFKA_STORAGE_ERROR


def _report_nothing(_: BaseException, __: int) -> None:
    """Every read that fails is counted; the log says why if none works in time."""


class NoSegments:
    """For brokers without tiered storage."""

    async def read(self, parts: Mapping[int, SegmentPart]) -> Mapping[int, FromSegment]:
        for part in parts.values():
            _log.error("a segment is needed, and there is no remote storage", **_place(part.wanted.key))
        return dict.fromkeys(parts, FromSegment(error=ErrorCode.KAFKA_STORAGE_ERROR))


def _place(key: PartitionKey) -> dict[str, str | int]:
    return {"topic_id": key.topic_id.hex(), "partition": key.partition}

"""Measures reads of segments in remote storage, which is memory here: what the broker itself costs.

Lookups by offset and by time, with nothing in the caches and with everything; reading from beginning to end, and how
long it keeps the event loop from others.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from statistics import median, quantiles

from crc32c import crc32c

from diskless_core.clock import SystemClock
from diskless_core.config.tiering import TieringConfig
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.log.segment_indexer import SegmentIndexer
from diskless_core.metrics import Metrics
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import RecordData
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.remote_log_metadata import MemoryRemoteLogMetadata
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage, StoredSegment
from diskless_core.tiering.part import segment_reader
from diskless_core.tiering.segment_reader import SegmentReader
from diskless_core.tiering.segment_times import SegmentTimes
from tests.support.shards import ShardNode

MIB = 1 << 20
START_MS = 1_700_000_000_000
LOOKUPS = 300
TICK_S = 0.001

Add = Callable[[str, str], None]

_KEY = PartitionKey(uuid.UUID(int=77).bytes, 0)


class Segment:
    """A partition with one segment of batches of `batch_bytes`, a millisecond apart, and its readers."""

    def __init__(self, size_bytes: int, batch_bytes: int) -> None:
        self.storage = MemoryRemoteStorage()
        self.metadata = MemoryRemoteLogMetadata()
        self.place = TopicIdPartition(uuid.UUID(bytes=_KEY.topic_id), "t", 0)
        batch = bytearray(
            record_batch.build([RecordData(None, random.Random(1).randbytes(batch_bytes - 70))], timestamp_ms=START_MS)
        )
        self.batches = size_bytes // len(batch)
        indexer, log = SegmentIndexer(0), bytearray(len(batch) * self.batches)
        header = record_batch.read_header(batch)
        for number in range(self.batches):
            record_batch.patch_base_offset(batch, 0, number)
            struct.pack_into(">qq", batch, 27, START_MS + number, START_MS + number)
            struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
            log[number * len(batch) : (number + 1) * len(batch)] = batch
            indexer.add(header._replace(base_offset=number, max_timestamp=START_MS + number))
        indexes = indexer.finish()
        self.known = RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(self.place, uuid.UUID(int=5)),
            start_offset=0,
            end_offset=indexes.end_offset,
            max_timestamp_ms=indexes.max_timestamp,
            broker_id=1,
            event_timestamp_ms=START_MS,
            segment_size_bytes=len(log),
            segment_leader_epochs={0: 0},
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        )
        self.storage.segments[self.known.segment_id] = StoredSegment(
            bytes(log),
            {IndexType.OFFSET: indexes.offset_index, IndexType.TIMESTAMP: indexes.time_index},
            is_complete=True,
        )

    @asynccontextmanager
    async def adopted(self) -> AsyncIterator[DisklessShard]:
        """A shard that has the segment."""
        node = ShardNode(SharedLog(), SystemClock())
        shard = await node.start()
        await shard.create_partitions(self.place.topic_id, "t", [0])
        known = self.known
        segment = TieredSegment(
            known.segment_id.id.bytes, 0, known.end_offset, known.segment_size_bytes, known.max_timestamp_ms
        )
        await shard.adopt(_KEY, 0, [segment])
        await self.metadata.add(replace(known, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED))
        await self.metadata.update(
            RemoteLogSegmentMetadataUpdate(
                segment_id=known.segment_id, event_timestamp_ms=START_MS, state=known.state, broker_id=1
            )
        )
        try:
            yield shard
        finally:
            await node.stop()

    def reader(self, cache_bytes: int) -> SegmentReader:
        """With empty caches."""
        settings = TieringConfig().model_copy(update={"diskless_segment_cache_max_bytes": cache_bytes})
        return segment_reader(settings, self.storage, self.metadata, Metrics())


async def measure(add: Add, *, size_mib: int = 256) -> None:
    """All of it; `add` gets a name and a value."""
    for batch_bytes in (16 * 1024, 300):
        segment = Segment(size_mib * MIB, batch_bytes)
        async with segment.adopted() as shard:
            await _lookups(add, segment, shard, f"batches of {batch_bytes} bytes")
            await _reading(add, segment, shard, f"batches of {batch_bytes} bytes")


async def _lookups(add: Add, segment: Segment, shard: DisklessShard, name: str) -> None:
    chance = random.Random(2)

    async def by_offset(reader: SegmentReader) -> None:
        await reader.read(shard, _KEY, chance.randrange(segment.batches), 1)

    async def by_time(reader: SegmentReader) -> None:
        timestamp = START_MS + chance.randrange(segment.batches)
        await SegmentTimes(reader).first_at_or_after(shard, _KEY, timestamp, 0)

    for what, look_up in (("offset", by_offset), ("time", by_time)):
        cold = [await _seconds(lambda: look_up(segment.reader(0))) for _ in range(LOOKUPS // 10)]  # noqa: B023
        reader = segment.reader(2 * segment.known.segment_size_bytes)
        async for _ in reader.batches(segment.known, 0):
            pass
        warm = [await _seconds(lambda: look_up(reader)) for _ in range(LOOKUPS)]  # noqa: B023
        add(f"lookup by {what}, {name}", f"{median(warm) * 1e6:.0f} µs warm, {median(cold) * 1e3:.2f} ms cold")


async def _reading(add: Add, segment: Segment, shard: DisklessShard, name: str) -> None:
    reader, offset, late = segment.reader(32 * MIB), 0, list[float]()
    ticker = asyncio.create_task(_tick(late))
    cpu, begun = time.process_time(), time.monotonic()
    while (read := await reader.read(shard, _KEY, offset, MIB)).data:
        offset = read.next_offset
        await asyncio.sleep(0)  # each is a request of its own
    seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
    ticker.cancel()
    gib = segment.known.segment_size_bytes / (1 << 30)
    p99 = quantiles(late, n=100)[98] if len(late) > 1 else max(late, default=0.0)
    add(
        f"reading, {name}",
        f"{gib * 1024 / seconds:.0f} MiB/s, {cpu / gib:.2f} CPU seconds a GiB; others wait {p99 * 1e3:.1f} ms (p99), "
        f"{max(late, default=0.0) * 1e3:.1f} ms at most",
    )


async def _seconds(call: Callable[[], Awaitable[None]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


async def _tick(late: list[float]) -> None:
    while True:
        due = time.monotonic() + TICK_S
        await asyncio.sleep(TICK_S)
        late.append(time.monotonic() - due)

"""One round of each noun: what a broker does with it, for some seconds. Each leaves the place to whoever made it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import closing

from diskless_core.clock import Clock
from diskless_core.coordinator.tables import Table
from diskless_core.diskless.tables import BATCHES, FILES, LIVE_FILES
from diskless_core.plugin.coordinator_store import ColumnType, Key, Row, TableChanges, TableSpec, Value
from diskless_core.plugin.gateway_placement import Coordinator, LiveBroker
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataServices
from diskless_core.plugin.remote_storage import LogSegmentData
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.plugin_host.nouns import (
    COORDINATOR_LOG,
    COORDINATOR_STORE,
    GATEWAY_PLACEMENT,
    OFFSET_ASSIGNMENT,
    REMOTE_LOG_METADATA,
    REMOTE_STORAGE,
    WAL_OBJECT_STORE,
)
from diskless_core.protocol.record_batch import RecordData, build
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger
from diskless_core.trial.bench.load import (
    BATCHES_PER_OBJECT,
    BYTES_PER_S,
    OBJECT_BYTES,
    OBJECTS_PER_S,
    Measure,
    keep_busy,
    keep_calling,
)
from diskless_core.trial.grounds import Place

Round = Callable[[Place, Clock, float], Awaitable[list[Measure]]]
"""Measures one backend in a place of its own, for about so many seconds."""

PUTS_AT_ONCE = 4
GETS_AT_ONCE = 16
OBJECTS_READ = 4
RANGE_BYTES = 1 << 20
PENDING = 1000
ENTRY_BYTES = 300
SEGMENT_BYTES = 16 << 20
SCANNED_ROWS = 20
BROKERS = 12
SHARDS = 16

_MEGA = 1_000_000
_TIME_MS = 1_700_000_000_000


async def objects(place: Place, clock: Clock, seconds: float) -> list[Measure]:
    """8 MiB puts, and ranged gets with a broker's parallelism."""
    store, data = place.create(WAL_OBJECT_STORE), memoryview(_noise(clock, OBJECT_BYTES))
    await store.start()
    try:
        puts = await keep_busy(clock, seconds / 2, PUTS_AT_ONCE, lambda number: store.put(f"wal/{number % 16}", data))

        def get(number: int) -> Awaitable[object]:
            start = number * RANGE_BYTES % OBJECT_BYTES
            return store.get(f"wal/{number % OBJECTS_READ}", start, start + RANGE_BYTES)

        for number in range(OBJECTS_READ):
            await store.put(f"wal/{number}", data)
        gets = await keep_busy(clock, seconds / 2, GETS_AT_ONCE, get)
    finally:
        await store.stop()
    needed = BYTES_PER_S / _MEGA
    return [
        Measure(name="puts of 8 MiB, MB/s", value=puts.per_s * OBJECT_BYTES / _MEGA, needed=needed),
        *puts.latencies("put of 8 MiB"),
        Measure(name="gets of 1 MiB, MB/s", value=gets.per_s * RANGE_BYTES / _MEGA, needed=needed),
        *gets.latencies("get of 1 MiB"),
    ]


async def entries(place: Place, clock: Clock, seconds: float) -> list[Measure]:
    """Small appends, alone and as a thousand commands that have waited for one append."""
    log, shard = place.create(COORDINATOR_LOG), DISKLESS.shard(0)
    batch = build([RecordData(None, _noise(clock, ENTRY_BYTES))], timestamp_ms=_TIME_MS)
    await log.start()
    try:
        alone = await keep_busy(clock, seconds / 2, 1, lambda _: log.append(shard, [batch]))
        together = await keep_busy(clock, seconds / 2, 1, lambda _: log.append(shard, [batch] * PENDING))
    finally:
        await log.stop()
    return [
        Measure(name="appends/s, 1 pending", value=alone.per_s),
        *alone.latencies("append, 1 pending"),
        Measure(name="entries/s, 1,000 pending", value=together.per_s * PENDING, needed=OBJECTS_PER_S),
        *together.latencies("append, 1,000 pending"),
    ]


async def rows(place: Place, clock: Clock, seconds: float) -> list[Measure]:
    """The rows of CommitFile, and the scans of FindBatches. A store has a thread of its own in a broker, too."""
    return await asyncio.to_thread(_rows, place, clock, seconds)


def _rows(place: Place, clock: Clock, seconds: float) -> list[Measure]:
    tables: Sequence[Table[object]] = (BATCHES, FILES, LIVE_FILES)  # type: ignore[assignment]
    store = place.create(COORDINATOR_STORE).open(DISKLESS.shard(0), [table.spec for table in tables])
    with closing(store):

        def commit(number: int) -> None:
            runs = [_row(BATCHES.spec, (_topic(index), index, number), number) for index in range(BATCHES_PER_OBJECT)]
            files = {table.name: TableChanges(put=[_row(table, (f"wal/{number}",), number)]) for table in one_each}
            store.write({BATCHES.spec.name: TableChanges(put=runs), **files}, number + 1)

        one_each = (FILES.spec, LIVE_FILES.spec)
        commits = keep_calling(clock, seconds / 2, commit)
        last = len(commits.latencies_s)

        def find(number: int) -> None:
            index, offset = number % BATCHES_PER_OBJECT, number * 7919 % last
            start, end = (_topic(index), index, offset), (_topic(index), index + 1)
            store.scan(BATCHES.spec.name, start, end, limit=SCANNED_ROWS)

        finds = keep_calling(clock, seconds / 2, find)
    needed = OBJECTS_PER_S * BATCHES_PER_OBJECT
    return [
        Measure(name="rows of commits/s", value=commits.per_s * BATCHES_PER_OBJECT, needed=needed),
        *commits.latencies("commit of 100 rows"),
        Measure(name="scans/s of 20 batches", value=finds.per_s, needed=needed),
        *finds.latencies("scan of 20 batches"),
    ]


async def segments(place: Place, clock: Clock, seconds: float) -> list[Measure]:
    """Copies of segments, and reads of their ranges."""
    storage, data = place.create(REMOTE_STORAGE), _noise(clock, SEGMENT_BYTES)
    partition = TopicIdPartition(clock.new_uuid(), "bench", 0)

    async def log() -> AsyncIterator[ObjectData]:
        for first in range(0, SEGMENT_BYTES, RANGE_BYTES):
            yield data[first : first + RANGE_BYTES]

    def metadata(number: int) -> RemoteLogSegmentMetadata:
        return _segment(partition, number, SEGMENT_BYTES)

    known: dict[int, RemoteLogSegmentMetadata] = {}

    async def copy(number: int) -> None:
        known[number % 4] = metadata(number % 4)
        await storage.copy(known[number % 4], LogSegmentData(log=log, indexes=dict))

    def fetch(number: int) -> Awaitable[object]:
        start = number * RANGE_BYTES % SEGMENT_BYTES
        return storage.fetch(known[0], start, start + RANGE_BYTES)

    await storage.start()
    try:
        copies = await keep_busy(clock, seconds / 2, 1, copy)
        fetches = await keep_busy(clock, seconds / 2, GETS_AT_ONCE, fetch)
    finally:
        await storage.stop()
    needed = BYTES_PER_S / _MEGA
    return [
        Measure(name="copies of 16 MiB, MB/s", value=copies.per_s * SEGMENT_BYTES / _MEGA, needed=needed),
        *copies.latencies("copy of 16 MiB"),
        Measure(name="fetches of 1 MiB, MB/s", value=fetches.per_s * RANGE_BYTES / _MEGA, needed=needed),
        *fetches.latencies("fetch of 1 MiB"),
    ]


async def events(place: Place, clock: Clock, seconds: float) -> list[Measure]:
    """Segments that are noted one after the other, and found."""
    metadata = place.create(REMOTE_LOG_METADATA)
    partition = TopicIdPartition(clock.new_uuid(), "bench", 0)
    await metadata.start(RemoteLogMetadataServices(cluster_id="bench", ledger=MemoryLedger()))
    try:
        adds = await keep_busy(clock, seconds / 2, 1, lambda n: metadata.add(_segment(partition, n, SEGMENT_BYTES)))
        finds = await keep_busy(clock, seconds / 2, 1, lambda number: metadata.find(partition, 0, number))
    finally:
        await metadata.stop()
    needed = BYTES_PER_S / SEGMENT_BYTES
    return [
        Measure(name="segments noted/s", value=adds.per_s, needed=needed),
        *adds.latencies("segment noted"),
        Measure(name="look-ups/s", value=finds.per_s, needed=needed),
        *finds.latencies("look-up"),
    ]


async def assignments(place: Place, clock: Clock, seconds: float) -> list[Measure]:
    """Offsets for a batch of each partition of an object."""
    policy = place.create(OFFSET_ASSIGNMENT)
    calls = keep_calling(clock, seconds, lambda number: policy.assign(number, [1]))
    needed = OBJECTS_PER_S * BATCHES_PER_OBJECT
    return [Measure(name="calls/s", value=calls.per_s, needed=needed), *calls.latencies("call")]


async def placements(place: Place, clock: Clock, seconds: float) -> list[Measure]:
    """The gateways of a cluster of twelve brokers; a broker asks when something changes."""
    policy = place.create(GATEWAY_PLACEMENT)
    coordinators = [Coordinator(shard=number, leader_id=number % BROKERS) for number in range(SHARDS)]
    brokers = [LiveBroker(node_id=number, rack=f"rack-{number % 3}") for number in range(BROKERS)]
    calls = keep_calling(clock, seconds, lambda _: policy.place(coordinators, brokers))
    return [Measure(name="calls/s", value=calls.per_s, needed=1), *calls.latencies("call")]


ROUNDS: Mapping[str, Round] = {
    COORDINATOR_LOG.name: entries,
    COORDINATOR_STORE.name: rows,
    WAL_OBJECT_STORE.name: objects,
    REMOTE_STORAGE.name: segments,
    REMOTE_LOG_METADATA.name: events,
    OFFSET_ASSIGNMENT.name: assignments,
    GATEWAY_PLACEMENT.name: placements,
}


def _noise(clock: Clock, size_bytes: int) -> bytes:
    return clock.random().randbytes(size_bytes)


def _topic(index: int) -> bytes:
    return index.to_bytes(16, "big")


def _row(table: TableSpec, key: Key, number: int) -> Row:
    values: dict[ColumnType, Value] = {
        ColumnType.INTEGER: number,
        ColumnType.TEXT: f"wal/{number}",
        ColumnType.BLOB: b"x" * 16,
    }
    return key + tuple(values[column.type] for column in table.values)


def _segment(partition: TopicIdPartition, number: int, size_bytes: int) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(partition, uuid.UUID(int=number + 2)),
        start_offset=number,
        end_offset=number,
        max_timestamp_ms=_TIME_MS,
        broker_id=1,
        event_timestamp_ms=_TIME_MS,
        segment_size_bytes=size_bytes,
        segment_leader_epochs={0: number},
    )

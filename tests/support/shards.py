"""Diskless shards on fakes: nodes that can be killed, whose store can be set back, on a log that they share."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.peers import PeerTransport
from diskless_core.coordinator.shard import ShardServices
from diskless_core.coordinator.snapshots import NoSnapshots, SnapshotSource
from diskless_core.coordinator.tables import Key, Table, V
from diskless_core.diskless.commands import BatchResult, CommitBatch, CommitFile, PartitionKey
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.producer_state import NO_PRODUCER, last_sequence
from diskless_core.diskless.shard import DisklessShard
from diskless_core.metrics import Metrics
from diskless_core.plugin.offset_assignment import OffsetAssignment
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.log import FakeCoordinatorLog, SharedLog
from diskless_core.wal.format import object_key
from diskless_core.wal.runs import Run
from tests.support.stores import Disk, FailingStore

SHARD_ID = DISKLESS.shard(0)
TOPIC = b"T" * 16
OTHER_TOPIC = b"U" * 16
EXPIRATION_MS = 60_000
BATCH_BYTES = 100


class Sequential(OffsetAssignment):
    """Offsets without gaps."""

    def assign(self, next_offset: int, record_counts: Sequence[int]) -> Sequence[int]:
        offsets = []
        for count in record_counts:
            offsets.append(next_offset)
            next_offset += count
        return offsets


def _given(transport: PeerTransport) -> PeerTransport:
    return transport


class ShardNode:
    """One node's replica of the shard. `start` after `kill` or `stop` is a new process on the same log."""

    def __init__(
        self,
        shared: SharedLog,
        clock: Clock,
        node_id: int = 1,
        *,
        shard_id: ShardId = SHARD_ID,
        assignment: OffsetAssignment | None = None,
        snapshots: SnapshotSource | None = None,
        disk: Disk | None = None,
        candidate: bool = True,
        transport: PeerTransport | None = None,
    ) -> None:
        self.shared = shared
        self.clock = clock
        self.node_id = node_id
        self.shard_id = shard_id
        self.store = FailingStore(disk)
        self.snapshots = snapshots or NoSnapshots()
        self.candidate = candidate
        self.transport = transport
        self.metrics = Metrics()
        self.rules = CommitRules(assignment=assignment or Sequential())
        self.log: FakeCoordinatorLog
        self.shard: DisklessShard

    async def start(self, *, lead: bool = True) -> DisklessShard:
        self.log = self.shared.node(self.node_id)
        await self.log.start()
        services = ShardServices(
            node_id=self.node_id,
            clock=self.clock,
            log=self.log,
            store=self.store,
            snapshots=self.snapshots,
            metrics=self.metrics,
            may_lead=lambda _: self.candidate,
            new_transport=partial(_given, self.transport) if self.transport is not None else None,
        )
        self.shard = DisklessShard(self.shard_id, services, self.rules)
        await self.shard.start()
        if lead:
            await self.shard.until_leading()
            await self.name_log()
        return self.shard

    async def name_log(self) -> None:
        """Give the log an id, as a broker that leads does first, where snapshots are to be taken."""
        if not isinstance(self.snapshots, NoSnapshots) and self.shard.log_id is None:
            await self.shard.submit(lambda command: command.name_log(self.clock.new_uuid()))

    async def stop(self) -> None:
        await self.shard.stop()
        await self.log.stop()

    async def kill(self) -> None:
        """It ends here and now: nothing is flushed, nobody is answered."""
        shard = self.shard
        for task in shard._tasks:
            task.cancel()
        await asyncio.gather(*shard._tasks, return_exceptions=True)
        shard._leader.step_down("killed")
        shard._replica.store._executor.shutdown(wait=False)
        await self.log.stop()

    @contextmanager
    def failing_store(self) -> Any:
        self.store.failing = True
        try:
            yield
        finally:
            self.store.failing = False

    async def commit(self, request: CommitFile) -> list[BatchResult]:
        """Commit as the broker's committer does: the same request again until there is an answer."""
        while True:
            try:
                return await self.shard.commit_file(request)
            except CoordinatorError:
                await asyncio.sleep(0.05)

    async def read_all(self, partition: PartitionKey, max_bytes: int = 1 << 20) -> list[Run]:
        """Every run from where WAL objects begin, page by page as readers ask for them."""
        head = self.shard.head(partition)
        offset, runs = head.local_start_offset if head is not None else 0, list[Run]()
        while True:
            found = await self.shard.find(partition, offset, max_bytes)
            assert found.error is ErrorCode.NONE, found
            if not found.runs:
                assert offset == found.high_watermark
                return runs
            runs += found.runs
            offset = runs[-1].last_offset + 1

    def tables(self) -> dict[str, Any]:
        """What the replica knows, resident tables only, for comparison with another replica."""
        state = self.shard.state
        return {table.name: dict(state.rows(table)) for table in state.tables if table.resident}


async def row_of(shard: DisklessShard, table: Table[V], key: Key) -> V | None:
    """The committed value of a row of any table, from memory or the store."""
    found = await shard._replica.flusher.prefetch([(table, key)])
    return cast("V | None", found[table, key])


def batch(
    partition: int = 0,
    *,
    topic: bytes = TOPIC,
    at: int = 0,
    size: int = BATCH_BYTES,
    count: int = 1,
    producer: tuple[int, int, int] | None = None,
    max_timestamp: int = 0,
    timestamp_type: int = 0,
) -> CommitBatch:
    """One batch; `producer` is id, epoch, base sequence."""
    producer_id, epoch, base_sequence = producer or (NO_PRODUCER, -1, -1)
    return CommitBatch(
        topic_id=topic,
        partition=partition,
        byte_offset=at,
        size=size,
        record_count=count,
        max_timestamp=max_timestamp,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        last_sequence=last_sequence(base_sequence, count) if producer else -1,
    )


def wal_key(name: str, created_ms: int = 1_700_000_000_000) -> str:
    """A key as brokers give it to their WAL objects, always the same one for a name."""
    return object_key("wal", created_ms, uuid.UUID(bytes=hashlib.blake2b(name.encode(), digest_size=16).digest()))


def commit_of(key: str, *batches: CommitBatch, owner_ids: tuple[int, ...] = (0,)) -> CommitFile:
    """An object of these batches, laid out one after the other from byte 16 on."""
    position = 16
    placed = []
    for one in batches:
        placed.append(one._replace(byte_offset=position))
        position += one.size
    return CommitFile(object_key=key, file_size=position, uploader_id=1, owner_ids=owner_ids, batches=placed)

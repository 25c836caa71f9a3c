"""One broker process of a simulated world: the real parts of a broker on the world's log, bucket and network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection, Sequence
from functools import cache
from typing import Protocol

from diskless_core.coordinator.peers import AnswerLostError, PeerAddress, PeerMap, PeerRequest, PeerUnavailableError
from diskless_core.coordinator.shard import ShardServices
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.diskless.clients import CoordinatorClients
from diskless_core.diskless.commands import BatchResult, DeletedRecords, PartitionKey
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.service import CoordinatorService
from diskless_core.diskless.shard import DisklessShard
from diskless_core.fetch.fetcher import Fetcher
from diskless_core.fetch.object_cache import ObjectCache
from diskless_core.fetch.object_reader import ObjectReader
from diskless_core.fetch.offset_range_check import OffsetRangeCheck
from diskless_core.fetch.offsets import OffsetLookup
from diskless_core.fetch.query import FetchedPartition, FetchPartition, FetchQuery
from diskless_core.fetch.read_ahead import ReadAhead
from diskless_core.files.part import Files, FilesNeighbours, FilesSettings
from diskless_core.files.retention import RetentionRules
from diskless_core.files.retention_worker import RetentionSchedule
from diskless_core.metrics import Metrics
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanSearch
from diskless_core.produce.accumulator import Submission
from diskless_core.produce.committer import Committer
from diskless_core.produce.uploader import Uploader
from diskless_core.produce.validation import validate
from diskless_core.produce.writer import WalWriter, WriterSettings
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.simulation.bucket import Bucket
from tests.simulation.checker import OBJECT_PREFIX
from tests.simulation.metadata_log import MetadataLog
from tests.simulation.network import Network, NetworkError
from tests.simulation.processes import Process, ProcessLoop
from tests.support.produce_path import RULES
from tests.support.shards import Sequential
from tests.support.virtual_time import VirtualClock

ANSWER_S = 4.0
CACHE_BYTES = 2_000
PORT = 9093
WEEK_MS = 7 * 86_400_000


@cache
def shared_metrics() -> Metrics:
    """One registry for all worlds: to make one takes longer than to run a small world."""
    return Metrics()


class Surroundings(Protocol):
    """What a broker finds in the world that it is started in."""

    loop: ProcessLoop
    log: MetadataLog
    bucket: Bucket
    network: Network
    shards: int
    node_ids: Sequence[int]
    delete_delay_ms: int
    orphan_grace_ms: int
    linger_ms: int

    def broker(self, node_id: int) -> Broker | None: ...

    def rules_of(self, key: PartitionKey) -> RetentionRules | None: ...

    def shard_of(self, key: PartitionKey) -> int: ...

    def answered(self, key: PartitionKey, result: BatchResult) -> None: ...


class _Listing(OrphanDetection):
    """Every old object is a candidate."""

    async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
        async for page in search.list_objects(search.prefix):
            yield [found.key for found in page if search.is_candidate(found.key)]


class Disk:
    """What survives a process: the coordinator store. It may be lost, or found as it was some time ago."""

    def __init__(self) -> None:
        self.store = MemoryCoordinatorStore()
        self._kept: MemoryCoordinatorStore | None = None

    def keep(self) -> None:
        self._kept = _copied(self.store)

    def lose(self) -> None:
        self.store = MemoryCoordinatorStore()

    def set_back(self) -> None:
        """As it was when it was last kept; lost if it never was."""
        self.store = _copied(self._kept) if self._kept is not None else MemoryCoordinatorStore()


def _copied(store: MemoryCoordinatorStore) -> MemoryCoordinatorStore:
    copied = MemoryCoordinatorStore()
    copied._shards = {shard: kept.copy() for shard, kept in store._shards.items()}
    return copied


class Broker:
    """One life of a broker. The next life of the same node is another object."""

    def __init__(self, world: Surroundings, node_id: int, life: int, disk: Disk, source: random.Random) -> None:
        self.node_id = node_id
        self.life = life
        self.process: Process = world.loop.process(f"broker-{node_id}.{life}")
        self.clock = VirtualClock(world.loop, source.getrandbits(64))
        self.started = False
        self.failed = False
        self._world = world
        metrics = shared_metrics()
        self._log = world.log.node(node_id)
        objects = world.bucket.client(self.process.name)
        self._snapshots = Snapshots(objects, f"{OBJECT_PREFIX}-snapshots", self.clock)
        services = ShardServices(
            node_id=node_id, clock=self.clock, log=self._log, store=disk.store, snapshots=self._snapshots
        )
        rules = CommitRules(assignment=Sequential(), producer_id_expiration_ms=WEEK_MS)
        self.shards = {index: DisklessShard(DISKLESS.shard(index), services, rules) for index in range(world.shards)}
        reader = ObjectReader(objects, ObjectCache(CACHE_BYTES, metrics), metrics)
        purgatory = Purgatory()
        offsets = OffsetLookup(reader)
        for shard in self.shards.values():
            shard.on_head_moved(purgatory.wake)
            shard.find_offsets_with(offsets.list)
        peers = PeerMap(node_id)
        for other in world.node_ids:
            peers.learn(other, PeerAddress(f"broker-{other}", PORT))
        self.service = CoordinatorService(node_id, self.shards, peers, purgatory, self.clock)
        self.coordinators = CoordinatorClients(node_id, self.shards, _Transport(world, node_id), peers).coordinators
        self._fetcher = Fetcher(
            self._shard_for,
            OffsetRangeCheck(lambda key: self.coordinators[world.shard_of(key)]),
            reader,
            ReadAhead(reader, CACHE_BYTES // 4),
            purgatory,
            self.clock,
            metrics,
        )
        self._writer = WalWriter(
            WriterSettings(
                commit_interval_ms=max(250, world.linger_ms),
                linger_ms=world.linger_ms,
                buffer_max_bytes=1_000,
                inflight_max_bytes=1 << 30,
                object_prefix=OBJECT_PREFIX,
            ),
            Uploader(objects, 4, self.clock, metrics),
            Committer(node_id, self.coordinators, world.shard_of, self.clock, metrics),
            self.clock,
            metrics,
            on_uploaded=reader.uploaded,
        )
        self._files = Files(
            FilesSettings(
                retention=RetentionSchedule(initial_delay_ms=5_000, interval_ms=20_000),
                delete_delay_ms=world.delete_delay_ms,
                object_prefix=OBJECT_PREFIX,
                snapshot_prefix=f"{OBJECT_PREFIX}-snapshots",
                orphan_grace_period_ms=world.orphan_grace_ms,
                orphan_scan_interval_ms=WEEK_MS,
            ),
            FilesNeighbours(
                objects=objects,
                objects_source=lambda: objects,
                detection=_Listing(),
                shards=self.shards,
                coordinators=self.coordinators,
                shards_in_use=self._shard_indexes,
                scans_here=lambda: False,
                rules_of=world.rules_of,
                on_deleted=reader.deleted,
                clock=self.clock,
                metrics=metrics,
            ),
        )
        self._snapshotters = [
            Snapshotter(
                shard,
                self._log,
                self._snapshots,
                SnapshotRules(max_bytes=1, max_age_ms=0),
                self.clock,
            )
            for shard in self.shards.values()
        ]

    async def start(self) -> None:
        """Start as a process does; `started` or `failed` says what became of it."""
        try:
            await self._log.start()
            await asyncio.gather(*(shard.start() for shard in self.shards.values()))
        except Exception:
            self.failed = True
            raise
        self._files.start()
        self.started = True

    @property
    def defects(self) -> list[str]:
        return [shard.failure for shard in self.shards.values() if shard.failure is not None]

    # --- what clients ask for ------------------------------------------------------------------------------------

    async def produce(self, key: PartitionKey, batches: Sequence[bytes]) -> Sequence[BatchResult | BaseException]:
        """Produce requests of one batch each, that came one after the other on one connection."""
        answers = [self._append(key, batch) for batch in batches]
        results = await asyncio.gather(*answers, return_exceptions=True)
        return [result[0] if isinstance(result, Sequence) else result for result in results]

    def _append(self, key: PartitionKey, batch: bytes) -> asyncio.Future[Sequence[BatchResult]]:
        answer: asyncio.Future[Sequence[BatchResult]] = asyncio.get_running_loop().create_future()

        def settle(outcome: Sequence[BatchResult] | BaseException) -> None:
            if isinstance(outcome, BaseException):
                answer.set_exception(outcome)
            else:
                self._world.answered(key, outcome[0])
                answer.set_result(outcome)

        valid = validate(memoryview(batch), RULES, 9, self.clock.now_ms())
        self._writer.append(Submission(batches=[(key, valid)], release=lambda: None, settle=settle))
        return answer

    async def fetch(self, key: PartitionKey, offset: int, max_bytes: int) -> FetchedPartition:
        """One Fetch request of one partition, which waits a little when there is nothing."""
        query = FetchQuery(
            partitions=[FetchPartition(key=key, offset=offset, max_bytes=max_bytes)],
            max_bytes=max_bytes,
            min_bytes=1,
            max_wait_ms=500,
        )
        [answer] = await self._fetcher.fetch(query, [])
        answer.records = [memoryview(bytes(view)) for view in answer.records]
        return answer

    async def list_end(self, key: PartitionKey) -> int | None:
        """ListOffsets of the latest offset; None when there is no such partition."""
        coordinator = self.coordinators[self._world.shard_of(key)]
        answer = await coordinator.list_offsets(key, -1)
        return answer.offset if answer.error is ErrorCode.NONE else None

    async def delete_records(self, key: PartitionKey, offset: int) -> DeletedRecords:
        """One DeleteRecords request."""
        return await self.coordinators[self._world.shard_of(key)].delete_records(key, offset)

    async def scan_for_orphans(self) -> None:
        await self._files.orphans.scan(dry_run=False)

    async def take_snapshot(self, index: int) -> None:
        """Take one of a shard that it leads, and prune its log."""
        await self._snapshotters[index].take()

    async def _shard_indexes(self) -> Collection[int]:
        return range(self._world.shards)

    def _shard_for(self, key: PartitionKey) -> DisklessShard:
        return self.shards[self._world.shard_of(key)]


class _Transport:
    """A broker's connections to the others."""

    def __init__(self, world: Surroundings, node_id: int) -> None:
        self._world = world
        self._node_id = node_id

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        target = self._world.broker(node_id)
        if target is None or not target.started:
            raise PeerUnavailableError(f"connection refused by {node_id}")
        try:
            return await self._world.network.ask(
                self._node_id, node_id, target.process, lambda: target.service.answer(request), min(timeout_s, ANSWER_S)
            )
        except NetworkError as error:
            raise AnswerLostError(str(error)) from error

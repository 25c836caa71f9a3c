"""A cluster on fakes that is backed up and restored while things happen."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from diskless_core.cli.backup import Backup, BackupRun, require_unused
from diskless_core.cli.backup_attempts import Attempt
from diskless_core.cli.backup_places import BackupError, Place
from diskless_core.cli.backup_restore import restore
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.state_machine import ClusterMachine
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.coordinator.shard_points import ShardPoints
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.state_machine import StateMachine
from diskless_core.diskless import remote_segments
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.shard import DisklessShard
from diskless_core.groups.shard import GroupsShard
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.shards import CLUSTER_SHARD, DISKLESS, GROUPS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import Sequential
from tests.support.virtual_time import VirtualClock, run

BROKER, TOOL = 1, -1
TOPIC_ID = uuid.UUID(int=7)
SEGMENT = "topic/segment.log"
CONFIG = BrokerConfig(diskless_metadata_topic_num_partitions=2)
WAL_OBJECT = f"{CONFIG.diskless_wal_object_prefix}/object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """The coordinators of a cluster while a broker leads them."""

    services: ShardServices
    cluster: ClusterShard
    diskless: Sequence[DisklessShard]
    groups: GroupsShard


class WatchedPoints(ShardPoints):
    """Does something before a shard is read, which `World.before_reading` says."""

    def __init__(self, world: World, *given: Any) -> None:
        super().__init__(*given)
        self._world = world

    async def read_up(self, shard_id: ShardId, machine: StateMachine[Any]) -> CoordinatorShard[Any]:
        self._world.reads[shard_id] += 1
        await self._world.before_reading(shard_id, self._world.reads[shard_id])
        return await super().read_up(shard_id, machine)


class World:
    """A cluster with two Diskless coordinators, an object and a segment, and an empty place for a copy.

    Attributes:
        source: what a test configures of the cluster.
        target: of the one that is to be.
        reads: how often backups have read each coordinator.
        before_reading: awaited before they do, with the coordinator and how often it was then.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.log, self.new_log = SharedLog(), SharedLog()
        self.reads: Counter[ShardId] = Counter()
        self.before_reading: Callable[[ShardId, int], Awaitable[None]] = _nothing
        self.source = Place(config=CONFIG, objects=self.store(), segments=self.store(), shares_segments=True)
        self.target = Place(config=CONFIG, objects=self.store(), segments=self.store(), shares_segments=True)

    def store(self) -> MemoryWalObjectStore:
        return MemoryWalObjectStore(self.clock)

    async def begin(self, *, segments: bool = True, groups: int = 1, unrecorded_groups: int = 0) -> None:
        await self.source.objects.put(WAL_OBJECT, b"records")
        async with self.led(groups, unrecorded_groups) as led:
            if segments:
                await led.diskless[1].create_partitions(TOPIC_ID, "t", [0])
                await led.diskless[1].submit(lambda command: remote_segments.append(command, _a_segment()))
                if self.source.segments is not None:
                    await self.source.segments.put(SEGMENT, b"older records")

    @asynccontextmanager
    async def led(self, groups: int = 1, unrecorded_groups: int = 0) -> AsyncIterator[Led]:
        """The cluster's coordinators, led by one broker."""
        async with self._opened(self.log, self.source) as led:
            await led.cluster.cluster_id("c", _nothing, {GROUPS: groups})
            async with AsyncExitStack() as stack:
                others = [
                    GroupsShard(GROUPS.shard(index), led.services) for index in range(1, groups + unrecorded_groups)
                ]
                for shard in others:
                    await _led(shard, stack)
                yield led

    @asynccontextmanager
    async def restored(self) -> AsyncIterator[Led]:
        """The coordinators of the cluster that began with the backup, led by a broker with empty folders."""
        async with self._opened(self.new_log, self.target) as led:
            yield led

    @asynccontextmanager
    async def _opened(self, shared: SharedLog, place: Place) -> AsyncIterator[Led]:
        log = shared.node(BROKER)
        services = ShardServices(
            node_id=BROKER,
            clock=self.clock,
            log=log,
            store=MemoryCoordinatorStore(),
            snapshots=Snapshots.of(CONFIG, place.objects, self.clock),
        )
        rules = CommitRules(assignment=Sequential())
        async with AsyncExitStack() as stack:
            await log.start()
            stack.push_async_callback(log.stop)
            cluster = ClusterShard(CLUSTER_SHARD, services)
            await _led(cluster, stack)
            diskless = [DisklessShard(DISKLESS.shard(index), services, rules) for index in range(2)]
            groups = GroupsShard(GROUPS.shard(0), services)
            others: list[CoordinatorShard[Any]] = [*diskless, groups]
            for shard in others:
                await _led(shard, stack)
            yield Led(services=services, cluster=cluster, diskless=diskless, groups=groups)

    async def backup(self) -> Backup:
        async with self.points() as (points, kept):
            return await BackupRun(self.source, self.target, points, kept, self.clock, self.require_unused).run()

    async def require_unused(self) -> None:
        log = self.new_log.node(TOOL)
        await log.start_reading()
        try:
            await require_unused(log)
        finally:
            await log.stop()

    async def put_other_snapshot(self, attempt: Attempt | None = None) -> None:
        """One of the cluster shard on another log, in the target, such as an attempt puts."""
        log_id = attempt.log_id(CLUSTER_SHARD) if attempt is not None else self.clock.new_uuid()
        async with self.points() as (points, _):
            await points.read_up(CLUSTER_SHARD, ClusterMachine())
            await points.put(CLUSTER_SHARD, ClusterMachine(), log_id)

    @asynccontextmanager
    async def points(self) -> AsyncIterator[tuple[ShardPoints, Snapshots]]:
        log = self.log.node(TOOL)
        await log.start_reading()
        kept = Snapshots.of(self.target.config, self.target.objects, self.clock)
        snapshots = Snapshots.of(self.source.config, self.source.objects, self.clock)
        try:
            yield WatchedPoints(self, log, MemoryCoordinatorStore(), snapshots, kept, self.clock), kept
        finally:
            await log.stop()

    async def restore(self, place: Place | None = None) -> None:
        place = place or self.target
        log = self.new_log.node(TOOL)
        await log.start()
        try:
            await restore(place, log, Snapshots.of(place.config, place.objects, self.clock), self.clock)
        finally:
            await log.stop()

    async def refuses_backup(self, why: str) -> None:
        """With nothing changed in any of the places."""
        places = [*self.source.stores().values(), *self.target.stores().values()]
        before = [content(store) for store in places]
        with pytest.raises(BackupError, match=why):
            await self.backup()
        assert [content(store) for store in places] == before


def content(store: WalObjectStore | None) -> dict[str, bytes]:
    assert isinstance(store, MemoryWalObjectStore)
    return dict(store.objects)


def snapshots_in(place: Place) -> set[str]:
    """The keys of all that belongs to snapshots."""
    prefix = f"{CONFIG.diskless_wal_object_prefix}-snapshots/_"
    return {key for key in content(place.objects) if key.startswith(prefix)}


def same_bucket(world: World, store: WalObjectStore | None) -> MemoryWalObjectStore:
    """Another configuration of it."""
    assert isinstance(store, MemoryWalObjectStore)
    other = world.store()
    other.objects = store.objects
    return other


async def _led(shard: CoordinatorShard[Any], stack: AsyncExitStack) -> None:
    stack.push_async_callback(shard.stop)
    await shard.start()
    await shard.until_leading()


async def _nothing(*_: object) -> None:
    pass


def _a_segment() -> RemoteLogSegmentMetadata:
    partition = TopicIdPartition(TOPIC_ID, "t", 0)
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(partition, uuid.UUID(int=8)),
        start_offset=0,
        end_offset=9,
        max_timestamp_ms=5,
        broker_id=BROKER,
        event_timestamp_ms=7,
        segment_size_bytes=400,
        segment_leader_epochs={0: 0},
    )


def story(work: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await work(World())

    run(main)

"""Groups are dealt out to another number of shards while the cluster moves to another log, whatever interrupts that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

from diskless_core.cli.migrate_log import move
from diskless_core.cluster.coordinator_counts import ChangeRefusedError
from diskless_core.cluster.shard import ClusterShard
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.log_migration import LogMigration
from diskless_core.coordinator.new_log import MigrationRefusedError
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.groups.model import CommittedOffset, PersistedGroup
from diskless_core.groups.records import GroupRecord, OffsetRecord
from diskless_core.groups.routing import shard_index
from diskless_core.groups.shard import GroupsShard
from diskless_core.groups.tables import GROUP_OFFSETS
from diskless_core.groups.tables import GROUPS as PERSISTED
from diskless_core.shards import CLUSTER_SHARD, GROUPS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.virtual_time import VirtualClock, run
from tests.unit.coordinator.test_log_migration import Power

TOOL = -1
NAMES = [f"group-{number}" for number in range(10)]
RULES = SnapshotRules(least_bytes=2_000, max_age_ms=3_600_000)


class Broker:
    """A node's cluster shard and groups shards, all of which it leads."""

    def __init__(self, shards: dict[int, GroupsShard]) -> None:
        self.groups = shards

    async def commit(self, names: list[str], offset: int) -> None:
        """An offset and a generation for each group."""
        for name in names:
            shard = self.groups[shard_index(name, len(self.groups))]
            await shard.submit(partial(_commit, name, offset))

    def content(self) -> dict[str, tuple[int, int]]:
        """Offset and generation of each group. Each is in the shard that the rule names, and in no other."""
        found = dict[str, tuple[int, int]]()
        for index, shard in self.groups.items():
            for (name, _, _), value in shard.state.rows(GROUP_OFFSETS):
                assert shard_index(name, len(self.groups)) == index
                assert name not in found
                persisted = shard.state.committed(PERSISTED, (name,))
                assert persisted is not None
                found[name] = value.offset, persisted.generation
        return found


def _commit(name: str, offset: int, command: Any) -> None:
    value = CommittedOffset(
        offset=offset, leader_epoch=0, metadata="", commit_timestamp_ms=1, expire_timestamp_ms=-1, topic_id=None
    )
    command.emit(OffsetRecord(group_id=name, topic="t", partition=0, value=value))
    group = PersistedGroup(
        protocol_type="consumer", generation=offset, protocol=None, leader=None, state_timestamp_ms=1, members=()
    )
    command.emit(GroupRecord(group_id=name, value=group))


class World:
    """Two logs, one object store, and one broker's folder."""

    def __init__(self, count: int) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.objects = MemoryWalObjectStore(self.clock)
        self.snapshots = Snapshots(self.objects, "snapshots", self.clock)
        self.source, self.target = SharedLog(), SharedLog()
        self.store = MemoryCoordinatorStore()
        self.count = count
        self.expected = dict[str, tuple[int, int]]()

    @asynccontextmanager
    async def broker(self, shared: SharedLog, store: MemoryCoordinatorStore | None = None, **options: Any):
        """A start, as a broker does it: the cluster shard says how many groups shards there are."""
        log = shared.node(1)
        services = ShardServices(
            node_id=1, clock=self.clock, log=log, store=store or self.store, snapshots=self.snapshots
        )
        async with AsyncExitStack() as stack:
            await log.start()
            stack.push_async_callback(log.stop)
            cluster = ClusterShard(CLUSTER_SHARD, services)
            await self._led(cluster, stack)
            await cluster.cluster_id("c", _nothing, {GROUPS: self.count})
            shards = {}
            for index in range(cluster.recorded_count(GROUPS)):
                if index not in options.get("without", ()):
                    shards[index] = GroupsShard(GROUPS.shard(index), services)
                    await self._led(shards[index], stack)
                    if shards[index].log_id is None:
                        await shards[index].submit(lambda command: command.name_log(self.clock.new_uuid()))
            yield Broker(shards)

    async def _led(self, shard: CoordinatorShard[Any], stack: AsyncExitStack) -> None:
        stack.push_async_callback(shard.stop)
        await shard.start()
        await shard.until_leading()

    async def begin(self, *, pruned: bool = False) -> None:
        async with self.broker(self.source) as broker:
            await self.commit(broker, 3)
            for shard in broker.groups.values() if pruned else ():
                await Snapshotter(shard, shard._services.log, self.snapshots, RULES, self.clock).take()
            await self.commit(broker, 5)

    async def commit(self, broker: Broker, offset: int) -> None:
        await broker.commit(NAMES, offset)
        self.expected = dict.fromkeys(NAMES, (offset, offset))

    async def migrate(
        self, wanted: int | None, power: Power | None = None, store: MemoryCoordinatorStore | None = None
    ) -> list[str]:
        """The shards that are on the new log, as the tool tells."""
        power = power or Power(10_000)
        source, target = self.source.node(TOOL), self.target.node(TOOL)
        objects = MemoryWalObjectStore(self.clock)
        objects.objects = self.objects.objects
        for one, names in ((source, ["append"]), (target, ["append"]), (objects, ["put", "delete"])):
            for name in names:
                setattr(one, name, power.feeds(getattr(one, name)))
        await source.start()
        await target.start()
        snapshots = Snapshots(objects, "snapshots", self.clock)
        migration = LogMigration(
            source=source,
            target=target,
            destination="elsewhere",
            store=store or self.store,
            snapshots=snapshots,
            clock=self.clock,
        )
        try:
            return [str(moved.shard) for moved in await move(migration, {}, wanted)]
        finally:
            await source.stop()
            await target.stop()

    async def migrate_until_power_fails(self, wanted: int, steps: int) -> bool:
        """Whether it was done before."""
        power = Power(steps)
        work = asyncio.create_task(self.migrate(wanted, power))
        if not await power.goes_off_during(work):
            work.result()
            return True
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        return False

    async def require_whole(self, count: int, store: MemoryCoordinatorStore | None = None) -> None:
        async with self.broker(self.target, store) as broker:
            assert len(broker.groups) == count
            assert broker.content() == self.expected
            await self.commit(broker, 9)
        async with self.broker(self.target, MemoryCoordinatorStore()) as broker:
            assert broker.content() == self.expected


async def _nothing() -> None:
    pass


def story(count: int, work: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await work(World(count))

    run(main)


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize(("count", "wanted"), [(1, 4), (4, 1), (3, 5), (2, 2)])
def test_every_group_is_in_its_new_shard_with_its_offset_and_its_generation(
    count: int, wanted: int, pruned: bool
) -> None:
    async def work(world: World) -> None:
        await world.begin(pruned=pruned)
        others = _copied(world.store)
        moved = await world.migrate(wanted)
        assert moved == ["__cluster_metadata-0", *(f"__consumer_offsets-{index}" for index in range(wanted))]
        with pytest.raises(CoordinatorError, match="moved to elsewhere"):
            async with world.broker(world.source):
                pass
        await world.require_whole(wanted)
        async with world.broker(world.target, others) as broker:
            assert broker.content() == world.expected, "another node's stores are of the old log"

    story(count, work)


def _copied(store: MemoryCoordinatorStore) -> MemoryCoordinatorStore:
    copied = MemoryCoordinatorStore()
    copied._shards = {shard: kept.copy() for shard, kept in store._shards.items()}
    return copied


def test_without_a_wish_there_are_as_many_as_before() -> None:
    async def work(world: World) -> None:
        await world.begin()
        await world.migrate(None)
        await world.require_whole(3)

    story(3, work)


@pytest.mark.parametrize(("count", "wanted"), [(2, 3), (3, 2)])
def test_a_move_that_was_interrupted_anywhere_is_finished_by_the_next(count: int, wanted: int) -> None:
    async def work(steps: int) -> bool:
        world = World(count)
        await world.begin(pruned=True)
        if await world.migrate_until_power_fails(wanted, steps):
            return True
        with suppress(CoordinatorError):  # before the first old log is ended, brokers go on on them
            async with world.broker(world.source) as broker:
                await world.commit(broker, 6)
        again = asyncio.create_task(world.migrate(wanted))
        await again
        await world.require_whole(wanted)
        return False

    steps = 0
    while not run(partial(work, steps)):
        steps += 1
    assert steps >= 20, "the process died in many places"


@pytest.mark.parametrize(("count", "wanted", "goes_on_meanwhile"), [(2, 3, False), (3, 2, True)])
def test_a_run_that_stood_still_takes_nothing_from_the_one_that_moved_the_shards(
    count: int, wanted: int, goes_on_meanwhile: bool
) -> None:
    async def work(steps: int) -> bool:
        world, power = World(count), Power(steps)
        await world.begin(pruned=True)
        first = asyncio.create_task(world.migrate(wanted, power, _copied(world.store)))
        is_off = await power.goes_off_during(first)
        await world.migrate(wanted, store=MemoryCoordinatorStore())
        if goes_on_meanwhile:
            async with world.broker(world.target, MemoryCoordinatorStore()) as broker:
                await world.commit(broker, 7)
                for shard in broker.groups.values():
                    await Snapshotter(shard, shard._services.log, world.snapshots, RULES, world.clock).take()
        power.is_back.set()
        with suppress(MigrationRefusedError, CoordinatorError):
            await first
        await world.require_whole(wanted, MemoryCoordinatorStore())
        return is_off

    steps = 0
    while run(partial(work, steps)):
        steps += 1
    assert steps >= 20, "the run stood still in many places"


def test_no_broker_starts_on_a_new_log_before_all_shards_are_there() -> None:
    async def work(steps: int) -> bool:
        world = World(2)
        await world.begin(pruned=True)
        if await world.migrate_until_power_fails(3, steps):
            return True
        for store in (_copied(world.store), MemoryCoordinatorStore()):
            with suppress(CoordinatorError):
                async with world.broker(world.target, store) as broker:
                    assert broker.content() == world.expected
        return False

    steps = 20
    while not run(partial(work, steps)):
        steps += 1


def test_another_number_than_an_interrupted_run_has_decided_for_is_refused() -> None:
    async def work(world: World) -> None:
        await world.begin()
        steps = 0
        refused = False
        while not refused:
            steps += 1
            assert not await world.migrate_until_power_fails(4, steps)
            try:
                assert not await world.migrate_until_power_fails(3, 0)
            except ChangeRefusedError:
                refused = True
        await world.migrate(None)
        await world.require_whole(4)
        assert await world.migrate(4) != []
        await world.require_whole(4)

    story(2, work)


def test_a_shard_that_nobody_ever_led_is_no_hindrance() -> None:
    async def work(world: World) -> None:
        async with world.broker(world.source, without=[1]) as broker:
            names = [name for name in NAMES if shard_index(name, 3) != 1]
            for name in names:
                await broker.groups[shard_index(name, 3)].submit(partial(_commit, name, 4))
        world.expected = dict.fromkeys(names, (4, 4))
        await world.migrate(2)
        await world.require_whole(2)

    story(3, work)


def test_a_log_that_is_in_use_is_not_moved_to() -> None:
    async def work(world: World) -> None:
        await world.begin()
        async with AsyncExitStack() as stack:
            log = world.target.node(1)
            await log.start()
            stack.push_async_callback(log.stop)
            services = ShardServices(node_id=1, clock=world.clock, log=log, store=MemoryCoordinatorStore())
            shard = GroupsShard(GROUPS.shard(3), services)
            await world._led(shard, stack)
            await shard.submit(partial(_commit, "somebody's", 1))
        with pytest.raises(MigrationRefusedError, match="in use"):
            await world.migrate(4)
        async with world.broker(world.source) as broker:
            assert broker.content() == world.expected

    story(2, work)

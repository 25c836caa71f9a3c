"""A shard moves from one log to another: on fakes, with the process dying between any two steps."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.log_migration import LogMigration
from diskless_core.coordinator.new_log import MigrationRefusedError
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.stores import FailingStore
from tests.support.virtual_time import VirtualClock, run

P0 = PartitionKey(TOPIC, 0)
TOOL = -1
RULES = SnapshotRules(least_bytes=2_000, max_age_ms=3_600_000)


class Power:
    """Goes off at the step that has this number: what would be done then and later never is."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self.is_off = asyncio.Event()

    def feeds(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def with_power(*arguments: Any) -> Any:
            if self._left == 0:
                self.is_off.set()
                await asyncio.Event().wait()
            self._left -= 1
            return await call(*arguments)

        return with_power


class World:
    """Two logs, one object store, and one broker's folder."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.objects = MemoryWalObjectStore(self.clock)
        self.snapshots = Snapshots(self.objects, "snapshots", self.clock)
        self.source, self.target = SharedLog(), SharedLog()
        self.store = FailingStore()
        self.committed = 0

    def node(self, log: SharedLog, node_id: int = 1, store: FailingStore | None = None) -> ShardNode:
        node = ShardNode(log, self.clock, node_id, snapshots=self.snapshots)
        node.store = store or self.store
        return node

    async def started(self, log: SharedLog, store: FailingStore | None = None) -> ShardNode:
        node = self.node(log, store=store)
        try:
            await node.start()
        except CoordinatorError:
            await node.log.stop()
            raise
        return node

    async def begin(self, *, pruned: bool = False) -> None:
        node = await self.started(self.source)
        await node.shard.submit(lambda command: command.name_log(self.clock.new_uuid()))
        await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
        await self.commit(node, 5)
        if pruned:
            await Snapshotter(node.shard, node.log, self.snapshots, RULES, self.clock).take()
            await self.commit(node, 2)
        await node.stop()

    async def commit(self, node: ShardNode, count: int) -> None:
        for _ in range(count):
            await node.commit(commit_of(f"object-{self.committed:04d}", batch(producer=(7, 0, self.committed))))
            self.committed += 1

    async def migrate(self, power: Power | None = None) -> list[bool]:
        power = power or Power(1_000)
        source, target = self.source.node(TOOL), self.target.node(TOOL)
        objects = MemoryWalObjectStore(self.clock)
        objects.objects = self.objects.objects
        for one, names in ((source, ["append"]), (target, ["append"]), (objects, ["put", "delete"])):
            for name in names:
                setattr(one, name, power.feeds(getattr(one, name)))
        await source.start()
        await target.start()
        migration = LogMigration(
            source=source,
            target=target,
            destination="elsewhere",
            store=self.store,
            snapshots=Snapshots(objects, "snapshots", self.clock),
            clock=self.clock,
        )
        try:
            return [moved.was_moved_before for moved in await migration.run({SHARD_ID: DisklessMachine()})]
        finally:
            await source.stop()
            await target.stop()

    async def migrate_until_power_fails(self, steps: int) -> bool:
        """Whether it was done before."""
        power = Power(steps)
        work, failure = asyncio.create_task(self.migrate(power)), asyncio.create_task(power.is_off.wait())
        await asyncio.wait((work, failure), return_when=asyncio.FIRST_COMPLETED)
        failure.cancel()
        if work.done():
            work.result()
            return True
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        return False

    async def require_whole(self, node: ShardNode) -> None:
        found = [one.object_key for one in await node.read_all(P0)]
        assert found == [f"object-{number:04d}" for number in range(self.committed)]
        again = await node.commit(
            commit_of(f"object-{self.committed - 1:04d}", batch(producer=(7, 0, self.committed - 1)))
        )
        assert again[0].base_offset == self.committed - 1, "a repeated commit gets its first answer"


def story(work: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await work(World())

    run(main)


@pytest.mark.parametrize("pruned", [False, True])
def test_the_shard_goes_on_on_the_new_log_and_the_old_one_refuses(pruned: bool) -> None:
    async def work(world: World) -> None:
        await world.begin(pruned=pruned)
        assert await world.migrate() == [False]
        with pytest.raises(CoordinatorError, match="moved to elsewhere"):
            await world.started(world.source)
        node = await world.started(world.target)
        await world.require_whole(node)
        await world.commit(node, 3)
        await Snapshotter(node.shard, node.log, world.snapshots, RULES, world.clock).take()
        await node.stop()
        node = await world.started(world.target, FailingStore())
        await world.require_whole(node)
        await node.stop()

    story(work)


@pytest.mark.parametrize("pruned", [False, True])
def test_a_migration_that_was_interrupted_anywhere_is_finished_by_the_next(pruned: bool) -> None:
    async def work(steps: int) -> bool:
        world = World()
        await world.begin(pruned=pruned)
        if await world.migrate_until_power_fails(steps):
            return True
        with suppress(CoordinatorError):  # before the old log is ended, brokers go on on it
            node = await world.started(world.source)
            await world.commit(node, 1)
            await node.stop()
            newest = await world.snapshots.reached(SHARD_ID, None)
            if newest is not None and (pruned or newest.moved_from is not None):
                with pytest.raises(CoordinatorError):
                    await world.started(world.target, FailingStore())
        await world.migrate()
        node = await world.started(world.target)
        await world.require_whole(node)
        await world.commit(node, 1)
        await node.stop()
        with pytest.raises(CoordinatorError, match="moved to elsewhere"):
            await world.started(world.source)
        return False

    steps = 0
    while not run(partial(work, steps)):
        steps += 1
    assert steps >= 6, "the process died in many places"


def test_another_run_after_the_migration_changes_nothing() -> None:
    async def work(world: World) -> None:
        await world.begin()
        await world.migrate()
        node = await world.started(world.target)
        await world.commit(node, 2)
        await node.stop()
        assert await world.migrate() == [True]
        node = await world.started(world.target)
        await world.require_whole(node)
        await node.stop()

    story(work)


@pytest.mark.parametrize("is_pruned_since", [False, True])
def test_another_node_s_store_of_the_old_log_is_emptied_and_filled_from_the_snapshot(is_pruned_since: bool) -> None:
    async def work(world: World) -> None:
        await world.begin()
        others = FailingStore(world.store.disk.copy())
        await world.migrate()
        node = await world.started(world.target)
        await world.commit(node, 20)
        if is_pruned_since:
            await Snapshotter(node.shard, node.log, world.snapshots, RULES, world.clock).take()
            await world.commit(node, 1)
        await node.stop()
        other = await world.started(world.target, others)
        await world.require_whole(other)
        await other.stop()

    story(work)


def test_a_store_of_a_foreign_log_is_refused() -> None:
    async def work(world: World) -> None:
        await world.begin()
        foreign = World()
        foreign.clock.new_uuid()  # of two clocks with one seed
        await foreign.begin()
        with pytest.raises(CoordinatorError, match="do not belong together"):
            await world.started(world.source, foreign.store)

    story(work)


def test_the_new_log_without_its_first_snapshot_is_refused() -> None:
    async def work(world: World) -> None:
        await world.begin()
        await world.migrate()
        world.objects.objects.clear()
        with pytest.raises(CoordinatorError, match="no snapshot is in"):
            await world.started(world.target)

    story(work)


def test_a_log_that_is_in_use_is_not_moved_to() -> None:
    async def work(world: World) -> None:
        await world.begin()
        other = await world.started(world.target, FailingStore())
        await other.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
        await other.stop()
        with pytest.raises(MigrationRefusedError, match="in use"):
            await world.migrate()
        node = await world.started(world.source)
        await world.require_whole(node)
        await node.stop()

    story(work)


def test_what_a_broker_writes_during_the_migration_is_not_left_behind() -> None:
    async def work(world: World) -> None:
        await world.begin()
        migrating = asyncio.create_task(world.migrate_until_power_fails(3))
        node = await world.started(world.source, FailingStore(world.store.disk.copy()))
        with suppress(CoordinatorError):
            await world.commit(node, 1)
        await migrating
        await node.kill()
        await world.migrate()
        node = await world.started(world.target)
        await world.require_whole(node)
        await node.stop()

    story(work)

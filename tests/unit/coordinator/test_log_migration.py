"""A shard moves from one log to another: on fakes, with the process dying between any two steps."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import pytest

from diskless_core.coordinator import which_log
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.log_migration import LogMigration
from diskless_core.coordinator.new_log import MigrationRefusedError
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import Manifest
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.stores import FailingStore
from tests.support.virtual_time import VirtualClock, run

P0 = PartitionKey(TOPIC, 0)
TOOL = -1
RULES = SnapshotRules(least_bytes=2_000, max_age_ms=3_600_000)


class Power:
    """Goes off at the step that has this number: what would be done then and later is not, until `is_back` is set."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self.is_off = asyncio.Event()
        self.is_back = asyncio.Event()

    def feeds(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def with_power(*arguments: Any) -> Any:
            if self._left == 0 and not self.is_back.is_set():
                self.is_off.set()
                await self.is_back.wait()
            else:
                self._left -= 1
            return await call(*arguments)

        return with_power

    async def goes_off_during(self, work: asyncio.Task[Any]) -> bool:
        """Wait until it is off, and return True; or until the work is done, which never needed that much."""
        off = asyncio.create_task(self.is_off.wait())
        await asyncio.wait((work, off), return_when=asyncio.FIRST_COMPLETED)
        off.cancel()
        return not work.done()


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

    def fed(self, power: Power) -> MemoryWalObjectStore:
        """The object store, as a process sees it that this power feeds."""
        objects = MemoryWalObjectStore(self.clock)
        objects.objects = self.objects.objects
        for name in ("put", "delete"):
            setattr(objects, name, power.feeds(getattr(objects, name)))
        return objects

    def snapshotter(self, node: ShardNode, power: Power | None = None) -> Snapshotter:
        """One of a broker, which stands still when its power is off: at what it writes and at what it removes."""
        power = power or Power(1_000)
        node.log.prune = power.feeds(node.log.prune)  # type: ignore[method-assign]
        snapshots = Snapshots(self.fed(power), "snapshots", self.clock)
        return Snapshotter(node.shard, node.log, snapshots, RULES, self.clock)

    async def go_on(self, log: SharedLog) -> None:
        """A broker starts on a log, writes, and takes a snapshot: nothing but that is left of the state then."""
        node = await self.started(log, FailingStore())
        await self.require_whole(node)
        await self.commit(node, 5)
        await self.snapshotter(node).take()
        assert (await node.log.bounds(SHARD_ID)).start > 0, "the log is pruned"
        await node.stop()

    async def commit(self, node: ShardNode, count: int) -> None:
        for _ in range(count):
            await node.commit(commit_of(f"object-{self.committed:04d}", batch(producer=(7, 0, self.committed))))
            self.committed += 1

    async def migrate(self, power: Power | None = None, store: FailingStore | None = None) -> list[bool]:
        power = power or Power(1_000)
        source, target = self.source.node(TOOL), self.target.node(TOOL)
        for log in (source, target):
            log.append = power.feeds(log.append)  # type: ignore[method-assign]
        await source.start()
        await target.start()
        migration = LogMigration(
            source=source,
            target=target,
            destination="elsewhere",
            store=store or self.store,
            snapshots=Snapshots(self.fed(power), "snapshots", self.clock),
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
        work = asyncio.create_task(self.migrate(power))
        if not await power.goes_off_during(work):
            work.result()
            return True
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        return False

    async def whole_snapshots(self) -> list[Manifest]:
        """Each is asked for all of its objects."""
        async with aclosing(reading.newest_first(self.objects, "snapshots", SHARD_ID)) as manifests:
            found = [manifest async for manifest in manifests]
        for manifest in found:
            await self.snapshots.require_whole(SHARD_ID, manifest)
        return found

    async def log_id(self, log: SharedLog) -> uuid.UUID:
        reader = log.node(TOOL)
        await reader.start()
        name = await which_log.name_of(reader, SHARD_ID, await reader.bounds(SHARD_ID))
        await reader.stop()
        assert name is not None
        return name.log_id

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


# --- processes that stood still, and go on ----------------------------------------------------------------------------


def at_each_step(work: Callable[[World, Power], Awaitable[bool]]) -> int:
    """Live through a story with the power going off at each step in turn, until `work` says that it never did.

    Returns how many steps there were.
    """

    async def main(steps: int) -> bool:
        return await work(World(), Power(steps))

    steps = 0
    while run(partial(main, steps)):
        steps += 1
    return steps


@pytest.mark.parametrize("moves_before", [0, 1])
def test_a_leader_of_the_old_log_that_wakes_takes_nothing_from_the_new_one(moves_before: int) -> None:
    async def work(world: World, power: Power) -> bool:
        await world.begin(pruned=True)
        for _ in range(moves_before):
            of_former = dict(world.objects.objects)
            await world.migrate()
            world.objects.objects |= of_former  # a leader of the log before that was away puts one
            world.source, world.target, world.store = world.target, SharedLog(), FailingStore()
        old = await world.started(world.source, FailingStore())
        await world.commit(old, 30)
        taking = asyncio.create_task(world.snapshotter(old, power).take())
        is_off = await power.goes_off_during(taking)
        assert await world.migrate(store=FailingStore()) == [False]
        await world.go_on(world.target)
        power.is_back.set()
        await asyncio.wait((taking,))
        await old.stop()
        await world.go_on(world.target)
        assert {one.log_id for one in await world.whole_snapshots()} >= {await world.log_id(world.target)}
        return is_off

    assert at_each_step(work) == 4 + moves_before, "two puts, the prune, the older snapshots, those of the log before"


def test_a_leader_that_was_deposed_takes_nothing_that_its_successor_needs() -> None:
    async def work(world: World, power: Power) -> bool:
        await world.begin(pruned=True)
        old = await world.started(world.source, FailingStore())
        await world.commit(old, 30)
        taking = asyncio.create_task(world.snapshotter(old, power).take())
        is_off = await power.goes_off_during(taking)
        new = world.node(world.source, node_id=2, store=FailingStore())
        world.source.set_leader(SHARD_ID, 2)
        await new.start()
        await world.commit(new, 5)
        await world.snapshotter(new).take()
        power.is_back.set()
        await asyncio.wait((taking,))
        newest = await world.snapshots.newest(SHARD_ID)
        assert newest is not None
        await world.snapshots.require_whole(SHARD_ID, newest)
        for node in (old, new):
            await node.stop()
        world.source.set_leader(SHARD_ID, 1)
        await world.go_on(world.source)
        return is_off

    assert at_each_step(work) == 4


async def outcome(migrating: asyncio.Task[list[bool]]) -> list[bool] | None:
    """What a run came to; None where it was refused."""
    try:
        return await migrating
    except (MigrationRefusedError, CoordinatorError):
        return None


@pytest.mark.parametrize("goes_on_meanwhile", [False, True])
def test_a_run_that_stood_still_takes_nothing_from_the_one_that_moved_the_shard(goes_on_meanwhile: bool) -> None:
    async def work(world: World, power: Power) -> bool:
        await world.begin(pruned=True)
        first = asyncio.create_task(world.migrate(power))
        is_off = await power.goes_off_during(first)
        assert len(await world.migrate(store=FailingStore())) == 1
        if goes_on_meanwhile:
            await world.go_on(world.target)
        power.is_back.set()
        await outcome(first)
        await world.go_on(world.target)
        assert await world.migrate(store=FailingStore()) == [True]
        await world.go_on(world.target)
        assert {one.log_id for one in await world.whole_snapshots()} == {await world.log_id(world.target)}
        with pytest.raises(CoordinatorError, match="moved to elsewhere"):
            await world.started(world.source, FailingStore())
        return is_off

    assert at_each_step(work) >= 7


def test_of_two_runs_that_take_turns_one_moves_the_shard_and_the_other_takes_nothing_from_it() -> None:
    async def work(steps: tuple[int, int]) -> tuple[bool, bool]:
        world, powers = World(), (Power(steps[0]), Power(steps[1]))
        await world.begin(pruned=True)
        runs, stood_still = list[asyncio.Task[list[bool]]](), list[bool]()
        for power in powers:
            runs.append(asyncio.create_task(world.migrate(power, FailingStore(world.store.disk.copy()))))
            stood_still.append(await power.goes_off_during(runs[-1]))
        for power, migrating in zip(powers, runs, strict=True):
            power.is_back.set()
            await outcome(migrating)
        assert len(await world.migrate(store=FailingStore())) == 1
        await world.go_on(world.target)
        return stood_still[0], stood_still[1]

    first = 0
    while True:
        second = 0
        while all(found := run(partial(work, (first, second)))):
            second += 1
        if not found[0]:
            break
        first += 1
    assert first >= 7

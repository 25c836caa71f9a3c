"""A shard's state is taken while another node leads it, and a cluster elsewhere begins with it."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.new_log import MigrationRefusedError, NewLog
from diskless_core.coordinator.shard_points import ShardPoint, ShardPoints
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.diskless.tables import LIVE_FILES
from diskless_core.plugin.coordinator_log import LogBounds
from diskless_core.plugin.coordinator_store import Key
from diskless_core.plugin.shard import ShardId
from diskless_core.testing.fakes.log import FakeCoordinatorLog, SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

P0 = PartitionKey(TOPIC, 0)
TOOL = -1
RULES = SnapshotRules(least_bytes=2_000, max_age_ms=3_600_000)


class World:
    """A shard that is led and written to, and a place that its points are put into."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.snapshots = Snapshots(MemoryWalObjectStore(self.clock), "snapshots", self.clock)
        self.target = Snapshots(MemoryWalObjectStore(self.clock), "snapshots", self.clock)
        self.log = SharedLog()
        self.leader = ShardNode(self.log, self.clock, 1, snapshots=self.snapshots)
        self.reader = self.log.node(TOOL)
        self.points = ShardPoints(self.reader, MemoryCoordinatorStore(), self.snapshots, self.target, self.clock)
        self.committed = 0

    async def begin(self, *, pruned: bool = False) -> None:
        await self.leader.start()
        await self.reader.start_reading()
        await self.leader.shard.submit(lambda command: command.name_log(self.clock.new_uuid()))
        await self.leader.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
        await self.commit(5)
        if pruned:
            await Snapshotter(self.leader.shard, self.leader.log, self.snapshots, RULES, self.clock).take()

    async def commit(self, count: int) -> None:
        for _ in range(count):
            await self.leader.commit(commit_of(f"object-{self.committed}", batch(producer=(7, 0, self.committed))))
            self.committed += 1

    async def take(self, without: frozenset[Key] = frozenset()) -> ShardPoint:
        machine = DisklessMachine()
        await self.points.read_up(SHARD_ID, machine)
        return await self.points.put(SHARD_ID, machine, self.clock.new_uuid(), without={LIVE_FILES.name: without})

    async def take_snapshot(self) -> None:
        """One by the leader, which prunes nothing."""
        await self.leader.shard.flush()
        await self.leader.shard.take_snapshot(self.snapshots)

    async def end(self) -> None:
        await self.leader.stop()
        await self.reader.stop()


@pytest.mark.parametrize("pruned", [False, True])
def test_a_cluster_elsewhere_begins_with_what_was_committed_and_the_log_is_left_alone(pruned: bool) -> None:
    async def scenario() -> None:
        world = World()
        await world.begin(pruned=pruned)
        earlier = await world.take()
        await world.commit(2)
        before = await world.reader.bounds(SHARD_ID)
        point = await world.take()
        assert await world.reader.bounds(SHARD_ID) == before
        await world.commit(1)
        await world.target.remove_log(SHARD_ID, earlier.name.log_id)

        elsewhere = SharedLog()
        tool = elsewhere.node(TOOL)
        await tool.start()
        new_log = NewLog(tool, world.clock)
        term = await new_log.claim(SHARD_ID, point.name.moved_from)
        await new_log.name(SHARD_ID, point.name, term)
        assert await new_log.claim(SHARD_ID, point.name.moved_from) is None, "it can be done again"
        with pytest.raises(MigrationRefusedError, match="in use"):
            await new_log.claim(SHARD_ID, world.clock.new_uuid())
        await tool.stop()
        node = ShardNode(elsewhere, world.clock, 1, snapshots=world.target)
        await node.start()

        assert [run.object_key for run in await node.read_all(P0)] == [f"object-{number}" for number in range(7)]
        assert (await node.commit(commit_of("new", batch(producer=(7, 0, 7)))))[0].base_offset == 7
        assert len(await world.leader.read_all(P0)) == 8, "the other cluster goes on"
        await node.stop()
        await world.end()

    run(scenario)


def test_rows_can_be_left_out() -> None:
    async def scenario() -> None:
        world = World()
        await world.begin()

        point = await world.take(frozenset({("object-0",), ("object-3",), ("absent",)}))

        rows = await world.target.rows_of(point.manifest)
        assert [row[0] for row in rows[LIVE_FILES.name]] == ["object-1", "object-2", "object-4"]
        await world.end()

    run(scenario)


def test_a_snapshot_that_is_newer_than_the_end_that_was_seen_of_the_log_is_used_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        world = World()
        await world.begin()
        looks = iter([world.reader.bounds])

        async def bounds(shard: ShardId) -> LogBounds:
            seen = await FakeCoordinatorLog.bounds(world.reader, shard)
            if next(looks, None) is not None:
                await world.commit(5)
                await world.take_snapshot()
            return seen

        monkeypatch.setattr(world.reader, "bounds", bounds)
        point = await world.take()

        assert point.offset == (await world.reader.bounds(SHARD_ID)).end
        rows = await world.target.rows_of(point.manifest)
        assert len(rows[LIVE_FILES.name]) == 10
        await world.end()

    run(scenario)


def test_a_log_that_ends_before_its_newest_snapshot_is_refused_in_time() -> None:
    async def scenario() -> None:
        world = World()
        await world.begin()
        seen = (await world.reader.bounds(SHARD_ID)).end
        await world.commit(5)
        await world.take_snapshot()

        world.log.truncate(SHARD_ID, seen)
        with pytest.raises(CoordinatorError, match="lost or cut"):
            await world.take()
        await world.end()

    run(scenario)

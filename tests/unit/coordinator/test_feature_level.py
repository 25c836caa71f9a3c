"""Shards of two builds on one log: what the older one does not know, and the level that keeps it out for now."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.tables import CLUSTER, CLUSTER_ID
from diskless_core.coordinator import entries
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.feature_level import encode_level
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.upkeep import Upkeep
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.groups.state_machine import GroupsMachine
from diskless_core.plugin.coordinator_store import CoordinatorStore
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.feature_levels import BUILD_LEVELS, FIRST_LEVEL, FeatureLevelError, FeatureLevels
from diskless_core.protocol.record_batch import RecordData
from diskless_core.shards import CLUSTER_SHARD, DISKLESS, GROUPS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.next_build import (
    NEXT_LEVEL,
    NEXT_LEVELS,
    NOTES,
    NextClusterMachine,
    Note,
    ignorable_note,
    next_build,
    note,
)
from tests.support.virtual_time import VirtualClock, run

PATIENCE_S = 600
SHARD = DISKLESS.shard(0)
BUILD_LEVEL = BUILD_LEVELS.supported.newest


async def nothing() -> None:
    """A new cluster has nothing to be looked at."""


class Ground:
    """One log and one object store, and the nodes on them."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.objects = MemoryWalObjectStore(self.clock)
        self.shared = SharedLog()
        self.running: list[CoordinatorShard[Any]] = []

    async def services(
        self, node_id: int, levels: FeatureLevels = BUILD_LEVELS, store: CoordinatorStore | None = None
    ) -> ShardServices:
        log = self.shared.node(node_id)
        await log.start()
        return ShardServices(
            node_id=node_id,
            clock=self.clock,
            log=log,
            store=store or MemoryCoordinatorStore(),
            snapshots=self.snapshots(levels),
            levels=levels,
        )

    def snapshots(self, levels: FeatureLevels = BUILD_LEVELS) -> Snapshots:
        return Snapshots(self.objects, "snapshots", self.clock, levels)

    async def cluster(self, node_id: int, store: CoordinatorStore | None = None) -> ClusterShard:
        """A replica of the cluster shard, of this build."""
        return await self._started(ClusterShard(CLUSTER_SHARD, await self.services(node_id, store=store)))

    async def next_cluster(self, node_id: int, store: CoordinatorStore | None = None) -> ClusterShard:
        """A replica of the cluster shard, of the next build."""
        with next_build() as levels:
            shard = ClusterShard(CLUSTER_SHARD, await self.services(node_id, levels, store))
        assert isinstance(shard.machine, NextClusterMachine)
        return await self._started(shard)

    async def replica(
        self, shard_id: ShardId, machine: Any, node_id: int, levels: FeatureLevels = BUILD_LEVELS
    ) -> CoordinatorShard[Any]:
        """A replica of a shard of any other kind."""
        return await self._started(CoordinatorShard(shard_id, machine, await self.services(node_id, levels)))

    async def _started(self, shard: Any) -> Any:
        await shard.start()
        self.running.append(shard)
        return shard

    async def stop(self, *shards: CoordinatorShard[Any]) -> None:
        for shard in shards or tuple(self.running):
            await shard.stop()
            self.running.remove(shard)

    def lead(self, node_id: int, shard: ShardId = CLUSTER_SHARD) -> None:
        self.shared.set_leader(shard, node_id)

    async def write(self, leader: CoordinatorShard[Any], *records: RecordData) -> int:
        """Put records into the log as the shard's leader would, whatever it thinks of them. The offset after them."""
        await leader.until_leading()
        await leader.barrier()
        leader._leader.enqueue(records, {})
        offset = leader.next_offset
        await self.until(lambda: leader.next_offset > offset)
        return leader.next_offset

    async def until(self, condition: Any) -> None:
        deadline = self.clock.monotonic() + PATIENCE_S
        while not condition():
            assert self.clock.monotonic() < deadline, "it never happened"
            await asyncio.sleep(0.05)

    async def snapshot(self, shard: CoordinatorShard[Any], levels: FeatureLevels) -> None:
        """Take a snapshot, and prune the log below it."""
        rules = SnapshotRules(least_bytes=1, max_age_ms=1)
        await Snapshotter(shard, shard._services.log, self.snapshots(levels), rules, self.clock).take()


def emit(*notes: str) -> Any:
    def operation(command: Command[Any]) -> None:
        for text in notes:
            command.emit(Note(text))

    return operation


def notes_of(shard: CoordinatorShard[Any]) -> dict[str, int]:
    return {text: count for (text,), count in shard.state.rows(NOTES)}


# --- what a replica does not know ------------------------------------------------------------------------------------


def test_a_record_that_a_version_does_not_know_stops_the_shard_on_that_node_alone_with_a_clear_message() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(2)
        new, old = await ground.next_cluster(2), await ground.cluster(1)
        await ground.write(new, note("one"))
        await new.barrier()

        await ground.until(lambda: old.failure is not None)
        assert old.failure is not None
        assert "does not know the record with api key 5000, version 0" in old.failure
        assert "upgrade this broker" in old.failure
        assert new.failure is None
        with pytest.raises(CoordinatorError, match="upgrade this broker"):
            await old.until_serving()
        await ground.stop()

    run(test)


def test_a_later_version_of_a_known_record_stops_the_shard_as_well() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(2)
        new, old = await ground.next_cluster(2), await ground.cluster(1)
        await ground.write(new, RecordData(key=None, value=b"\x01\x02\x09anything"))

        await ground.until(lambda: old.failure is not None)
        assert old.failure is not None
        assert "knows TopicRecord up to version 0, not version 9" in old.failure
        await ground.stop()

    run(test)


@pytest.mark.parametrize(
    ("shard_id", "machine"), [(CLUSTER_SHARD, None), (SHARD, DisklessMachine), (GROUPS.shard(0), GroupsMachine)]
)
def test_a_record_that_may_be_ignored_is_passed_over_by_all_replicas_of_any_kind(
    shard_id: ShardId, machine: Any
) -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(1, shard_id)
        if machine is None:
            leader, other = await ground.cluster(1), await ground.next_cluster(2)
        else:
            leader = await ground.replica(shard_id, machine(), 1)
            other = await ground.replica(shard_id, machine(), 2, NEXT_LEVELS)
        end = await ground.write(leader, ignorable_note("psst"), ignorable_note("again"))
        await leader.barrier()

        await ground.until(lambda: other.next_offset > end)
        assert (leader.failure, other.failure) == (None, None)
        assert leader._replica.acceptance == other._replica.acceptance
        if machine is None:
            assert notes_of(other) == {}
        await ground.stop()

    run(test)


def test_a_feature_that_a_version_does_not_know_stops_the_shard() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(1, SHARD)
        leader, other = [await ground.replica(SHARD, DisklessMachine(), node_id) for node_id in (1, 2)]
        unknown = encode_level(1)
        assert unknown.value is not None
        await ground.write(leader, RecordData(key=None, value=unknown.value.replace(b"diskless.", b"diskfull.")))

        await ground.until(lambda: other.failure is not None)
        assert "does not know the feature diskfull.version" in (other.failure or "")
        await ground.stop()

    run(test)


# --- the level keeps new records out ---------------------------------------------------------------------------------


def test_a_leader_writes_nothing_that_needs_more_than_the_level_and_only_the_command_fails() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(2)
        old = await ground.cluster(1)
        new = await ground.next_cluster(2)
        await new.until_leading()
        await new.submit(lambda command: command.raise_level(BUILD_LEVEL))
        with pytest.raises(FeatureLevelError, match=f"needs diskless.version {NEXT_LEVEL}"):
            await new.submit(emit("too early"))
        assert new.leading
        assert notes_of(new) == {}

        end = new.next_offset
        await new.barrier()
        await ground.until(lambda: old.next_offset > end)
        assert (old.failure, old.level, new.level) == (None, BUILD_LEVEL, BUILD_LEVEL)

        assert await new.raise_level(NEXT_LEVEL) is None
        await new.submit(emit("in time"))
        assert (new.level, notes_of(new)) == (NEXT_LEVEL, {"in time": 1})

        await ground.until(lambda: old.failure is not None)
        assert f"diskless.version {NEXT_LEVEL}" in (old.failure or "")
        await ground.stop()

    run(test)


def test_a_command_that_raises_the_level_may_use_it_at_once() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(2)
        new, follower = await ground.next_cluster(2), await ground.next_cluster(3)
        await new.until_leading()

        def operation(command: Command[Any]) -> None:
            command.emit(Note("both"))
            command.raise_level(NEXT_LEVEL)

        await new.submit(operation)
        await ground.until(lambda: follower.next_offset == new.next_offset)
        assert (follower.level, notes_of(follower)) == (NEXT_LEVEL, {"both": 1})
        await ground.stop()

    run(test)


def test_a_new_cluster_is_at_the_level_of_the_build_that_names_it() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(2)
        new = await ground.next_cluster(2)
        assert await new.cluster_id("c", nothing) == "c"
        assert (new.level, new.state.committed(CLUSTER, CLUSTER_ID)) == (NEXT_LEVEL, "c")
        await ground.stop()

    run(test)


def test_leaders_of_other_shards_follow_the_level_of_the_cluster() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(2)
        ground.lead(2, SHARD)
        cluster = await ground.next_cluster(2)
        shard = await ground.replica(SHARD, DisklessMachine(), 2, NEXT_LEVELS)
        other_cluster = await ground.next_cluster(3)
        other = await ground.replica(SHARD, DisklessMachine(), 3, NEXT_LEVELS)
        tasks = [
            asyncio.create_task(Upkeep(one, [two], ground.clock).follow(two))
            for one, two in ((cluster, shard), (other_cluster, other))
        ]
        await cluster.until_leading()
        await shard.until_leading()
        assert (cluster.level, shard.level) == (FIRST_LEVEL, FIRST_LEVEL)

        assert await cluster.raise_level(NEXT_LEVEL) is None
        await ground.until(lambda: (shard.level, other.level) == (NEXT_LEVEL, NEXT_LEVEL))

        end = shard.next_offset
        ground.lead(3, SHARD)
        await other.until_leading()
        await other.barrier()
        written = [entry for entry in ground.shared.content(SHARD) if entry.offset >= end]
        levels = [entries.decode(entry.data) for entry in written]
        assert all(encode_level(NEXT_LEVEL) not in getattr(entry, "records", ()) for entry in levels), "once is enough"
        for task in tasks:
            task.cancel()
        await ground.stop()

    run(test)


# --- stores and snapshots --------------------------------------------------------------------------------------------


def test_a_store_of_a_higher_level_is_refused_and_left_as_it_is() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(2)
        store = MemoryCoordinatorStore()
        new = await ground.next_cluster(2, store)
        await new.until_leading()
        await new.raise_level(NEXT_LEVEL)
        await ground.stop(new)

        with pytest.raises(CoordinatorError, match=rf"store .* diskless.version {NEXT_LEVEL}.*upgrade this broker"):
            await ground.cluster(1, store)
        again = await ground.next_cluster(2, store)
        assert (again.level, again.stored_offset) == (NEXT_LEVEL, again.next_offset)
        await ground.stop()

    run(test)


def test_a_store_goes_from_build_to_build_without_being_filled_again_while_the_level_is_low() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(1)
        store = MemoryCoordinatorStore()
        old = await ground.cluster(1, store)
        await old.cluster_id("c", nothing)
        end = old.next_offset
        await ground.stop(old)
        new = await ground.next_cluster(1, store)
        assert new.next_offset >= end
        assert new.stored_offset >= end
        await ground.stop(new)
        old_again = await ground.cluster(1, store)
        assert old_again.stored_offset >= end
        assert old_again.state.committed(CLUSTER, CLUSTER_ID) == "c"
        await ground.stop()

    run(test)


def test_a_snapshot_is_written_at_the_level_in_force_and_an_older_build_loads_it() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(1)
        old = await ground.cluster(1)
        await old.cluster_id("c", nothing)
        new = await ground.next_cluster(2)
        ground.lead(2)
        await new.until_leading()
        await ground.snapshot(new, NEXT_LEVELS)
        manifest = await ground.snapshots().newest(CLUSTER_SHARD)
        assert manifest is not None
        assert manifest.level == BUILD_LEVEL
        assert NOTES.name not in manifest.tables

        third = await ground.cluster(3)
        assert third.state.committed(CLUSTER, CLUSTER_ID) == "c"
        await ground.stop()

    run(test)


def test_a_snapshot_of_a_higher_level_is_refused_and_a_build_of_that_level_loads_it() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(2)
        new = await ground.next_cluster(2)
        await new.cluster_id("c", nothing)
        await new.submit(emit("kept"))
        await ground.snapshot(new, NEXT_LEVELS)
        manifest = await ground.snapshots(NEXT_LEVELS).newest(CLUSTER_SHARD)
        assert manifest is not None
        assert manifest.level == NEXT_LEVEL

        with pytest.raises(CoordinatorError, match=rf"diskless.version {NEXT_LEVEL}, and this version .* upgrade"):
            await ground.cluster(1)
        third = await ground.next_cluster(3)
        assert notes_of(third) == {"kept": 1}
        await ground.stop()

    run(test)


def test_a_snapshot_from_before_a_table_came_is_loaded_with_that_table_empty() -> None:
    async def test() -> None:
        ground = Ground()
        ground.lead(1)
        old = await ground.cluster(1)
        await old.cluster_id("c", nothing)
        await ground.snapshot(old, BUILD_LEVELS)
        new = await ground.next_cluster(2)
        assert (new.state.committed(CLUSTER, CLUSTER_ID), notes_of(new)) == ("c", {})
        await ground.stop()

    run(test)

"""Nodes that follow a shard which another one leads: who may lead, when a follower serves, and how one that has fallen
behind the start of the log goes on."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Claim
from diskless_core.coordinator.errors import CoordinatorError, NotCoordinatorError
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.coordinator.tables import Writes
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.tables import PARTITIONS, TOPICS
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LeadershipHint
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.shard import ShardId
from diskless_core.snapshot.format import SnapshotError
from diskless_core.testing.fakes.log import FakeCoordinatorLog, SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from tests.support.shards import OTHER_TOPIC, SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

P0 = PartitionKey(TOPIC, 0)
OTHER = PartitionKey(OTHER_TOPIC, 0)
ALWAYS = SnapshotRules(least_bytes=1, max_age_ms=1)
PATIENCE_S = 600


class Pair:
    """Node 1, which leads, and node 2, which follows, on one log and one object store."""

    def __init__(self, shared: SharedLog | None = None) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.objects = MemoryWalObjectStore(self.clock)
        self.snapshots = Snapshots(self.objects, "snapshots", self.clock)
        self.shared = shared or SharedLog()
        self.leader = self.node(1)
        self.follower = self.node(2)
        self.committed = 0

    def node(self, node_id: int, *, candidate: bool = True) -> ShardNode:
        return ShardNode(self.shared, self.clock, node_id, snapshots=self.snapshots, candidate=candidate)

    async def start(self) -> None:
        await self.leader.start()
        await self.leader.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
        await self.leader.shard.create_partitions(uuid.UUID(bytes=OTHER_TOPIC), "u", [0])
        await self.follower.start(lead=False)

    async def commit(self, count: int) -> None:
        for _ in range(count):
            await self.leader.commit(commit_of(f"object-{self.committed:04d}", batch(producer=(7, 0, self.committed))))
            self.committed += 1

    def snapshotter(self, node: ShardNode) -> Snapshotter:
        return Snapshotter(node.shard, node.log, self.snapshots, ALWAYS, self.clock)

    async def leave_behind(self) -> None:
        """The follower hears nothing while much is committed, and the log is pruned behind it."""
        await self.commit(5)
        await self.until_caught_up()
        self.shared.pause_reads(2)
        await self.commit(30)
        await self.leader.shard.delete_topic(uuid.UUID(bytes=OTHER_TOPIC))
        await self.snapshotter(self.leader).take()
        assert (await self.leader.log.bounds(SHARD_ID)).start > self.follower.shard.next_offset
        await self.commit(5)

    async def until_caught_up(self) -> None:
        await self.until(lambda: self.follower.shard.next_offset == self.leader.shard.next_offset)

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = self.clock.monotonic() + PATIENCE_S
        while not condition():
            assert self.clock.monotonic() < deadline, "it never happened"
            await asyncio.sleep(0.01)


def on_a_pair(story: Callable[[Pair], Awaitable[None]]) -> None:
    async def main() -> None:
        pair = Pair()
        await pair.start()
        await story(pair)
        for node in (pair.leader, pair.follower):
            await node.stop()

    run(main)


# --- behind the start of the log -------------------------------------------------------------------------------------


def test_a_follower_that_fell_behind_the_log_goes_on_from_a_snapshot_without_a_restart() -> None:
    async def story(pair: Pair) -> None:
        heard: list[Writes] = []
        await pair.leave_behind()
        pair.follower.shard.on_commit(heard.append)
        pair.shared.resume_reads(2)
        await pair.until_caught_up()
        assert pair.follower.tables() == pair.leader.tables()
        assert await pair.follower.read_all(P0) == await pair.leader.read_all(P0)
        assert heard[0][PARTITIONS].keys() == {P0, OTHER}, "listeners are told of what differs"
        assert heard[0][TOPICS][OTHER_TOPIC,] is None
        await pair.commit(1)
        await pair.until_caught_up()
        assert await pair.follower.read_all(P0) == await pair.leader.read_all(P0)

    on_a_pair(story)


def test_whoever_waits_for_a_partition_hears_of_it_after_a_restore() -> None:
    async def story(pair: Pair) -> None:
        await pair.leave_behind()
        moved: list[PartitionKey] = []
        pair.follower.shard.on_head_moved(moved.extend)
        pair.shared.resume_reads(2)
        await pair.until(lambda: P0 in moved)

    on_a_pair(story)


def test_until_a_snapshot_can_be_had_a_follower_keeps_what_it_knows_and_says_what_it_waits_for() -> None:
    async def story(pair: Pair) -> None:
        await pair.leave_behind()
        shard = pair.follower.shard
        before = pair.follower.tables()
        with pair.objects.failing(Operation.GET):
            pair.shared.resume_reads(2)
            await asyncio.sleep(60)
            assert shard.failure is None
            assert "restored from a snapshot" in str(shard.obstacle)
            assert pair.follower.tables() == before
            with pytest.raises(CoordinatorStoreError, match="snapshot"):
                await shard.with_store(lambda store: store.applied_offset())
            with pytest.raises(CoordinatorStoreError, match="snapshot"):
                await shard.flush()
        await pair.until_caught_up()
        assert shard.obstacle is None
        assert pair.follower.tables() == pair.leader.tables()

    on_a_pair(story)


def test_a_node_that_is_stopped_while_it_is_restored_begins_anew_at_its_next_start() -> None:
    async def story(pair: Pair) -> None:
        await pair.leave_behind()
        with pair.objects.failing(Operation.GET):
            pair.shared.resume_reads(2)
            await pair.until(lambda: "restored" in str(pair.follower.shard.obstacle))
            await pair.follower.stop()
        await pair.follower.start(lead=False)
        await pair.until_caught_up()
        assert pair.follower.tables() == pair.leader.tables()
        assert await pair.follower.read_all(P0) == await pair.leader.read_all(P0)

    on_a_pair(story)


def test_a_node_claims_nothing_while_it_is_restored_and_leads_afterwards() -> None:
    async def story(pair: Pair) -> None:
        await pair.leave_behind()
        with pair.objects.failing(Operation.GET):
            pair.shared.resume_reads(2)
            await pair.until(lambda: "restored" in str(pair.follower.shard.obstacle))
            pair.shared.set_leader(SHARD_ID, 2, seen_by=[2])
            await asyncio.sleep(30)
            assert pair.leader.shard.leading, "nobody took it from the one that can lead"
        pair.shared.set_leader(SHARD_ID, 2)
        await pair.follower.shard.until_leading()
        [result] = await pair.follower.commit(commit_of("of another leader", batch()))
        assert result.base_offset == pair.committed

    on_a_pair(story)


def test_a_snapshot_that_gives_way_to_a_newer_one_while_it_is_loaded_is_left_for_that_one() -> None:
    async def story(pair: Pair) -> None:
        await pair.leave_behind()
        pair.shared.pause_reads(2)
        get, calls = pair.objects.get, 0

        async def get_with_a_snapshot_in_between(key: str, start: int, end: int) -> object:
            nonlocal calls
            calls += 1
            if calls == 2:  # the manifest was read, and the first part is about to be
                await pair.snapshotter(pair.leader).take()
            return await get(key, start, end)

        pair.objects.get = get_with_a_snapshot_in_between  # type: ignore[method-assign,assignment]  # of this one store
        await pair.commit(3)
        await pair.follower.kill()
        await pair.follower.start(lead=False)
        pair.shared.resume_reads(2)
        await pair.until_caught_up()
        assert pair.follower.tables() == pair.leader.tables()

    on_a_pair(story)


def test_a_follower_that_no_snapshot_reaches_says_so_and_waits_for_one() -> None:
    async def story(pair: Pair) -> None:
        await pair.leave_behind()
        kept = dict(pair.objects.objects)
        await pair.snapshotter(pair.leader).take()
        newest = dict(pair.objects.objects)
        pair.objects.objects.clear()
        pair.objects.objects.update(kept)
        gets = pair.objects.calls[Operation.GET]
        pair.shared.resume_reads(2)
        await asyncio.sleep(60)
        assert "restored from a snapshot" in str(pair.follower.shard.obstacle)
        assert pair.objects.calls[Operation.GET] - gets < 200, "it waits between attempts"
        pair.objects.objects.update(newest)
        await pair.until_caught_up()
        assert pair.follower.tables() == pair.leader.tables()

    on_a_pair(story)


# --- snapshots of several nodes --------------------------------------------------------------------------------------


def test_a_node_takes_snapshots_while_it_leads() -> None:
    async def story(pair: Pair) -> None:
        await pair.commit(3)
        working = asyncio.create_task(pair.snapshotter(pair.follower).run())
        await asyncio.sleep(10)
        assert pair.objects.objects == {}
        pair.shared.set_leader(SHARD_ID, 2)
        await pair.follower.shard.until_leading()
        await asyncio.sleep(10)
        first = await pair.snapshots.newest(SHARD_ID)
        assert first is not None
        pair.shared.set_leader(SHARD_ID, 1)
        await pair.leader.shard.until_leading()
        await pair.commit(3)
        await asyncio.sleep(10)
        assert await pair.snapshots.newest(SHARD_ID) == first
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    on_a_pair(story)


def test_a_leader_that_is_none_any_more_does_not_remove_the_snapshot_of_the_one_that_is() -> None:
    async def story(pair: Pair) -> None:
        await pair.commit(3)
        await pair.until_caught_up()
        await pair.follower.shard.flush()
        late = await pair.follower.shard.take_snapshot(pair.snapshots)
        await pair.commit(3)
        await pair.snapshotter(pair.leader).take()
        with pytest.raises(SnapshotError, match="is no longer whole"):
            await pair.snapshots.remove_older(SHARD_ID, late)
        newest = await pair.snapshots.newest(SHARD_ID)
        assert newest is not None
        assert newest.applied_offset > late.applied_offset
        assert {part.key for part in newest.parts} <= pair.objects.objects.keys()

    on_a_pair(story)


def test_two_nodes_that_take_a_snapshot_of_the_same_offset_leave_a_whole_one() -> None:
    async def story(pair: Pair) -> None:
        await pair.commit(3)
        await pair.until_caught_up()
        for node in (pair.leader, pair.follower):
            await node.shard.flush()
        both = await asyncio.gather(
            *(node.shard.take_snapshot(pair.snapshots) for node in (pair.leader, pair.follower))
        )
        assert both[0].applied_offset == both[1].applied_offset
        for manifest in both:
            await pair.snapshots.remove_older(SHARD_ID, manifest)
        newest = await pair.snapshots.newest(SHARD_ID)
        assert newest in both
        assert {part.key for part in newest.parts} <= pair.objects.objects.keys()

    on_a_pair(story)


# --- when a follower serves ------------------------------------------------------------------------------------------


def test_a_follower_serves_once_it_has_read_what_was_there_at_its_start_and_knows_who_leads() -> None:
    async def story(pair: Pair) -> None:
        await pair.follower.stop()
        await pair.commit(5)
        pair.shared.pause_reads(2)
        pair.shared.set_leader(SHARD_ID, None, seen_by=[2])
        await pair.follower.start(lead=False)
        shard = pair.follower.shard
        serving = asyncio.create_task(shard.until_serving())
        await asyncio.sleep(1)
        assert "nobody is known to lead" in str(shard.obstacle)
        pair.shared.set_leader(SHARD_ID, 1, seen_by=[2])
        await asyncio.sleep(1)
        assert "is being read" in str(shard.obstacle)
        assert not serving.done()
        pair.shared.resume_reads(2)
        await asyncio.wait_for(serving, PATIENCE_S)
        assert shard.obstacle is None
        assert await pair.follower.read_all(P0) == await pair.leader.read_all(P0)

    on_a_pair(story)


def test_a_leader_serves_when_it_leads() -> None:
    async def story(pair: Pair) -> None:
        shard = pair.leader.shard
        assert shard.obstacle is None
        pair.shared.hold_high_watermark(SHARD_ID)
        pair.shared.state(SHARD_ID).append(entries.encode_claim(Claim(node_id=3, claim_id=uuid.UUID(int=5)), 0))
        pair.shared.fail_next_append(shard=SHARD_ID, node_id=1)
        with pytest.raises(CoordinatorError):
            await pair.leader.shard.barrier()
        assert "not led by this node yet" in str(shard.obstacle)
        pair.shared.release_high_watermark(SHARD_ID)
        await asyncio.wait_for(shard.until_serving(), PATIENCE_S)

    on_a_pair(story)


# --- who may lead ----------------------------------------------------------------------------------------------------


def claims(shared: SharedLog) -> list[int]:
    """The nodes that claimed, in order."""
    decoded = [entries.decode(found.data) for found in shared.content(SHARD_ID)]
    return [entry.node_id for entry in decoded if isinstance(entry, Claim)]


def test_a_node_that_is_no_candidate_never_claims_whatever_the_log_hints() -> None:
    async def main() -> None:
        pair = Pair()
        node = pair.node(1, candidate=False)
        pair.shared.set_leader(SHARD_ID, 1)
        await node.start(lead=False)
        await asyncio.sleep(60)
        assert pair.shared.content(SHARD_ID) == []
        assert node.shard.leader_hint is None
        with pytest.raises(NotCoordinatorError):
            await node.shard.barrier()
        await node.stop()

    run(main)


def test_a_log_nominates_the_candidate_and_the_others_follow_it() -> None:
    async def main() -> None:
        pair = Pair()
        outsider, candidate = pair.node(1, candidate=False), pair.node(2)
        await outsider.start(lead=False)
        await candidate.start()
        await candidate.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
        await outsider.shard.until_serving()
        assert outsider.shard.leader_hint == 2
        await pair.until(lambda: outsider.shard.head(P0) is not None)
        assert set(claims(pair.shared)) == {2}
        await outsider.stop()
        await candidate.stop()

    run(main)


class _Silent(FakeCoordinatorLog):
    """Cannot say at first who should lead."""

    refusals = 3

    def leadership(self, shard: ShardId, *, candidate: bool = True) -> object:  # type: ignore[override]  # an iterator
        if self.refusals:
            self.refusals -= 1
            raise CoordinatorLogError("injected: no connection")
        return super().leadership(shard, candidate=candidate)


class _SilentAtFirst(SharedLog):
    def node(self, node_id: int) -> FakeCoordinatorLog:
        return _Silent(self, node_id)


def test_a_log_that_cannot_say_who_leads_is_asked_again() -> None:
    async def main() -> None:
        pair = Pair(_SilentAtFirst())
        await asyncio.wait_for(pair.leader.start(), PATIENCE_S)
        await pair.leader.stop()

    run(main)


class _Stubborn(FakeCoordinatorLog):
    """Answers a cancellation of what waits for hints with an error."""

    async def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        try:
            async for hint in super().leadership(shard, candidate=candidate):
                yield hint
        except asyncio.CancelledError:
            raise CoordinatorLogError("injected: the connection is closed") from None


class _StubbornLog(SharedLog):
    def node(self, node_id: int) -> FakeCoordinatorLog:
        return _Stubborn(self, node_id)


def test_a_log_that_answers_the_end_of_a_shard_with_an_error_does_not_keep_it_from_ending() -> None:
    async def main() -> None:
        pair = Pair(_StubbornLog())
        await pair.leader.start()
        await pair.leader.stop()
        assert not [task for task in asyncio.all_tasks() if "hints" in task.get_name()]

    run(main)

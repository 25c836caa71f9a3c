"""A shard that a node follows no more, and follows again: its memory is freed, nothing is lost, others go on."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from diskless_core.coordinator.errors import CoordinatorError, NotCoordinatorError
from diskless_core.coordinator.replica import ROWS_TOLD_AT_ONCE
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.tables import PARTITIONS
from diskless_core.plugin.coordinator_log import LogBounds
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.shard import ShardId
from tests.support.followers import Following, follow
from tests.support.shards import SHARD_ID, TOPIC, batch, commit_of

OTHER = b"O" * 16
PARTITION = PartitionKey(TOPIC, 0)


def test_a_copy_that_is_given_up_takes_no_memory_and_comes_back_whole() -> None:
    async def story(world: Following) -> None:
        await world.commit(5)
        await world.until_alike()
        follower = world.nodes[2]
        moved: list[PartitionKey] = []
        follower.shard.on_head_moved(moved.extend)

        await follower.shard.unfollow()

        assert not follower.shard.is_followed
        assert not follower.shard.is_caught_up
        assert not any(follower.tables().values())
        assert follower.shard.head(PARTITION) is None
        assert moved == [PARTITION], "whoever waits for the partition here has to ask elsewhere"
        assert follower.shard.leader_hint == 1
        assert follower.shard.obstacle is None

        await world.commit(5)
        moved.clear()
        await follower.shard.follow()
        assert moved == [PARTITION], "who keeps what it is told of commits knows all again"
        await world.until_alike()
        assert follower.shard.is_caught_up
        assert await follower.read_all(PARTITION) == await world.nodes[1].read_all(PARTITION)

    follow(story)


def test_a_copy_begins_with_what_the_store_has() -> None:
    async def story(world: Following) -> None:
        await world.commit(50)
        await world.until_alike()
        shard = world.nodes[2].shard
        await shard.unfollow()
        applied_bytes = shard.applied_bytes

        await shard.follow()
        await world.until_alike()
        assert shard.applied_bytes == applied_bytes

    follow(story)


def test_a_copy_comes_back_by_a_snapshot_where_the_log_was_pruned() -> None:
    async def story(world: Following) -> None:
        await world.commit(5)
        await world.until_alike()
        await world.nodes[2].shard.unfollow()
        await world.commit(5)
        rules = SnapshotRules(least_bytes=1, max_age_ms=1)
        leader = world.nodes[1]
        await Snapshotter(leader.shard, leader.log, world.snapshots, rules, world.clock).take()
        await world.commit(1)

        await world.nodes[2].shard.follow()
        await world.until_alike()
        assert await world.nodes[2].read_all(PARTITION) == await leader.read_all(PARTITION)

    follow(story)


def test_who_has_no_copy_is_no_candidate_and_leads_once_it_has_one() -> None:
    async def story(world: Following) -> None:
        shard = world.nodes[2].shard
        await shard.unfollow()
        world.shared.set_leader(SHARD_ID, 2)
        await asyncio.sleep(30)
        assert not shard.leading
        assert shard.leader_hint is None
        with pytest.raises(NotCoordinatorError):
            shard.require_leading()

        await shard.follow()
        await shard.until_leading()
        await world.nodes[2].commit(commit_of("object-by-2", batch()))

    follow(story)


def test_a_leader_that_gives_its_copy_up_fails_its_commands_and_another_one_goes_on() -> None:
    async def story(world: Following) -> None:
        leader = world.nodes[1].shard
        under_way = asyncio.ensure_future(leader.commit_file(commit_of("object-x", batch())))
        await asyncio.sleep(0)
        await leader.unfollow()
        with pytest.raises(CoordinatorError):
            await under_way
        world.shared.set_leader(SHARD_ID, 2)
        await world.nodes[2].shard.until_leading()
        await world.nodes[2].commit(commit_of("object-x", batch()))
        await leader.follow()
        await world.until_alike()
        assert world.nodes[1].shard.state.row_count(PARTITIONS) == 1

    follow(story)


def test_a_shard_that_cannot_be_followed_says_so_and_is_tried_again() -> None:
    async def story(world: Following) -> None:
        node = world.nodes[2]
        await node.shard.unfollow()
        node.store.unreadable = True
        with pytest.raises(CoordinatorStoreError):
            await node.shard.follow()
        assert node.shard.cannot_lead
        assert not node.shard.is_followed

        node.store.unreadable = False
        await node.shard.follow()
        await world.until_alike()
        assert not node.shard.cannot_lead

    follow(story)


def test_a_store_that_fails_does_not_keep_a_copy_from_being_given_up() -> None:
    async def story(world: Following) -> None:
        node = world.nodes[2]
        await world.commit(5)
        await world.until_alike()
        with node.failing_store():
            await world.commit(5)
            await world.until_alike()
            await node.shard.unfollow()
            assert not any(node.tables().values())
        await node.shard.follow()
        await world.until_alike()

    follow(story)


def test_a_restarted_broker_tells_nothing_of_a_shard_before_it_has_caught_up() -> None:
    async def story(world: Following) -> None:
        await world.nodes[2].stop()
        await world.commit(5)
        await world.start_node(2)
        shard = world.nodes[2].shard
        assert not shard.is_readable
        await shard.until_readable()
        assert shard.next_offset >= world.nodes[1].shard.next_offset

    follow(story)


def test_a_restarted_broker_that_the_log_has_left_behind_can_be_asked_once_it_has_a_snapshot() -> None:
    async def story(world: Following) -> None:
        await world.nodes[2].shard.unfollow()
        await world.commit(5)
        rules = SnapshotRules(least_bytes=1, max_age_ms=1)
        leader = world.nodes[1]
        snapshotter = Snapshotter(leader.shard, leader.log, world.snapshots, rules, world.clock)
        look, opened = world.nodes[2].log.bounds, False

        async def bounds(shard: ShardId) -> LogBounds:
            nonlocal opened
            found = await look(shard)
            if not opened:
                opened = True
                await snapshotter.take()  # between the look at the log and the first entry
            return found

        world.nodes[2].log.bounds = bounds  # type: ignore[method-assign]
        await world.nodes[2].shard.follow()
        async with asyncio.timeout(60):
            await world.nodes[2].shard.until_readable()
        assert await world.nodes[2].read_all(PARTITION) == await leader.read_all(PARTITION)

    follow(story)


def test_a_shard_without_a_copy_whose_leader_cannot_be_known_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: Following) -> None:
        shard = world.nodes[2].shard
        tries = 0

        async def follow_hints() -> None:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise RuntimeError("a defect")
            await asyncio.sleep(3600)

        follow_hints.__name__ = "follow_hints"
        monkeypatch.setattr(shard._leader, "follow_hints", follow_hints)
        await shard.unfollow()
        await asyncio.sleep(1)
        assert shard.failure is not None
        assert "a defect" in shard.failure
        assert (tries, [task.done() for task in shard._tasks]) == (2, [False]), "who leads is still looked at"

    follow(story)


def test_a_copy_of_many_partitions_begins_and_ends_without_keeping_the_event_loop() -> None:
    async def story(world: Following) -> None:
        count = 3 * ROWS_TOLD_AT_ONCE
        await world.nodes[1].shard.create_partitions(uuid.UUID(bytes=OTHER), "other", range(count))
        await world.until_alike()
        shard = world.nodes[2].shard
        told: list[int] = []
        moved: set[PartitionKey] = set()
        shard.on_head_moved(lambda keys: (told.append(len(keys)), moved.update(keys))[0])
        for change in (shard.unfollow, shard.follow):
            told.clear()
            moved.clear()
            await change()
            assert len(moved) == count + 1
            assert max(told) <= ROWS_TOLD_AT_ONCE

    follow(story)

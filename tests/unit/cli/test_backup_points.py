"""What happens to the cluster between the points of a backup, and how a cluster begins with these."""

from __future__ import annotations

import uuid
from functools import partial

import pytest

from diskless_core.cli.backup import ROUNDS
from diskless_core.cli.backup_cluster import PRODUCER_IDS_AHEAD
from diskless_core.cluster import operations, topic_steps
from diskless_core.cluster.operations import NewTopic
from diskless_core.cluster.tables import NEXT_PRODUCER_ID, ONLY_ROW, TOPIC_IDS
from diskless_core.coordinator.tables import State
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.tables import PRODUCERS
from diskless_core.groups.model import CommittedOffset
from diskless_core.groups.records import OffsetRecord
from diskless_core.groups.tables import GROUP_OFFSETS
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import CLUSTER_SHARD, DISKLESS, GROUPS
from tests.support.backups import CONFIG, TOPIC_ID, Led, World, story
from tests.support.shards import batch, commit_of

P0 = PartitionKey(TOPIC_ID.bytes, 0)
NEW_ID = uuid.UUID(int=9)
OBJECT = f"{CONFIG.diskless_wal_object_prefix}/late"
"""A WAL object that is gone before a backup could copy it."""


async def create(led: Led, topic_id: uuid.UUID, name: str, partitions: int) -> None:
    """A topic, settled: its partitions are dealt out to both coordinators in turn."""
    topic = NewTopic(topic_id=topic_id.bytes, name=name, partition_count=partitions, shard_count=2, configs={})
    assert await led.cluster.submit_in_slices(lambda command: operations.create_topic(command, topic)) is None
    steps = topic_steps.creation(led.cluster.state, topic_id.bytes)
    assert steps is not None
    for index, numbers in steps.left.items():
        await led.diskless[index].create_partitions(topic_id, name, numbers)
    await led.cluster.submit(partial(operations.settle_topics, settled={topic_id.bytes: partitions}))


async def delete(led: Led, topic_id: uuid.UUID) -> None:
    """A topic, settled."""
    await led.cluster.submit(partial(operations.remove_topic, topic_id=topic_id.bytes))
    for shard in led.diskless:
        await shard.delete_topic(topic_id)
    await led.cluster.submit(partial(operations.settle_topics, settled={topic_id.bytes: 0}))


async def commit_offset(led: Led, topic_id: uuid.UUID, topic: str, offset: int) -> None:
    value = CommittedOffset(offset=offset, commit_timestamp_ms=1, topic_id=topic_id)
    record = OffsetRecord(group_id="g", topic=topic, partition=0, value=value)
    await led.groups.submit(lambda command: command.emit(record))


async def write(led: Led, object_key: str, producer_id: int | None = None) -> None:
    """A record of the topic "t", in an object that is not there."""
    producer = (producer_id, 0, 0) if producer_id is not None else None
    file = commit_of(object_key, batch(topic=TOPIC_ID.bytes, producer=producer), owner_ids=(1,))
    [result] = await led.diskless[1].commit_file(file)
    assert result.error is ErrorCode.NONE


def shards_of(led: Led, state: State, topic_id: uuid.UUID) -> dict[int, list[int]]:
    """The partitions of a topic that a controller would create now, by coordinators, where these lack them."""
    steps = topic_steps.creation(state, topic_id.bytes)
    left = steps.left if steps is not None else {}
    lacking = {
        index: [one for one in numbers if led.diskless[index].head(PartitionKey(topic_id.bytes, one)) is None]
        for index, numbers in left.items()
    }
    return {index: numbers for index, numbers in lacking.items() if numbers}


def test_a_producer_id_that_was_given_and_used_between_the_points_is_never_given_again() -> None:
    async def work(world: World) -> None:
        await world.begin()
        async with world.led() as led:

            async def give_one(shard: ShardId, number: int) -> None:
                if (shard, number) == (DISKLESS.shard(1), 1):
                    taken = await led.cluster.submit(lambda command: operations.take_producer_ids(command, 1, -1))
                    await write(led, f"{OBJECT}-{number}", taken[-1])

            world.before_reading = give_one
            await world.backup()
            given = led.cluster.state.committed(NEXT_PRODUCER_ID, ONLY_ROW)
        await world.restore()
        async with world.restored() as restored:
            used = [key[2] for key, _ in restored.diskless[1].state.rows(PRODUCERS)]
            kept = restored.cluster.state.committed(NEXT_PRODUCER_ID, ONLY_ROW)
            fresh = await restored.cluster.submit(lambda command: operations.take_producer_ids(command, 1, -1))
        assert used
        assert kept is not None
        assert kept - PRODUCER_IDS_AHEAD == given, "the cluster's point is the last one"
        assert fresh[0] == kept > max(used)

    story(work)


def test_clients_that_got_their_ids_from_the_original_after_the_backup_meet_none_of_theirs() -> None:
    async def work(world: World) -> None:
        await world.begin()
        async with world.led() as led:
            take = partial(operations.take_producer_ids, broker_id=1, broker_epoch=-1)
            await led.cluster.submit(take)
            await world.backup()
            later = [(await led.cluster.submit(take))[-1] for _ in range(3)]
        await world.restore()
        async with world.restored() as restored:
            assert (await restored.cluster.submit(take))[0] > max(later)

    story(work)


@pytest.mark.parametrize("at", [(CLUSTER_SHARD, 2), (DISKLESS.shard(1), 1)], ids=["after all", "between two"])
def test_a_topic_that_comes_between_the_points_gets_all_its_partitions_where_the_backup_is_restored(
    at: tuple[ShardId, int],
) -> None:
    async def work(world: World) -> None:
        await world.begin(segments=False)
        async with world.led() as led:

            async def come(shard: ShardId, number: int) -> None:
                if (shard, number) == at:
                    await create(led, NEW_ID, "new", 4)

            world.before_reading = come
            made = await world.backup()
        assert (made.came, made.gone) == (["new"], [])
        await world.restore()
        async with world.restored() as restored:
            assert restored.cluster.state.committed(TOPIC_IDS, ("new",)) == NEW_ID.bytes
            lacking = shards_of(restored, restored.cluster.state, NEW_ID)
            present = {
                key[1]
                for shard in restored.diskless
                for key in [PartitionKey(NEW_ID.bytes, number) for number in range(4)]
                if shard.head(key) is not None
            }
            assert {one for numbers in lacking.values() for one in numbers} | present == set(range(4))

    story(work)


def test_a_topic_that_grows_between_the_points_gets_the_new_partitions_too() -> None:
    async def work(world: World) -> None:
        await world.begin(segments=False)
        async with world.led() as led:
            await create(led, NEW_ID, "grows", 1)

            async def grow(shard: ShardId, number: int) -> None:
                if shard == CLUSTER_SHARD and number == 2:
                    growth = operations.Growth(name="grows", count=3, assignments=None, node_ids=(), shard_count=2)
                    refusal = await led.cluster.submit_in_slices(
                        lambda command: operations.add_partitions(command, growth, validate_only=False)
                    )
                    assert refusal is None
                    await led.cluster.submit(partial(operations.settle_topics, settled={NEW_ID.bytes: 3}))

            world.before_reading = grow
            assert (await world.backup()).came == ["grows"]
        await world.restore()
        async with world.restored() as restored:
            lacking = shards_of(restored, restored.cluster.state, NEW_ID)
            assert sorted(one for numbers in lacking.values() for one in numbers) == [1, 2]

    story(work)


def test_a_topic_that_goes_between_the_points_is_not_half_there_and_groups_have_no_offsets_of_it() -> None:
    async def work(world: World) -> None:
        await world.begin(segments=False)
        async with world.led() as led:
            await create(led, NEW_ID, "goes", 2)
            await create(led, TOPIC_ID, "stays", 1)
            await commit_offset(led, NEW_ID, "goes", 3)
            await commit_offset(led, TOPIC_ID, "stays", 4)

            async def go(shard: ShardId, number: int) -> None:
                if shard == CLUSTER_SHARD and number == 2:
                    await delete(led, NEW_ID)

            world.before_reading = go
            made = await world.backup()
        assert (made.came, made.gone) == ([], ["goes"])
        await world.restore()
        async with world.restored() as restored:
            assert restored.cluster.state.committed(TOPIC_IDS, ("goes",)) is None
            assert not topic_steps.is_unsettled(restored.cluster.state, NEW_ID.bytes)
            offsets = {key[1]: one.offset for key, one in restored.groups.state.rows(GROUP_OFFSETS)}
            assert offsets == {"stays": 4}

    story(work)


def test_what_a_group_has_read_is_in_the_backup_though_the_log_is_looked_at_every_15_seconds_only() -> None:
    async def work(world: World) -> None:
        await world.begin()
        async with world.led() as led:
            written = 0

            async def write_and_read(shard: ShardId, number: int) -> None:
                nonlocal written
                for one in (GROUPS.shard(0), DISKLESS.shard(1), CLUSTER_SHARD):
                    world.log.lag_bounds(one, world.log.state(one).high_watermark)  # unless it is looked at anew
                await write(led, f"{OBJECT}-{written}")
                written += 1
                await commit_offset(led, TOPIC_ID, "t", written)

            await create(led, TOPIC_ID, "t", 1)
            world.before_reading = write_and_read
            await world.backup()
        await world.restore()
        async with world.restored() as restored:
            [(_, offset)] = restored.groups.state.rows(GROUP_OFFSETS)
            head = restored.diskless[1].head(P0)
        assert head is not None
        assert 0 < offset.offset <= head.next_offset

    story(work)


async def commit_what_is_gone(led: Led, count: int) -> None:
    """Records whose objects are gone, one object each."""
    for number in range(count):
        await write(led, f"{OBJECT}-{number}")


def test_records_that_were_deleted_before_are_not_missed() -> None:
    async def work(world: World) -> None:
        await world.begin()
        async with world.led() as led:
            await commit_what_is_gone(led, 3)
            assert (await led.diskless[1].delete_records(P0, 3)).error is ErrorCode.NONE
            made = await world.backup()
        assert (made.lacking, made.deleted) == ([], [])
        assert world.reads[DISKLESS.shard(1)] == 1, "it was read once"

    story(work)


@pytest.mark.parametrize("whole_topic", [False, True])
def test_records_that_are_deleted_while_they_are_copied_are_not_in_the_backup_and_not_missed(whole_topic: bool) -> None:
    async def work(world: World) -> None:
        await world.begin()
        async with world.led() as led:
            await commit_what_is_gone(led, 3)

            async def forget(shard: ShardId, number: int) -> None:
                if shard == DISKLESS.shard(1) and number == 3:
                    if whole_topic:
                        await led.diskless[1].delete_topic(TOPIC_ID)
                    else:
                        await led.diskless[1].delete_records(P0, 3)

            world.before_reading = forget
            made = await world.backup()
        assert (made.lacking, made.deleted) == ([], [])
        assert world.reads[DISKLESS.shard(1)] == 3
        await world.restore()
        async with world.restored() as restored:
            head = restored.diskless[1].head(P0)
            assert (head.log_start_offset if head is not None else None) == (None if whole_topic else 3)

    story(work)


def test_records_that_the_cluster_still_has_and_that_cannot_be_copied_are_named() -> None:
    async def work(world: World) -> None:
        await world.begin()
        async with world.led() as led:
            await commit_what_is_gone(led, 3)

            async def forget_late(shard: ShardId, number: int) -> None:
                if shard == DISKLESS.shard(1) and number == ROUNDS + 1:  # when all points are there
                    await led.diskless[1].delete_records(P0, 2)

            world.before_reading = forget_late
            made = await world.backup()
        assert [(one.topic, one.partition, one.first, one.last) for one in made.deleted] == [("t", 0, 0, 1)]
        assert [(one.topic, one.partition, one.first, one.last) for one in made.lacking] == [("t", 0, 2, 2)]

    story(work)

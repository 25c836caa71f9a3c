"""A position that a lagging replica does not have yet, as a consumer is told of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.fetch.object_cache import ObjectCache
from diskless_core.fetch.object_reader import ObjectReader
from diskless_core.fetch.offset_range_check import OffsetRangeCheck
from diskless_core.fetch.offsets import OffsetLookup
from diskless_core.fetch.store_reads import StoreReads
from diskless_core.metrics import Metrics
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.guarantees import guarantee
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

P0 = PartitionKey(TOPIC, 0)


@asynccontextmanager
async def lagging() -> AsyncIterator[tuple[ShardNode, ShardNode]]:
    """A leader with 3 records, and a follower that knows of 1."""
    shared, clock, metrics = SharedLog(), VirtualClock(asyncio.get_running_loop()), Metrics()
    leader, follower = ShardNode(shared, clock, 1), ShardNode(shared, clock, 2)
    await leader.start()
    reader = ObjectReader(StoreReads(MemoryWalObjectStore(clock)), ObjectCache(0, metrics), metrics)
    leader.shard.find_offsets_with(OffsetLookup(reader).list)
    await leader.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
    await leader.commit(commit_of("a", batch()))
    await follower.start(lead=False)
    await follower.shard.until_serving()
    shared.pause_reads(2)
    await leader.commit(commit_of("b", batch(count=2)))
    yield leader, follower
    for node in (leader, follower):
        await node.stop()


async def checked(replica: DisklessShard, leader: DisklessShard, offset: int) -> ErrorCode:
    found = replica.find_recent(P0, offset, 1)
    assert found is not None
    return (await OffsetRangeCheck(lambda _: leader).checked(P0, offset, found)).error


@guarantee(
    "Reads",
    "An offset that a broker has not heard of yet is empty; only the coordinator's leader may call it out of range.",
)
def test_what_was_committed_and_is_not_known_here_is_not_out_of_range() -> None:
    async def main() -> None:
        async with lagging() as (leader, follower):
            found = follower.shard.find_recent(P0, 2, 1)
            assert found is not None
            assert found.error is ErrorCode.OFFSET_OUT_OF_RANGE, "by what the follower knows"
            assert await checked(follower.shard, leader.shard, 2) is ErrorCode.NONE
            assert await checked(follower.shard, leader.shard, 3) is ErrorCode.NONE, "the high watermark"
            assert await checked(follower.shard, leader.shard, 4) is ErrorCode.OFFSET_OUT_OF_RANGE
            assert await checked(follower.shard, leader.shard, 1) is ErrorCode.NONE

    run(main)


@guarantee("Reads", "An offset that nobody can judge now is OFFSET_NOT_AVAILABLE, after which consumers ask again.")
def test_while_no_leader_answers_a_consumer_has_to_ask_again() -> None:
    async def main() -> None:
        async with lagging() as (leader, follower):
            leader.shared.set_leader(SHARD_ID, None)
            await asyncio.sleep(1)
            assert await checked(follower.shard, leader.shard, 2) is ErrorCode.OFFSET_NOT_AVAILABLE

    run(main)


def test_what_was_deleted_out_of_sight_of_a_replica_is_known_to_be_gone() -> None:
    async def main() -> None:
        async with lagging() as (leader, follower):
            positions = OffsetRangeCheck(lambda _: leader.shard)
            assert not await positions.is_deleted(P0, 0)
            await leader.shard.delete_records(P0, 1)
            found = follower.shard.find_recent(P0, 0, 1)
            assert found is not None
            assert found.error is ErrorCode.NONE, "by what the follower knows"
            assert await positions.is_deleted(P0, 0)
            assert not await positions.is_deleted(P0, 1)
            leader.shared.set_leader(SHARD_ID, None)
            await asyncio.sleep(1)
            assert not await positions.is_deleted(P0, 0), "while nobody leads it cannot be said"

    run(main)

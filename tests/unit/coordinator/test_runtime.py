"""One shard on the fake log and store: what it answers, and what is left of it after each way of going down."""

from __future__ import annotations

import asyncio
import uuid

from diskless_core.coordinator.commands import PartitionKey
from diskless_core.testing.fakes.log import SharedLog
from tests.support.shards import TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

P0 = PartitionKey(TOPIC, 0)
TOPIC_ID = uuid.UUID(bytes=TOPIC)


async def started(shared: SharedLog | None = None, node_id: int = 1) -> ShardNode:
    node = ShardNode(shared or SharedLog(), VirtualClock(asyncio.get_running_loop()), node_id)
    await node.start()
    await node.shard.create_partitions(TOPIC_ID, "t", [0, 1])
    return node


def test_what_was_acknowledged_after_the_store_reached_beyond_the_claim_survives_a_kill() -> None:
    async def main() -> None:
        node = await started()
        await node.commit(commit_of("a", batch()))
        await node.kill()
        await node.start()
        await asyncio.sleep(2)  # what was replayed is flushed, together with the offset beyond the claim
        await node.commit(commit_of("b", batch()))
        await node.kill()
        await node.start()
        assert node.shard.head(P0).next_offset == 2
        assert [run.object_key for run in await node.read_all(P0)] == ["a", "b"]
        await node.stop()

    run(main)


def test_what_was_acknowledged_after_a_clean_stop_and_start_survives_a_kill() -> None:
    async def main() -> None:
        node = await started()
        await node.commit(commit_of("a", batch()))
        await node.stop()
        await node.start()
        await node.stop()
        await node.start()
        await node.commit(commit_of("b", batch()))
        await node.kill()
        await node.start()
        assert node.shard.head(P0).next_offset == 2
        await node.stop()

    run(main)

"""What a shard counts while it works."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.testing.fakes.log import SharedLog
from tests.support.shards import OTHER_TOPIC, SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

LABELS = {"shard": str(SHARD_ID)}


def counted(node: ShardNode, name: str) -> float:
    """A sample of the shard's metrics."""
    value = node.metrics.registry.get_sample_value(f"diskless_coordinator_{name}", LABELS)
    assert value is not None, name
    return value


async def started(shared: SharedLog | None = None, node_id: int = 1, *, lead: bool = True) -> ShardNode:
    node = ShardNode(shared or SharedLog(), VirtualClock(asyncio.get_running_loop()), node_id)
    await node.start(lead=lead)
    if lead:
        await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0, 1])
    return node


def test_commits_are_counted_with_their_batches_and_the_rows_that_these_became_on_every_replica() -> None:
    async def main() -> None:
        node = await started()
        follower = await started(node.shared, 2, lead=False)
        await node.commit(commit_of("a", batch(0), batch(0), batch(0), batch(1)))
        await node.commit(commit_of("b", batch(0), batch(0, topic=OTHER_TOPIC)))
        await node.commit(commit_of("a", batch(0), batch(0), batch(0), batch(1)))
        await asyncio.sleep(1)
        for replica in (node, follower):
            assert counted(replica, "commits_total") == 2
            assert counted(replica, "committed_batches_total") == 6
            assert counted(replica, "committed_runs_total") == 3
        await follower.stop()
        await node.stop()

    run(main)


def test_the_time_of_a_command_is_measured_from_its_submission_to_its_answer() -> None:
    async def main() -> None:
        node = await started()
        before = counted(node, "command_seconds_count"), counted(node, "command_seconds_sum")
        node.shared.hold_high_watermark(SHARD_ID)
        commit = asyncio.create_task(node.commit(commit_of("a", batch())))
        await asyncio.sleep(3)
        node.shared.release_high_watermark(SHARD_ID)
        await commit
        assert counted(node, "command_seconds_count") - before[0] == 1
        assert counted(node, "command_seconds_sum") - before[1] == pytest.approx(3, abs=0.1)
        await node.kill()
        with pytest.raises(CoordinatorError):
            await node.shard.commit_file(commit_of("b", batch()))
        assert counted(node, "command_seconds_count") - before[0] == 1

    run(main)


def test_flushes_are_counted_with_their_rows_and_what_they_reach() -> None:
    async def main() -> None:
        node = await started()
        shard = node.shard
        await shard.flush()
        rows = counted(node, "flushed_rows_total")
        await node.commit(commit_of("a", batch(0), batch(1)))
        assert shard.stored_offset < shard.next_offset
        assert shard.unflushed_rows > 0
        with node.failing_store(), pytest.raises(CoordinatorStoreError):
            await shard.flush()
        assert shard.unflushed_rows > 0
        assert counted(node, "flush_failures_total") == 1
        assert shard.stored_offset < shard.next_offset
        await shard.flush()
        assert (shard.stored_offset, shard.unflushed_rows) == (shard.next_offset, 0)
        assert counted(node, "flushed_rows_total") > rows
        reached = shard.stored_offset
        await node.stop()
        again = await node.start(lead=False)
        assert again.stored_offset >= reached
        await node.stop()

    run(main)

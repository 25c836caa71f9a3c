"""A node is killed at every single step of a day in its life, and nothing is ever lost or doubled.

Some of the ways try only every fifth step or so, unless `--hypothesis-profile=long` is given, with this folder.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings

from diskless_core.diskless import trimming
from diskless_core.diskless.commands import BatchResult, HandOver, PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import FILES
from diskless_core.protocol.errors import ErrorCode
from tests.simulation.processes import ProcessLoop
from tests.support.commit_model import CommitModel
from tests.support.shard_checks import assert_heads_are, assert_rows_are, read_everything, rows_of
from tests.support.shard_cluster import ShardCluster
from tests.support.shards import EXPIRATION_MS, OTHER_TOPIC, TOPIC, batch, commit_of, row_of
from tests.support.stores import Disk, MemoryDisk, SqliteDisk

DEFAULT_EXAMPLES = 100
"""Of Hypothesis."""

P0, P1 = PartitionKey(TOPIC, 0), PartitionKey(TOPIC, 1)

pytestmark = [pytest.mark.usefixtures("without_logs"), pytest.mark.timeout(3600)]


class Day:
    """Commands and work of one node, by itself or with a follower, each sent until it is answered."""

    def __init__(self, cluster: ShardCluster) -> None:
        self.cluster = cluster
        self.node = cluster.nodes[1]
        self.model = CommitModel(EXPIRATION_MS)

    async def live(self) -> None:
        await self.create(TOPIC, 2)
        await self.commit("a", batch(producer=(7, 0, 0), count=2), batch(1))
        await asyncio.gather(self.commit("b", batch(producer=(7, 0, 2))), self.commit("c", batch(1, timestamp_type=1)))
        await asyncio.sleep(1)
        await self.create(OTHER_TOPIC, 1)
        await self.commit("d", batch(producer=(7, 0, 0), count=2), batch(producer=(7, 0, 9)), batch(topic=OTHER_TOPIC))
        await self.delete_records(P0, 2)
        await self.delete_topic(OTHER_TOPIC)
        await self.node.attempt(self.node.trim())
        await self.hand_over("e")
        await self.commit("e", batch())
        await self.node.attempt(self.node.take_snapshot(prune=True))
        await self.commit("f", batch(producer=(7, 0, 3)), batch(1))
        await self.delete_records(P1, -1)
        await self.node.restart(clean=True, disk=None, dies_at=None)
        await self.commit("g", batch(producer=(7, 0, 3)), batch(producer=(7, 0, 4)))

    async def until_answered(self, command: Callable[[DisklessShard], Awaitable[Any]]) -> Any:
        return (await self.cluster.until_answered(command)).value

    async def create(self, topic: bytes, partitions: int) -> None:
        indexes = range(partitions)
        await self.until_answered(lambda shard: shard.create_partitions(uuid.UUID(bytes=topic), "t", indexes))
        self.model.create_partitions(topic, indexes)

    async def commit(self, key: str, *batches: Any) -> None:
        request = commit_of(key, *batches)
        results: list[BatchResult] = await self.until_answered(lambda shard: shard.commit_file(request))
        committed_at = await self.until_answered(committed_at_of(key))
        expected = self.model.commit(request, committed_at)
        if key in self.model.tombstones:
            assert [one.error for one in results] == [ErrorCode.KAFKA_STORAGE_ERROR] * len(results)
        else:
            assert results == expected

    async def delete_records(self, partition: PartitionKey, offset: int) -> None:
        answer = await self.until_answered(lambda shard: shard.delete_records(partition, offset))
        assert answer == self.model.delete_records(partition, offset)

    async def delete_topic(self, topic: bytes) -> None:
        await self.until_answered(lambda shard: shard.delete_topic(uuid.UUID(bytes=topic)))
        self.model.delete_topic(topic)

    async def hand_over(self, key: str) -> None:
        files = [HandOver(key, (1, 0), 1, 1)]
        await self.until_answered(lambda shard: shard.hand_over(files))
        self.model.hand_over(key)

    async def check(self) -> None:
        rows = []
        await self.cluster.settle()
        for node in self.cluster.nodes.values():
            assert_heads_are(node.shard, self.model)
            read = await read_everything(node, self.model)
            rows.append(await rows_of(node))
            assert_rows_are(rows[-1], self.model, read)
        assert all(one == rows[0] for one in rows)
        for request, results in self.model.files.values():
            assert await self.until_answered(lambda shard, request=request: shard.commit_file(request)) == results


def committed_at_of(key: str) -> Callable[[DisklessShard], Awaitable[int]]:
    async def look(shard: DisklessShard) -> int:
        await shard.barrier()
        found = await row_of(shard, FILES, (key,))
        assert found is not None
        return found.committed_at

    return look


class Crash:
    """Kills a node at its `at`th step, or never; the next process finds its disk as it was, or an empty one."""

    def __init__(self, at: int | None, *, disk_is_lost: bool) -> None:
        self.at = at
        self.disk_is_lost = disk_is_lost
        self.steps = 0

    async def during(self, day: Day) -> None:
        await day.cluster.start()
        process = day.node.process
        if self.at is not None:
            day.node.dies_after(self.at)
            day.node.disk_is_lost_at_death = self.disk_is_lost
        before = process.steps
        await day.live()
        self.steps = process.steps - before
        await day.check()
        await day.cluster.stop()


def live_through(crash: Crash, new_disk: Callable[[], Disk], node_ids: tuple[int, ...]) -> None:
    with asyncio.Runner(loop_factory=ProcessLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, ProcessLoop)
        delays = iter([0.0, 0.01, 0.3] * 10_000)
        loop.executor_delay_s = lambda: next(delays)
        day = Day(ShardCluster(loop, {node_id: new_disk() for node_id in node_ids}))
        try:
            runner.run(asyncio.wait_for(crash.during(day), 3600))
        finally:
            loop.thaw_all()


@pytest.mark.parametrize(
    ("store", "node_ids", "disk_is_lost", "stride"),
    [
        ("memory", (1,), False, 1),
        ("memory", (1, 2), False, 4),
        ("memory", (1, 2), True, 5),
        ("sqlite", (1,), False, 6),
        ("sqlite", (1, 2), True, 9),
    ],
)
def test_a_node_may_die_at_any_step(
    store: str, node_ids: tuple[int, ...], disk_is_lost: bool, stride: int, tmp_path: Path
) -> None:
    def new_disk() -> Disk:
        return MemoryDisk() if store == "memory" else SqliteDisk(tmp_path)

    with mock.patch.object(trimming, "PAGE_ROWS", 1):
        undisturbed = Crash(None, disk_is_lost=False)
        live_through(undisturbed, new_disk, node_ids)
        assert undisturbed.steps > 100
        for step in range(1, undisturbed.steps + 1, 1 if settings().max_examples > DEFAULT_EXAMPLES else stride):
            try:
                live_through(Crash(step, disk_is_lost=disk_is_lost), new_disk, node_ids)
            except BaseException as error:
                error.add_note(f"killed at step {step}")
                raise

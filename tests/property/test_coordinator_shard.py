"""Two replicas of a shard go through all that can happen to them, and answer as a model does that knows no failures.

`--hypothesis-profile=long`, with this folder or file named on the command line, goes on for an hour instead of seconds.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, rule

from diskless_core.diskless.shard import DisklessShard
from tests.support.shard_checks import (
    assert_found_by_time,
    assert_heads_are,
    assert_rows_are,
    read_everything,
    rows_of,
)
from tests.support.shard_cluster import ReplicaNode
from tests.support.shard_commands import commit_of_this
from tests.support.shard_trouble import ShardTrouble
from tests.support.stores import Disk, SqliteDisk

pytestmark = [pytest.mark.usefixtures("without_logs"), pytest.mark.timeout(3600)]


class Shards(ShardTrouble):
    """What holds whatever happened."""

    @invariant()
    def what_the_leader_says_is_what_the_model_says(self) -> None:
        if self.requests.topic_ids:
            self.do(self.compare_leader())

    async def compare_leader(self) -> None:
        async def strictly(shard: DisklessShard) -> None:
            await shard.barrier()
            assert_heads_are(shard, self.model)

        leader = (await self.cluster.until_answered(strictly)).node
        if not leader.store.unreadable:
            await read_everything(leader, self.model)
        for node in self.cluster.nodes.values():
            for key, head in node.shard.heads().items() if node.is_up else ():
                known = self.model.partitions().get(key)
                assert known is None or head.next_offset <= known.next_offset, "it has what nobody was told of"

    @rule()
    def everybody_catches_up(self) -> None:
        self.do(self.all_come_to_the_same())

    async def all_come_to_the_same(self) -> None:
        for node in self.cluster.nodes.values():
            node.store.failing = node.store.unreadable = False
        await self.cluster.settle()
        await self.stores_are_well()
        rows = [await self.compare(node) for node in self.cluster.nodes.values()]
        assert all(one == rows[0] for one in rows)

    async def stores_are_well(self) -> None:
        """One that has failed is opened again some time later, and is not there meanwhile."""
        while True:
            if not any(node.shard._replica.flusher._failures for node in self.cluster.nodes.values()):
                return
            await asyncio.sleep(0.01)

    async def compare(self, node: ReplicaNode) -> dict[str, list[Any]]:
        assert_heads_are(node.shard, self.model)
        read = await read_everything(node, self.model)
        for key, runs in read.items():
            await assert_found_by_time(node, key, runs, 30)
        rows = await rows_of(node)
        assert_rows_are(rows, self.model, read)
        assert await read_everything(node, self.model) == read
        return rows

    async def a_new_node_comes_to_the_same(self) -> None:
        """From the newest snapshot, if there is one, and the log; and it gives every commit its first answer."""
        old = await self.cluster.settle()
        expected = await self.compare(old)
        node = await self.cluster.add(3, self.new_disk())
        assert await self.compare(node) == expected
        self.cluster.nominate(3)
        for request, results in self.model.files.values():
            answered = await self.cluster.until_answered(commit_of_this(request))
            assert answered.value == results
        assert await self.compare(node) == expected

    def converge(self) -> None:
        self.do(self.all_come_to_the_same())
        self.do(self.a_new_node_comes_to_the_same())


class ShardsOnSqlite(Shards):
    """The same on files."""

    def new_disk(self) -> Disk:
        return SqliteDisk(Path(self.folder.name))


def examples(share: float) -> settings:
    """A share of what the profile says, which is 100 unless it is told otherwise."""
    return settings(
        max_examples=int(settings().max_examples * share),
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


TestOnMemory = Shards.TestCase
TestOnMemory.settings = examples(0.3)
TestOnSqlite = ShardsOnSqlite.TestCase
TestOnSqlite.settings = examples(0.25)

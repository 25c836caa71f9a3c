"""Which Diskless shards are in use, asked where it is known for certain."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from diskless_core.cluster import operations
from diskless_core.cluster.operations import NewTopic
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.tables import PLACEMENTS
from diskless_core.coordinator.errors import NotCoordinatorError
from diskless_core.coordinator.shard import ShardServices
from diskless_core.coordinator.tables import Key
from diskless_core.shards import CLUSTER_SHARD as CLUSTER
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.virtual_time import VirtualClock, run


def test_the_shards_of_all_topics_are_in_use_and_only_the_leader_says_so() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        shared = SharedLog()
        nodes = []
        for node_id in (1, 2):
            log = shared.node(node_id)
            await log.start()
            services = ShardServices(node_id=node_id, clock=clock, log=log, store=MemoryCoordinatorStore())
            nodes.append(ClusterShard(CLUSTER, services))
            await nodes[-1].start()
        leader, follower = nodes
        await leader.until_leading()
        assert await leader.shards_in_use() == set()
        topic = NewTopic(topic_id=b"t" * 16, name="t", partition_count=12, shard_count=4, configs={})
        await leader.submit_in_slices(lambda command: operations.create_topic(command, topic))
        assert await leader.shards_in_use() == {0, 1, 2, 3}
        with pytest.raises(NotCoordinatorError):
            await follower.shards_in_use()
        for node in nodes:
            await node.stop()

    run(main)


def test_topics_that_are_created_at_once_are_spread_as_evenly_as_one_after_the_other() -> None:
    def new(number: int) -> NewTopic:
        return NewTopic(
            topic_id=b"%016d" % number, name=f"t{number}", partition_count=2 + number % 3, shard_count=4, configs={}
        )

    async def placed(*, at_once: bool) -> list[tuple[Key, int]]:
        log = SharedLog(append_delay_s=lambda: 0.001).node(1)
        await log.start()
        clock = VirtualClock(asyncio.get_running_loop())
        services = ShardServices(node_id=1, clock=clock, log=log, store=MemoryCoordinatorStore())
        shard = ClusterShard(CLUSTER, services)
        await shard.start()
        await shard.until_leading()

        async def create(number: int) -> None:
            await shard.submit_in_slices(lambda command: operations.create_topic(command, new(number)))

        if at_once:
            await asyncio.gather(*map(create, range(20)))
        else:
            for number in range(20):
                await create(number)
        rows = sorted(shard.state.rows(PLACEMENTS))
        await shard.stop()
        await log.stop()
        return rows

    async def main() -> None:
        rows = await placed(at_once=True)
        assert rows == await placed(at_once=False)
        loads = Counter(shard for _, shards in rows for shard in shards)
        assert max(loads.values()) - min(loads.values()) <= 1

    run(main)

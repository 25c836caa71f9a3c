"""Whose cluster it is, where the object store does not say whose the objects are."""

from __future__ import annotations

import asyncio

from diskless_core.broker.awaited_objects import AwaitedObjects
from diskless_core.broker.cluster_identity import cluster_id_of
from diskless_core.cluster.shard import ClusterShard
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.shard import ShardServices
from diskless_core.shards import CLUSTER_SHARD
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.virtual_time import VirtualClock, run

CONFIG = BrokerConfig()
LIMIT_MS = 60_000


class ForAllNodes(MemoryWalObjectStore):
    """Looked at like the store of a cluster of processes."""

    is_process_local = False


class Start:
    """What a broker has when it asks whose cluster it is."""

    def __init__(self, shared: SharedLog, objects: MemoryWalObjectStore, clock: VirtualClock, node_id: int) -> None:
        self.log = shared.node(node_id)
        self.cluster = ClusterShard(
            CLUSTER_SHARD,
            ShardServices(node_id=node_id, clock=clock, log=self.log, store=MemoryCoordinatorStore()),
        )
        self._objects = objects
        self._clock = clock

    async def begin(self) -> None:
        await self.log.start()
        await self.cluster.start()
        await self.cluster.until_serving()

    async def cluster_id(self) -> str:
        awaited = AwaitedObjects(LIMIT_MS, self._clock)
        return await cluster_id_of(CONFIG, self.cluster, self._objects, awaited, self._clock, {})

    async def end(self) -> None:
        await self.cluster.stop()
        await self.log.stop()


def test_a_broker_that_starts_does_not_become_the_controller_while_its_object_store_hangs() -> None:
    async def main() -> None:
        shared, clock = SharedLog(), VirtualClock(asyncio.get_running_loop(), 1)
        objects = ForAllNodes(clock)
        first, second, third = (Start(shared, objects, clock, node_id) for node_id in (1, 2, 3))
        await first.begin()
        cluster_id = await first.cluster_id()
        await second.begin()
        await third.begin()
        with objects.hold(Operation.GET):
            asking = asyncio.create_task(second.cluster_id())
            await asyncio.sleep(10)
            await first.end()
            await asyncio.sleep(10)
            assert third.cluster.leading
            await third.end()
            await asyncio.sleep(10)
            assert not second.cluster.leading, "it would answer nobody"
        assert await asking == cluster_id
        await second.cluster.until_leading()
        await second.end()

    run(main)


def test_a_controller_that_starts_gives_that_up_when_its_object_store_hangs() -> None:
    async def main() -> None:
        shared, clock = SharedLog(), VirtualClock(asyncio.get_running_loop(), 1)
        objects = ForAllNodes(clock)
        first, second = (Start(shared, objects, clock, node_id) for node_id in (1, 2))
        await first.begin()
        await first.cluster_id()
        await first.end()
        await second.begin()
        assert second.cluster.leading
        other = Start(shared, objects, clock, 3)
        await other.begin()
        with objects.hold(Operation.GET):
            asking = asyncio.create_task(second.cluster_id())
            await asyncio.sleep(10)
            assert other.cluster.leading
        await asking
        for one in (second, other):
            await one.end()

    run(main)


def test_the_first_broker_of_a_cluster_lets_another_one_begin_while_its_object_store_hangs() -> None:
    async def main() -> None:
        shared, clock = SharedLog(), VirtualClock(asyncio.get_running_loop(), 1)
        hanging, objects = ForAllNodes(clock), ForAllNodes(clock)
        first, second = Start(shared, hanging, clock, 1), Start(shared, objects, clock, 2)
        await first.begin()
        await second.begin()
        assert first.cluster.leading
        with hanging.hold(Operation.GET):
            asking = asyncio.create_task(first.cluster_id())
            await asyncio.sleep(10)
            assert not first.cluster.leading, "it would answer nobody"
            cluster_id = await second.cluster_id()
        assert await asking == cluster_id
        for one in (first, second):
            await one.end()

    run(main)

"""Topics across the cluster's shard and the Diskless shards, when something goes wrong between the two."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import pytest
from structlog.testing import capture_logs

from diskless_core import shards
from diskless_core.cluster.config_changes import Alteration, AlterOperation, ConfigChange
from diskless_core.cluster.config_layers import BrokerSettings
from diskless_core.cluster.operations import Refusal
from diskless_core.cluster.part import Cluster, ClusterNeighbours
from diskless_core.cluster.records import ResourceType
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.topics import TopicInfo
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.peers import PeerRequest, PeerUnavailableError
from diskless_core.coordinator.shard import ShardServices
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.shard import DisklessShard
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import AppendFault, SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import Sequential
from tests.support.virtual_time import VirtualClock, run

CLUSTER = shards.CLUSTER_SHARD
DISKLESS = shards.DISKLESS.shard(0)


class _NoPeers:
    """A transport that reaches nobody."""

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        raise PeerUnavailableError("there is no other node")


class ClusterNode:
    """The topics of one node, on one cluster shard and one Diskless shard."""

    def __init__(self, shared: SharedLog, node_id: int = 1) -> None:
        self.shared = shared
        self.clock = VirtualClock(asyncio.get_running_loop(), seed=node_id)
        log = shared.node(node_id)
        self.log = log
        services = ShardServices(node_id=node_id, clock=self.clock, log=log, store=MemoryCoordinatorStore())
        rules = CommitRules(assignment=Sequential())
        self.cluster: ClusterShard = ClusterShard(CLUSTER, services)
        self.diskless = DisklessShard(DISKLESS, services, rules)
        self._part = Cluster(
            BrokerSettings.of(BrokerConfig()),
            ClusterNeighbours(
                node_id=node_id,
                shard=self.cluster,
                replicas={0: self.diskless},
                coordinators={0: self.diskless},
                transport=_NoPeers(),
                broker_epoch=lambda: None,
                apply_quotas=lambda _: None,
                clock=self.clock,
            ),
        )
        self.configs = self._part.configs
        self.topics, self.producer_ids = self._part.topics, self._part.producer_ids
        self.topics.on_deletion(self._hear)
        self.heard: list[tuple[uuid.UUID, str]] = []
        self.deaf_times = 0

    async def _hear(self, topic_ids: Collection[uuid.UUID], names: Collection[str]) -> None:
        if self.deaf_times:
            self.deaf_times -= 1
            raise CoordinatorError("the groups' shard is not led here")
        self.heard.extend(zip(topic_ids, names, strict=True))

    async def start(self) -> None:
        await self.log.start()
        for shard in (self.cluster, self.diskless):
            await shard.start()
            await shard.until_serving()
        await self._part.start()

    async def stop(self) -> None:
        await self._part.stop()
        for shard in (self.cluster, self.diskless):
            await shard.stop()
        await self.log.stop()

    async def settled(self) -> None:
        """Give repairs the time that they need."""
        await asyncio.sleep(10)

    async def until_done(self, work: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await work()
            except CoordinatorError:
                await asyncio.sleep(0.5)

    def assert_consistent(self) -> None:
        """The Diskless shard has exactly the partitions of the cluster's topics."""
        expected = {
            PartitionKey(info.topic_id.bytes, partition)
            for info in self.topics.all()
            for partition in range(info.partition_count)
        }
        assert set(self.diskless.heads()) == expected


@asynccontextmanager
async def started(shared: SharedLog | None = None) -> AsyncIterator[ClusterNode]:
    node = ClusterNode(shared or SharedLog())
    await node.start()
    yield node
    await node.stop()


def test_a_topic_can_be_found_by_name_and_id_as_soon_as_it_was_created_and_not_after_its_deletion() -> None:
    async def main() -> None:
        async with started() as node:
            info = await node.topics.create("t", 3, {"max.message.bytes": "77"})
            assert isinstance(info, TopicInfo)
            found = node.topics.by_name("t")
            assert found is not None
            assert found == node.topics.by_id(info.topic_id) == info
            assert found.rules.max_message_bytes == 77
            node.assert_consistent()
            assert await node.topics.delete(info)
            assert node.topics.by_name("t") is None
            assert node.topics.by_id(info.topic_id) is None
            assert not await node.topics.delete(info)
            node.assert_consistent()

    run(main)


def test_settings_without_an_effect_are_warned_of_once_for_each_topic_and_broker_that_they_are_set_for() -> None:
    async def main() -> None:
        async with started() as node:
            with capture_logs() as logs:
                await node.topics.create("t", 1, {"flush.ms": "5", "retention.ms": "7", "preallocate": "true"})
                await node.topics.create("u", 1, {"retention.ms": "7"})
                await node.topics.create("v", 1, {"flush.ms": "5"}, validate_only=True)
                for kind, name, setting, operation in (
                    (ResourceType.TOPIC, "t", "segment.jitter.ms", AlterOperation.SET),
                    (ResourceType.TOPIC, "t", "flush.ms", AlterOperation.DELETE),
                    (ResourceType.BROKER, "", "num.io.threads", AlterOperation.SET),
                    (ResourceType.BROKER, "1", "log.retention.ms", AlterOperation.SET),
                ):
                    change = ConfigChange(setting, "9", operation)
                    alteration = Alteration(resource_type=int(kind), resource_name=name, changes=[change])
                    assert await node.configs.alter(alteration, validate_only=True) is None
                    assert await node.configs.alter(alteration, validate_only=False) is None
            warned = [
                (one["resource_type"], one["resource"], one["settings"])
                for one in logs
                if one["log_level"] == "warning"
            ]
            assert warned == [
                ("TOPIC", "t", ["flush.ms", "preallocate"]),
                ("TOPIC", "t", ["segment.jitter.ms"]),
                ("BROKER", "", ["num.io.threads"]),
            ]

    run(main)


def test_a_partition_is_awaited_from_its_creation_in_the_cluster_until_its_coordinator_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with started() as node:
            create_partitions, may_go_on = node.diskless.create_partitions, asyncio.Event()

            async def slowly(*arguments: Any) -> None:
                await may_go_on.wait()
                await create_partitions(*arguments)

            monkeypatch.setattr(node.diskless, "create_partitions", slowly)
            creating = asyncio.create_task(node.topics.create("t", 1, {}))
            await asyncio.sleep(1)
            info = node.topics.by_name("t")
            assert info is not None, "clients see it already"
            key = PartitionKey(info.topic_id.bytes, 0)
            assert node.topics.is_awaited(key)
            may_go_on.set()
            await creating
            assert not node.topics.is_awaited(key)
            await node.topics.delete(info)
            assert not node.topics.is_awaited(key)

    run(main)


def test_a_partition_is_awaited_as_well_by_a_node_without_a_copy_of_its_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with started() as node:
            first = await node.topics.create("t", 1, {})
            assert isinstance(first, TopicInfo)
            old, new = (PartitionKey(first.topic_id.bytes, partition) for partition in (0, 1))
            replica = node.topics.replica_of(old)
            assert replica is not None
            monkeypatch.setattr(replica, "is_readable", False)
            create_partitions, may_go_on = node.diskless.create_partitions, asyncio.Event()

            async def slowly(*arguments: Any) -> None:
                await may_go_on.wait()
                await create_partitions(*arguments)

            monkeypatch.setattr(node.diskless, "create_partitions", slowly)
            creating = asyncio.create_task(node.topics.add_partitions("t", 2, None, [1]))
            await asyncio.sleep(1)
            assert (node.topics.is_awaited(old), node.topics.is_awaited(new)) == (False, True)
            may_go_on.set()
            await creating
            await asyncio.sleep(1)
            assert not node.topics.is_awaited(new)

    run(main)


def test_a_topic_of_the_same_name_is_another_topic_without_the_settings_of_the_first() -> None:
    async def main() -> None:
        async with started() as node:
            first = await node.topics.create("t", 1, {"max.message.bytes": "77"})
            assert isinstance(first, TopicInfo)
            await node.topics.delete(first)
            second = await node.topics.create("t", 2, {})
            assert isinstance(second, TopicInfo)
            assert second.topic_id != first.topic_id
            assert second.rules.max_message_bytes != 77
            assert node.topics.by_id(first.topic_id) is None

    run(main)


def failing_where_it_is_decided(shard: ShardId) -> AbstractContextManager[object]:
    """What is decided, and only failed at a coordinator, is done there again while the client waits."""
    return pytest.raises(CoordinatorError) if shard == CLUSTER else nullcontext()


@pytest.mark.parametrize("shard", [CLUSTER, DISKLESS])
@pytest.mark.parametrize("fault", AppendFault)
def test_whatever_append_fails_while_a_topic_is_created_it_is_there_whole_or_not_at_all(
    shard: ShardId, fault: AppendFault
) -> None:
    async def main() -> None:
        async with started() as node:
            node.shared.fail_next_append(fault, shard=shard)
            with failing_where_it_is_decided(shard):
                await node.topics.create("t", 3, {})
            await node.settled()
            node.shared.land_late_appends(shard)
            await node.settled()
            node.assert_consistent()
            again = await node.until_done(lambda: node.topics.create("t", 3, {}))
            if isinstance(again, Refusal):
                assert again.code is ErrorCode.TOPIC_ALREADY_EXISTS
            node.assert_consistent()

    run(main)


@pytest.mark.parametrize("shard", [CLUSTER, DISKLESS])
@pytest.mark.parametrize("fault", AppendFault)
def test_whatever_append_fails_while_a_topic_is_deleted_it_is_gone_whole_or_not_at_all(
    shard: ShardId, fault: AppendFault
) -> None:
    async def main() -> None:
        async with started() as node:
            info = await node.topics.create("t", 3, {})
            assert isinstance(info, TopicInfo)
            node.shared.fail_next_append(fault, shard=shard)
            with failing_where_it_is_decided(shard):
                await node.topics.delete(info)
            await node.settled()
            node.assert_consistent()
            await node.until_done(lambda: node.topics.delete(info))
            assert node.topics.by_name("t") is None
            node.assert_consistent()

    run(main)


def test_a_crash_between_the_two_shards_is_put_right_at_the_next_start() -> None:
    async def main() -> None:
        shared = SharedLog()
        async with started(shared) as node:
            info = await node.topics.create("kept", 1, {})
            deleted = await node.topics.create("deleted", 1, {})
            assert isinstance(info, TopicInfo)
            assert isinstance(deleted, TopicInfo)
            shared.fail_next_append(shard=DISKLESS, times=100)
            for interrupted in (node.topics.create("new", 2, {}), node.topics.delete(deleted)):
                with pytest.raises(CoordinatorError):
                    await interrupted
        shared._faults.clear()
        async with started(shared) as node:
            assert [info.name for info in node.topics.all()] == ["kept", "new"]
            node.assert_consistent()

    run(main)


def test_what_a_leader_left_in_the_middle_is_put_right_by_the_next_one() -> None:
    async def main() -> None:
        shared = SharedLog()
        async with started(shared) as first:
            deleted = await first.topics.create("deleted", 1, {})
            assert isinstance(deleted, TopicInfo)
            second = ClusterNode(shared, 2)
            await second.start()
            shared.fail_next_append(shard=DISKLESS, node_id=1, times=1000)
            for interrupted in (first.topics.create("new", 2, {}), first.topics.delete(deleted)):
                with pytest.raises(CoordinatorError):
                    await interrupted
            for shard in (CLUSTER, DISKLESS):
                shared.set_leader(shard, 2)
            await second.settled()
            assert [info.name for info in second.topics.all()] == ["new"]
            second.assert_consistent()
            assert set(second.heard) == {(deleted.topic_id, "deleted")}
            await second.stop()

    run(main)


@pytest.mark.parametrize("fault", AppendFault)
def test_whoever_listens_for_deletions_hears_of_one_that_was_interrupted_once_it_is_repaired(
    fault: AppendFault,
) -> None:
    async def main() -> None:
        async with started() as node:
            info = await node.topics.create("t", 3, {})
            assert isinstance(info, TopicInfo)
            node.shared.fail_next_append(fault, shard=CLUSTER)
            with pytest.raises(CoordinatorError):
                await node.topics.delete(info)
            await node.settled()
            assert bool(node.heard) == (node.topics.by_id(info.topic_id) is None)
            await node.until_done(lambda: node.topics.delete(info))
            assert set(node.heard) == {(info.topic_id, "t")}

    run(main)


def test_a_listener_that_fails_is_told_again_until_it_succeeds() -> None:
    async def main() -> None:
        async with started() as node:
            info = await node.topics.create("t", 3, {})
            assert isinstance(info, TopicInfo)
            node.deaf_times = 2
            with pytest.raises(CoordinatorError):
                await node.topics.delete(info)
            assert node.topics.by_name("t") is None
            await node.settled()
            assert node.heard == [(info.topic_id, "t")]
            node.assert_consistent()

    run(main)


def test_a_listener_hears_at_the_next_start_of_a_deletion_that_a_crash_interrupted() -> None:
    async def main() -> None:
        shared = SharedLog()
        async with started(shared) as node:
            info = await node.topics.create("t", 1, {})
            assert isinstance(info, TopicInfo)
            node.deaf_times = 100
            with pytest.raises(CoordinatorError):
                await node.topics.delete(info)
        async with started(shared) as node:
            assert set(node.heard) == {(info.topic_id, "t")}
            node.assert_consistent()

    run(main)


def test_no_producer_id_is_ever_given_twice() -> None:
    async def main() -> None:
        shared = SharedLog()
        seen: list[int] = []
        for fault in (None, *AppendFault):
            async with started(shared) as node:
                if fault is not None:
                    shared.fail_next_append(fault, shard=CLUSTER)
                taken = [node.until_done(node.producer_ids.next) for _ in range(1100)]
                seen += await asyncio.gather(*taken)
                shared.land_late_appends(CLUSTER)
        assert len(set(seen)) == len(seen)

    run(main)


def test_a_listener_hears_of_a_deletion_at_another_node_and_what_it_raises_ends_nothing() -> None:
    async def main() -> None:
        shared = SharedLog()
        async with started(shared) as first:
            second = ClusterNode(shared, 2)
            await second.start()
            topics = [await first.topics.create(name, 1, {}) for name in ("deaf", "heard")]
            second.deaf_times = 1
            for info in topics:
                assert isinstance(info, TopicInfo)
                await first.topics.delete(info)
            await second.settled()
            assert second.heard == [(info.topic_id, "heard")]
            assert [name for _, name in first.heard] == ["deaf", "heard"]
            await second.stop()

    run(main)

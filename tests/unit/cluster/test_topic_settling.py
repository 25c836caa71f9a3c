"""What Diskless coordinators have to do about topics is done at last, by whichever node leads the cluster shard."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from diskless_core import shards
from diskless_core.cluster import topic_settling
from diskless_core.cluster.config_layers import BrokerSettings
from diskless_core.cluster.operations import Refusal
from diskless_core.cluster.part import Cluster, ClusterNeighbours
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.tables import REMOVED, UNSETTLED
from diskless_core.cluster.topics import TopicInfo
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.errors import (
    CoordinatorError,
    CoordinatorLoadingError,
    NotCoordinatorError,
    OutcomeUnknownError,
)
from diskless_core.coordinator.shard import ShardServices
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.shard import DisklessShard
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import AppendFault, SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.membership import until
from tests.support.shards import Sequential
from tests.support.virtual_time import VirtualClock, run

CLUSTER = shards.CLUSTER_SHARD
LONG_S = 60.0
"""Many pauses."""


class Coordinator:
    """A Diskless coordinator that no node of the cluster has a replica of, so that nothing is known but by asking."""

    def __init__(self) -> None:
        self.partitions: dict[uuid.UUID, set[int]] = {}
        self.asked: list[tuple[str, uuid.UUID]] = []
        self.is_away = self.is_moving = self.refuses_at_once = False
        self.while_moving: type[CoordinatorError] = NotCoordinatorError
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.under_way = self.most_under_way = 0

    async def create_partitions(self, topic_id: uuid.UUID, name: str, partitions: Sequence[int]) -> None:
        await self._answer("create", topic_id)
        self.partitions.setdefault(topic_id, set()).update(partitions)

    async def delete_topic(self, topic_id: uuid.UUID) -> ErrorCode:
        await self._answer("delete", topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if self.partitions.pop(topic_id, None) is None else ErrorCode.NONE

    async def _answer(self, asked: str, topic_id: uuid.UUID) -> None:
        self.asked.append((asked, topic_id))
        if self.refuses_at_once:
            raise CoordinatorError("this node is to lead the coordinator, and does not yet")
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0.01)
        await self.may_answer.wait()
        self.under_way -= 1
        if self.is_moving:
            raise self.while_moving("another node is about to lead this coordinator")
        if self.is_away:
            raise CoordinatorError("nobody leads this coordinator")


class Node:
    """The topics of one node that knows the Diskless coordinators by their answers alone."""

    def __init__(self, shared: SharedLog, coordinators: Mapping[int, Coordinator], node_id: int) -> None:
        clock = VirtualClock(asyncio.get_running_loop(), seed=node_id)
        self.log = shared.node(node_id)
        services = ShardServices(node_id=node_id, clock=clock, log=self.log, store=MemoryCoordinatorStore())
        rules = CommitRules(assignment=Sequential())
        self.cluster: ClusterShard = ClusterShard(CLUSTER, services)
        self.replicas = {index: DisklessShard(shards.DISKLESS.shard(index), services, rules) for index in coordinators}
        self.behind: set[int] = set()
        self._part = Cluster(
            BrokerSettings.of(BrokerConfig()),
            ClusterNeighbours(
                node_id=node_id,
                shard=self.cluster,
                replicas=self.replicas,
                coordinators=cast("Any", coordinators),
                transport=cast("Any", None),
                broker_epoch=lambda: None,
                apply_quotas=lambda _: None,
                clock=clock,
                having=self._having,
            ),
        )
        self.topics = self._part.topics
        self.heard: list[str] = []
        self.topics.on_deletion(self._hear)

    @asynccontextmanager
    async def _having(self, wanted: Collection[DisklessShard]) -> AsyncIterator[None]:
        if any(shard.id.index in self.behind for shard in wanted):
            raise CoordinatorLoadingError("this broker has no copy yet that has caught up")
        yield

    async def _hear(self, topic_ids: Collection[uuid.UUID], names: Collection[str]) -> None:
        self.heard.extend(names)

    async def start(self) -> None:
        await self.log.start()
        await self.cluster.start()
        await self.cluster.until_caught_up()
        await self._part.start()

    async def stop(self) -> None:
        await self._part.stop()
        await self.cluster.stop()
        await self.log.stop()

    @property
    def unsettled(self) -> int:
        """How many topics the cluster shard says that something is left to do for."""
        return self.cluster.state.row_count(UNSETTLED) + self.cluster.state.row_count(REMOVED)

    async def created(self, name: str, partition_count: int) -> TopicInfo:
        info = await self.topics.create(name, partition_count, {})
        assert isinstance(info, TopicInfo)
        return info

    async def interrupted_creation(self, name: str, partition_count: int) -> TopicInfo:
        with pytest.raises(CoordinatorError):
            await self.topics.create(name, partition_count, {})
        info = self.topics.by_name(name)
        assert info is not None, "the cluster shard has decided"
        return info


class World:
    """Two nodes of which the first leads the cluster shard, and coordinators that are led elsewhere."""

    def __init__(self, coordinator_count: int) -> None:
        self.shared = SharedLog()
        self.coordinators = {index: Coordinator() for index in range(coordinator_count)}
        self.first, self.second = (Node(self.shared, self.coordinators, node_id) for node_id in (1, 2))

    def move_controller(self) -> None:
        self.shared.set_leader(CLUSTER, 2)

    def partitions_of(self, info: TopicInfo) -> list[int]:
        """All partitions of a topic that its coordinators have. Each belongs to one."""
        held = (coordinator.partitions.get(info.topic_id, ()) for coordinator in self.coordinators.values())
        return sorted(partition for partitions in held for partition in partitions)

    async def until_settled(self, node: Node) -> None:
        await until(lambda: node.unsettled == 0)


@asynccontextmanager
async def started(coordinator_count: int = 1) -> AsyncIterator[World]:
    world = World(coordinator_count)
    world.shared.set_leader(CLUSTER, 1)
    nodes = (world.first, world.second)
    for node in nodes:
        await node.start()
    await world.first.cluster.until_term_changes(None)
    yield world
    for node in nodes:
        await node.stop()


def test_a_topic_is_settled_soon_after_it_was_created_got_partitions_and_was_deleted() -> None:
    async def main() -> None:
        async with started(2) as world:
            node = world.first
            info = await node.created("t", 3)
            assert world.partitions_of(info) == [0, 1, 2]
            await world.until_settled(node)
            assert await node.topics.add_partitions("t", 5, None, [1]) is None
            assert world.partitions_of(info) == [0, 1, 2, 3, 4]
            await world.until_settled(node)
            assert await node.topics.delete(info)
            assert world.partitions_of(info) == []
            assert node.heard == ["t"]
            await world.until_settled(node)
            calls = [asked for coordinator in world.coordinators.values() for asked, _ in coordinator.asked]
            assert sorted(calls) == ["create"] * 4 + ["delete"] * 2

    run(main)


@pytest.mark.parametrize("error", [NotCoordinatorError, CoordinatorLoadingError, OutcomeUnknownError])
def test_nobody_who_changes_a_topic_hears_of_a_coordinator_whose_leader_changes(error: type[CoordinatorError]) -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.is_moving, coordinator.while_moving = True, error
            asyncio.get_running_loop().call_later(topic_settling.MOVING_S / 2, setattr, coordinator, "is_moving", False)
            info = await world.first.created("t", 2)
            assert world.partitions_of(info) == [0, 1]
            assert len(coordinator.asked) < 20, "it is asked with pauses that grow"

    run(main)


def test_a_coordinator_without_a_leader_is_not_waited_for_long() -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.is_moving = True
            began = asyncio.get_running_loop().time()
            info = await world.first.interrupted_creation("t", 2)
            assert asyncio.get_running_loop().time() - began < topic_settling.MOVING_S + 1
            coordinator.is_moving = False
            await world.until_settled(world.first)
            assert world.partitions_of(info) == [0, 1]

    run(main)


def test_only_coordinators_that_a_topic_was_placed_on_are_asked_to_delete_it() -> None:
    async def main() -> None:
        async with started(4) as world:
            info = await world.first.created("t", 1)
            await world.first.topics.delete(info)
            asked = [coordinator.asked for coordinator in world.coordinators.values() if coordinator.asked]
            assert asked == [[("create", info.topic_id), ("delete", info.topic_id)]]

    run(main)


def test_a_coordinator_that_is_away_holds_up_nothing_but_its_own_partitions() -> None:
    async def main() -> None:
        async with started(2) as world:
            for coordinator in world.coordinators.values():
                coordinator.is_away = True
            topics = [await world.first.interrupted_creation(name, 2) for name in ("a", "z")]
            world.coordinators[1].is_away = False
            await asyncio.sleep(LONG_S)
            assert [len(world.partitions_of(info)) for info in topics] == [1, 1]
            world.coordinators[0].is_away = False
            await world.until_settled(world.first)
            assert [world.partitions_of(info) for info in topics] == [[0, 1], [0, 1]]

    run(main)


def test_a_coordinator_that_is_away_is_asked_about_one_topic_with_pauses_that_grow() -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.is_away = True
            for number in range(20):
                await world.first.interrupted_creation(f"t{number}", 1)
            await asyncio.sleep(LONG_S)
            coordinator.asked.clear()
            await asyncio.sleep(LONG_S)
            assert 30 <= len(coordinator.asked) <= 130
            assert len(set(coordinator.asked)) > 1, "one topic that cannot be done must not hold up the others"

    run(main)


def test_a_coordinator_that_refuses_at_once_is_told_to_clients_at_once() -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.refuses_at_once = True
            for number in range(20):
                async with asyncio.timeout(1):
                    await world.first.interrupted_creation(f"t{number}", 1)
            coordinator.refuses_at_once = False
            await world.until_settled(world.first)
            assert all(world.partitions_of(info) == [0] for info in world.first.topics.all())

    run(main)


def test_what_many_topics_lack_is_made_up_for_by_so_many_at_a_time() -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.is_away = True
            topics = [await world.first.interrupted_creation(f"t{number}", 1) for number in range(100)]
            coordinator.is_away = False
            coordinator.most_under_way = 0
            await world.until_settled(world.first)
            assert coordinator.most_under_way == topic_settling.RETRIES_AT_ONCE
            assert all(world.partitions_of(info) == [0] for info in topics)

    run(main)


def test_the_next_controller_finishes_what_was_begun_and_asks_about_nothing_else() -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            kept = [await world.first.created(f"kept{number}", 1) for number in range(50)]
            gone = await world.first.created("gone", 2)
            await world.until_settled(world.first)
            coordinator.is_away = True
            new = await world.first.interrupted_creation("new", 2)
            with pytest.raises(CoordinatorError):
                await world.first.topics.delete(gone)
            with pytest.raises(CoordinatorError):
                await world.first.topics.add_partitions("kept0", 3, None, [1])
            world.move_controller()
            await asyncio.sleep(LONG_S)
            coordinator.asked.clear()
            coordinator.is_away = False
            await world.until_settled(world.second)
            assert set(coordinator.asked) == {
                ("create", new.topic_id),
                ("delete", gone.topic_id),
                ("create", kept[0].topic_id),
            }
            assert world.partitions_of(gone) == []
            assert world.partitions_of(new) == [0, 1]
            assert world.partitions_of(kept[0]) == [0, 1, 2]
            assert "gone" in world.second.heard

    run(main)


def test_a_controller_that_was_replaced_asks_no_more() -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.is_away = True
            info = await world.first.interrupted_creation("t", 1)
            world.move_controller()
            await world.second.cluster.until_term_changes(None)
            await world.second.stop()
            await asyncio.sleep(10)
            coordinator.asked.clear()
            await asyncio.sleep(LONG_S)
            assert coordinator.asked == []
            world.shared.set_leader(CLUSTER, 1)
            coordinator.is_away = False
            await world.first.cluster.until_term_changes(None)
            await world.until_settled(world.first)
            assert world.partitions_of(info) == [0]

    run(main)


def test_what_was_decided_before_the_controller_ended_may_have_happened() -> None:
    """NOT_CONTROLLER would say that nothing did, and clients would send the request again."""

    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.may_answer.clear()
            creating = asyncio.create_task(world.first.topics.create("t", 1, {}))
            await asyncio.sleep(1)
            await world.first.stop()
            with pytest.raises(OutcomeUnknownError):
                await creating
            world.move_controller()
            coordinator.may_answer.set()
            await world.until_settled(world.second)

    run(main)


def test_a_request_that_is_repeated_while_its_topic_is_not_done_does_nothing_twice() -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.is_away = True
            info = await world.first.interrupted_creation("t", 2)
            again = await world.first.topics.create("t", 2, {})
            assert isinstance(again, Refusal)
            assert again.code is ErrorCode.TOPIC_ALREADY_EXISTS
            with pytest.raises(CoordinatorError):
                await world.first.topics.add_partitions("t", 4, None, [1])
            grown = await world.first.topics.add_partitions("t", 4, None, [1])
            assert grown is not None
            assert grown.code is ErrorCode.INVALID_PARTITIONS
            coordinator.is_away = False
            await world.until_settled(world.first)
            assert world.partitions_of(info) == [0, 1, 2, 3]
            coordinator.is_away = True
            with pytest.raises(CoordinatorError):
                await world.first.topics.delete(info)
            assert not await world.first.topics.delete(info)
            coordinator.is_away = False
            await world.until_settled(world.first)
            assert world.first.heard == ["t"]
            assert coordinator.partitions == {}

    run(main)


def test_a_topic_that_is_deleted_before_its_partitions_were_created_gets_none() -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.is_away = True
            info = await world.first.interrupted_creation("t", 2)
            with pytest.raises(CoordinatorError):
                await world.first.topics.delete(info)
            coordinator.asked.clear()
            coordinator.is_away = False
            await world.until_settled(world.first)
            await asyncio.sleep(LONG_S)
            assert set(coordinator.asked) == {("delete", info.topic_id)}
            assert coordinator.partitions == {}

    run(main)


def test_a_deletion_follows_a_creation_that_is_under_way() -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.may_answer.clear()
            creating = asyncio.create_task(world.first.topics.create("t", 2, {}))
            await asyncio.sleep(1)
            info = world.first.topics.by_name("t")
            assert info is not None
            deleting = asyncio.create_task(world.first.topics.delete(info))
            await asyncio.sleep(1)
            assert [asked for asked, _ in coordinator.asked] == ["create"]
            coordinator.may_answer.set()
            await asyncio.gather(creating, deleting)
            assert [asked for asked, _ in coordinator.asked] == ["create", "delete"]
            assert coordinator.partitions == {}
            await world.until_settled(world.first)

    run(main)


def test_partitions_that_are_added_while_a_creation_is_under_way_are_created_too() -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.may_answer.clear()
            creating = asyncio.create_task(world.first.topics.create("t", 2, {}))
            await asyncio.sleep(1)
            growing = asyncio.create_task(world.first.topics.add_partitions("t", 4, None, [1]))
            await asyncio.sleep(1)
            coordinator.may_answer.set()
            info, refusal = await asyncio.gather(creating, growing)
            assert isinstance(info, TopicInfo)
            assert refusal is None
            assert world.partitions_of(info) == [0, 1, 2, 3]
            await world.until_settled(world.first)

    run(main)


@pytest.mark.parametrize("fault", AppendFault)
def test_a_topic_stays_unsettled_until_the_cluster_shard_could_take_note(fault: AppendFault) -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            coordinator.may_answer.clear()
            creating = asyncio.create_task(world.first.topics.create("t", 2, {}))
            await asyncio.sleep(1)
            world.shared.fail_next_append(fault, shard=CLUSTER)
            coordinator.may_answer.set()
            info = await creating
            assert isinstance(info, TopicInfo)
            await asyncio.sleep(LONG_S)
            world.shared.land_late_appends(CLUSTER)
            await world.until_settled(world.first)
            assert world.partitions_of(info) == [0, 1]

    run(main)


def test_a_defect_of_one_step_is_told_to_the_client_and_the_step_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with started() as world:
            [coordinator] = world.coordinators.values()
            with monkeypatch.context() as patched:

                async def defective(*_: object) -> None:
                    raise ZeroDivisionError

                patched.setattr(coordinator, "create_partitions", defective)
                with pytest.raises(ZeroDivisionError):
                    await world.first.topics.create("t", 1, {})
            await world.until_settled(world.first)
            info = world.first.topics.by_name("t")
            assert info is not None
            assert world.partitions_of(info) == [0]

    run(main)


def test_a_coordinator_whose_copy_takes_long_keeps_no_other_from_losing_partitions_of_topics_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with started(3) as world:
            stray = uuid.UUID(int=7)
            for index, replica in world.second.replicas.items():
                held = world.coordinators[index].partitions
                held[stray] = {index}
                monkeypatch.setattr(replica, "topics", lambda held=held: [(one, "gone") for one in held])
            world.second.behind = {0, 1}
            world.move_controller()
            await asyncio.sleep(LONG_S)
            assert [len(coordinator.partitions) for coordinator in world.coordinators.values()] == [1, 1, 0]
            world.second.behind = {0}
            await asyncio.sleep(LONG_S)
            assert [len(coordinator.partitions) for coordinator in world.coordinators.values()] == [1, 0, 0]
            world.second.behind = set()
            await asyncio.sleep(LONG_S)
            assert [len(coordinator.partitions) for coordinator in world.coordinators.values()] == [0, 0, 0]

    run(main)

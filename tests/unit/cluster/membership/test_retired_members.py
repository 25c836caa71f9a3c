"""Brokers with node ids of the cluster, on virtual time: who keeps an id, and who has to take another one."""

from __future__ import annotations

import asyncio
import uuid
from copy import copy

import pytest

from diskless_core.cluster.membership import node_ids
from diskless_core.cluster.membership.member import NodeIdRetiredError
from diskless_core.cluster.membership.model import BrokerSpec
from diskless_core.cluster.membership.node_ids import IDLE_MS
from diskless_core.cluster.membership.tables import NODE_IDS
from diskless_core.cluster.operations import Refusal
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DisklessAllocateNodeIdRequest, UnregisterBrokerRequest
from diskless_core.shards import CLUSTER_SHARD
from tests.support.membership import CLUSTER_ID, HEARTBEAT_S, MemberProcess, MemberWorld, begun, in_world, until

ALLOCATION = uuid.UUID(int=1234)


async def allocate(process: MemberProcess, cluster_id: str = CLUSTER_ID, allocation: uuid.UUID | None = ALLOCATION):
    request = DisklessAllocateNodeIdRequest(cluster_id=cluster_id, allocation_id=allocation)
    return await process.membership.service.allocate_node_id(request)


async def member_with_given_id(world: MemberWorld, controller: MemberProcess) -> MemberProcess:
    """A member whose id the controller has given to it."""
    answer = await allocate(controller)
    made = world.process(answer.node_id, allocation_id=ALLOCATION)
    await made.join()
    return made


def a_day_later(world: MemberWorld) -> None:
    """A day passes, by all clocks, in which nobody misses a heartbeat."""
    for process in world.processes:
        clock = copy(process._clock)
        clock.monotonic = lambda monotonic=clock.monotonic: monotonic() + IDLE_MS / 1000
        process._clock.skew_ms += IDLE_MS
        clock.skew_ms = process._clock.skew_ms
        process.shard.clock_watch._clock = clock


def test_only_the_controller_gives_ids_and_only_to_brokers_of_its_cluster() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        answers = [
            await allocate(one),
            await allocate(one),
            await allocate(two),
            await allocate(one, cluster_id="other"),
            await allocate(one, allocation=None),
        ]
        assert [(answer.node_id, answer.error_code) for answer in answers] == [
            (3, ErrorCode.NONE),
            (3, ErrorCode.NONE),
            (-1, ErrorCode.NOT_CONTROLLER),
            (-1, ErrorCode.INCONSISTENT_CLUSTER_ID),
            (-1, ErrorCode.INVALID_REQUEST),
        ]

    in_world(scene)


def test_a_broker_that_comes_back_within_a_day_keeps_its_id_though_the_controller_has_changed() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        three = await member_with_given_id(world, one)
        await three.kill()
        world.lead(2)
        await until(lambda: two.live == [1, 2])
        again = world.process(3, allocation_id=ALLOCATION)
        await again.join()
        assert two.live == [1, 2, 3]

    in_world(scene)


def test_a_broker_that_was_away_for_a_day_is_unregistered_and_can_not_come_back_with_its_id() -> None:
    async def scene(world: MemberWorld) -> None:
        one, _ = await world.join(1, 2)
        three = await member_with_given_id(world, one)
        await three.kill()
        await until(lambda: one.live == [1, 2])
        a_day_later(world)
        await until(lambda: one.known == [1, 2])
        again = world.process(3, allocation_id=ALLOCATION)
        with pytest.raises(NodeIdRetiredError, match="takes another one"):
            await again.join()
        assert (await allocate(one)).node_id == 4

    in_world(scene)


def test_configured_ids_stay_registered_however_long_their_brokers_are_away() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await two.kill()
        await until(lambda: one.live == [1])
        a_day_later(world)
        await asyncio.sleep(10 * HEARTBEAT_S)
        assert one.known == [1, 2]

    in_world(scene)


def test_a_day_is_counted_from_when_the_broker_was_fenced_whoever_was_the_controller_then() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        three = await member_with_given_id(world, one)
        await three.kill()
        await until(lambda: two.live == [1, 2])
        a_day_later(world)
        world.lead(2)
        await until(lambda: two.known == [1, 2])

    in_world(scene)


def test_a_fenced_broker_that_is_heard_of_keeps_its_id() -> None:
    async def scene(world: MemberWorld) -> None:
        one, _ = await world.join(1, 2)
        three = await member_with_given_id(world, one)
        three.log_is_ok = False
        await until(lambda: one.live == [1, 2])
        a_day_later(world)
        await asyncio.sleep(10 * HEARTBEAT_S)
        assert one.known == [1, 2, 3]

    in_world(scene)


def test_a_running_broker_whose_id_is_retired_is_told_so() -> None:
    async def scene(world: MemberWorld) -> None:
        one, _ = await world.join(1, 2)
        three = await member_with_given_id(world, one)
        three.is_paused = True
        await until(lambda: one.live == [1, 2])
        assert not (await one.membership.service.unregister(UnregisterBrokerRequest(broker_id=3))).error_code
        waiting = begun(three.membership.until_retired())
        await asyncio.sleep(10 * HEARTBEAT_S)
        assert not waiting.done()
        three.is_paused = False
        await waiting
        assert one.known == [1, 2]

    in_world(scene)


def test_an_id_that_was_given_and_never_registered_is_forgotten_after_a_day() -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        await allocate(one)
        assert one.shard.state.row_count(NODE_IDS) == 1
        a_day_later(world)
        await until(lambda: not one.shard.state.row_count(NODE_IDS))
        assert (await allocate(one)).node_id == 3

    in_world(scene)


@pytest.mark.parametrize("node_id", [-(2**31), -1, 0, 9, 2**31 - 1])
def test_to_unregister_a_broker_that_there_is_none_of_changes_nothing(node_id: int) -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        written = one.shard.next_offset
        answer = await one.membership.service.unregister(UnregisterBrokerRequest(broker_id=node_id))
        assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert (one.known, one.shard.next_offset) == ([1], written)

    in_world(scene)


def test_connections_that_a_broker_changes_between_are_watched_once_each() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        [(_, first)] = two.links.values()
        await asyncio.sleep(HEARTBEAT_S)
        for _ in range(20):  # as where heartbeats of one broker come by several connections in turns
            two.links.clear()
            await asyncio.sleep(2 * HEARTBEAT_S)
            [(_, second)] = two.links.values()
            two.links[one.port] = (one, first)
            await asyncio.sleep(2 * HEARTBEAT_S)
        assert len(first._listeners) == len(second._listeners) == 1

    in_world(scene)


def test_refusals_of_made_up_brokers_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_ids, "MAX_BROKERS", 20)

    async def scene(world: MemberWorld) -> None:
        one, _ = await world.join(1, 2)
        registrar = one.membership.registrar
        for node_id in range(100, 200):
            spec = BrokerSpec(node_id=node_id, incarnation_id=uuid.uuid4(), listeners=(), rack=None, features={})
            assert isinstance(await registrar.register(spec, allocation_id=ALLOCATION), Refusal)
        assert len(registrar._refused) == 20

    in_world(scene)


def test_brokers_that_have_been_away_for_a_day_are_retired_by_one_entry() -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        for number in range(5):
            await allocate(one, allocation=uuid.UUID(int=number + 1))
        assert one.shard.state.row_count(NODE_IDS) == 5
        entries = len(world.shared.content(CLUSTER_SHARD))
        a_day_later(world)
        await until(lambda: not one.shard.state.row_count(NODE_IDS))
        assert len(world.shared.content(CLUSTER_SHARD)) == entries + 1

    in_world(scene)

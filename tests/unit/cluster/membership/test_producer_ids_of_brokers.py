"""Producer ids of several brokers, on virtual time: blocks of the controller, whoever that is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from diskless_core.cluster import operations, producer_ids
from diskless_core.cluster.operations import PRODUCER_ID_BLOCK
from diskless_core.cluster.producer_ids import ANSWER_MS, PATIENCE_S, ProducerIds
from diskless_core.cluster.records import ProducerIdsTaken, decode, encode
from diskless_core.coordinator.calls import PeerCalls
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.peers import AnswerLostError, PeerRequest, PeerTransport
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tests.support.membership import MemberProcess, MemberWorld, in_world, until
from tests.unit.cluster.cluster_state import ClusterState


def supply(process: MemberProcess, transport: PeerTransport | None = None) -> ProducerIds:
    calls = PeerCalls(transport or process, timeout_ms=ANSWER_MS, transfer_s=0)
    return ProducerIds(process.shard, process.node_id, calls, lambda: process.membership.epoch)


async def taken(ids: ProducerIds, count: int) -> Sequence[int]:
    return await asyncio.gather(*(ids.next() for _ in range(count)))


class _LosesAnswers:
    """Takes requests to the controller, and loses the first answers."""

    def __init__(self, process: MemberProcess, losses: int) -> None:
        self._process = process
        self.losses = losses

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        answer = await self._process.send(node_id, request, timeout_s)
        if self.losses:
            self.losses -= 1
            raise AnswerLostError("lost")
        return answer


class _Answers:
    """A controller that answers with the same block whatever it is asked."""

    def __init__(self, first: int, count: int) -> None:
        self._response = AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=0, producer_id_start=first, producer_id_len=count
        )

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        return bytes(self._response.encode(version=0))


def test_all_brokers_have_ids_and_none_is_given_twice() -> None:
    async def scene(world: MemberWorld) -> None:
        processes = await world.join(1, 2, 3)
        supplies = [supply(process) for process in processes]
        ids = [one for many in await asyncio.gather(*(taken(one, 1500) for one in supplies)) for one in many]
        assert len(set(ids)) == 3 * 1500
        assert max(ids) < 6 * PRODUCER_ID_BLOCK

    in_world(scene)


def test_an_answer_that_was_lost_costs_its_block() -> None:
    async def scene(world: MemberWorld) -> None:
        _, two = await world.join(1, 2)
        transport = _LosesAnswers(two, losses=2)
        assert await supply(two, transport).next() == 2 * PRODUCER_ID_BLOCK

    in_world(scene)


def test_while_the_controller_moves_a_client_waits() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two, three = await world.join(1, 2, 3)
        await until(lambda: three.live == [1, 2, 3])
        world.lead(4)  # nobody
        await until(lambda: not one.shard.leading)
        waiting = asyncio.create_task(supply(three).next())
        await asyncio.sleep(PATIENCE_S / 4)
        assert not waiting.done()
        world.lead(2)
        assert await waiting == 0
        assert two.shard.leading

    in_world(scene)


@pytest.mark.parametrize("clients", [1, 20])
def test_without_a_controller_every_client_is_told_in_time(clients: int) -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        world.lead(4)
        await until(lambda: not one.shard.leading)
        began_s = asyncio.get_running_loop().time()
        ids = supply(two)
        outcomes = await asyncio.gather(*(ids.next() for _ in range(clients)), return_exceptions=True)
        assert all(isinstance(outcome, CoordinatorError) for outcome in outcomes)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(PATIENCE_S, abs=0.5)
        world.lead(1)
        assert await ids.next() == 0

    in_world(scene)


def test_a_controller_that_is_silent_is_not_waited_for_longer() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        one.is_paused = True
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(CoordinatorError, match="no producer ids could be taken: node 1 gave no answer"):
            await supply(two).next()
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(PATIENCE_S, abs=0.5)

    in_world(scene)


@pytest.mark.parametrize(
    ("node_id", "epoch", "code"),
    [
        (2, 1, ErrorCode.STALE_BROKER_EPOCH),
        (2, 99, ErrorCode.STALE_BROKER_EPOCH),
        (7, 2, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (-1, -1, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_the_controller_gives_nothing_to_whom_it_does_not_know(node_id: int, epoch: int, code: ErrorCode) -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        await world.join(2)
        written = one.shard.next_offset
        request = AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=epoch)
        response = await one.membership.service.allocate_producer_ids(request)
        assert (response.error_code, response.producer_id_start, response.producer_id_len) == (code, 0, 0)
        assert one.shard.next_offset == written

    in_world(scene)


def test_who_is_not_the_controller_says_so() -> None:
    async def scene(world: MemberWorld) -> None:
        _, two = await world.join(1, 2)
        assert two.membership.epoch is not None
        request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=two.membership.epoch)
        response = await two.membership.service.allocate_producer_ids(request)
        assert response.error_code == ErrorCode.NOT_CONTROLLER

    in_world(scene)


@pytest.mark.parametrize(("first", "count"), [(0, 0), (0, -1), (-1, 10), (2**63 - 5, 6)])
def test_a_block_that_is_none_is_not_used(first: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "PATIENCE_S", 0.5)

    async def scene(world: MemberWorld) -> None:
        _, two = await world.join(1, 2)
        with pytest.raises(CoordinatorError, match=f"sent {count} producer ids from {first} on"):
            await supply(two, _Answers(first, count)).next()

    in_world(scene)


def test_the_record_of_a_block_names_who_took_it() -> None:
    state = ClusterState()
    assert state.run(lambda command: operations.take_producer_ids(command, 2, 7)) == range(PRODUCER_ID_BLOCK)
    assert state.run(lambda command: operations.take_producer_ids(command, 3, 8)).start == PRODUCER_ID_BLOCK
    written = ProducerIdsTaken(broker_id=3, broker_epoch=8, next_producer_id=2 * PRODUCER_ID_BLOCK)
    assert decode(encode(written)) == written

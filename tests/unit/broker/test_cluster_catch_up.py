"""A broker asks the controller before it looks up what a name of a topic means: how often, how long, and what then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from diskless_core.broker.cluster_catch_up import LIMIT_S, REST_S, ClusterCatchUp
from diskless_core.coordinator.errors import CoordinatorLoadingError
from diskless_core.coordinator.leadership import Leadership
from diskless_core.coordinator.peers import AnswerLostError, PeerRequest, PeerUnavailableError
from diskless_core.coordinator.tail import Tail
from diskless_core.protocol.messages import DisklessDescribeShardsRequest, DisklessDescribeShardsResponse
from diskless_core.shards import CLUSTER_SHARD
from tests.support.virtual_time import VirtualClock, run

OWN, CONTROLLER = 1, 2
LATENCY_S = 0.01


class Shard:
    """What this broker knows of the cluster shard."""

    def __init__(self) -> None:
        self.leadership = Leadership(hint=CONTROLLER)
        self.next_offset = 10
        self.tail = Tail(1000)
        self.leading = False

    @property
    def leader_hint(self) -> int | None:
        return self.leadership.hint

    @property
    def claimed_by(self) -> int | None:
        return self.leadership.claimant

    def apply(self, offset: int) -> None:
        self.next_offset = offset
        self.tail.wake()


class Controller:
    """The other broker.

    Attributes:
        next_offset: how far it has read.
        asked: how often it was asked.
    """

    def __init__(self) -> None:
        self.next_offset = 10
        self.is_leading = True
        self.is_down = self.is_silent = False
        self.asked = 0

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        assert (node_id, request.api_key) == (CONTROLLER, DisklessDescribeShardsRequest.API_KEY)
        self.asked += 1
        if self.is_down:
            raise PeerUnavailableError("no connection")
        if self.is_silent:
            await asyncio.sleep(timeout_s)
            raise AnswerLostError("no answer in time")
        await asyncio.sleep(LATENCY_S)
        shard = DisklessDescribeShardsResponse.DisklessDescribedShard(
            shard_topic=CLUSTER_SHARD.topic,
            shard_index=CLUSTER_SHARD.index,
            is_leading=self.is_leading,
            next_offset=self.next_offset,
            stored_offset=0,
        )
        response = DisklessDescribeShardsResponse(error_code=0, shards=[shard], fenced_brokers=[])
        return bytes(response.encode(version=0))


Scene = Callable[[ClusterCatchUp, Shard, Controller, VirtualClock], Awaitable[None]]


def in_scene(scene: Scene) -> None:
    async def play() -> None:
        shard, controller, clock = Shard(), Controller(), VirtualClock(asyncio.get_running_loop())
        newest = ClusterCatchUp(OWN, shard, controller, clock)  # type: ignore[arg-type]
        await scene(newest, shard, controller, clock)
        await newest.stop()

    run(play)


def test_a_request_waits_until_this_broker_knows_what_the_controller_knew() -> None:
    async def scene(newest: ClusterCatchUp, shard: Shard, controller: Controller, _: VirtualClock) -> None:
        controller.next_offset = 12
        waiting = asyncio.create_task(newest.catch_up())
        await asyncio.sleep(2 * LATENCY_S)
        shard.apply(11)
        await asyncio.sleep(2 * LATENCY_S)
        assert not waiting.done()
        shard.apply(12)
        await waiting

    in_scene(scene)


def test_the_controller_itself_asks_nobody() -> None:
    async def scene(newest: ClusterCatchUp, shard: Shard, controller: Controller, _: VirtualClock) -> None:
        shard.leading = True
        await newest.catch_up()
        assert controller.asked == 0

    in_scene(scene)


def test_many_requests_share_a_question_but_none_that_was_asked_before_they_came() -> None:
    async def scene(newest: ClusterCatchUp, shard: Shard, controller: Controller, _: VirtualClock) -> None:
        first = [asyncio.create_task(newest.catch_up()) for _ in range(100)]
        await asyncio.sleep(LATENCY_S / 2)
        later = [asyncio.create_task(newest.catch_up()) for _ in range(100)]
        await asyncio.gather(*first)
        assert not any(one.done() for one in later)
        controller.next_offset = 11
        await asyncio.sleep(2 * LATENCY_S)
        assert not any(one.done() for one in later)
        shard.apply(11)
        await asyncio.gather(*later)
        assert controller.asked == 2

    in_scene(scene)


def test_without_a_controller_a_broker_goes_on_with_what_it_knows_and_tells_the_log_once() -> None:
    async def scene(newest: ClusterCatchUp, shard: Shard, controller: Controller, clock: VirtualClock) -> None:
        with capture_logs() as logs:
            for state in ("unknown", "down", "replaced", "silent"):
                shard.leadership.hint = None if state == "unknown" else CONTROLLER
                controller.is_down, controller.is_silent = state == "down", state == "silent"
                controller.is_leading = state != "replaced"
                began_s = clock.monotonic()
                await newest.catch_up()
                assert clock.monotonic() - began_s <= LIMIT_S + 0.01
        assert [line["log_level"] for line in logs] == ["warning"]

    in_scene(scene)


def test_a_broker_that_knows_that_it_is_behind_does_not_go_on() -> None:
    async def scene(newest: ClusterCatchUp, shard: Shard, controller: Controller, _: VirtualClock) -> None:
        controller.next_offset = 99
        with pytest.raises(CoordinatorLoadingError, match="10 of 99"):
            await newest.catch_up()
        shard.apply(99)
        await newest.catch_up()

    in_scene(scene)


def test_while_the_controller_does_not_answer_only_the_first_requests_wait_for_it() -> None:
    async def scene(newest: ClusterCatchUp, _: Shard, controller: Controller, clock: VirtualClock) -> None:
        controller.is_silent = True
        await newest.catch_up()
        began_s = clock.monotonic()
        for _ in range(100):
            await newest.catch_up()
        assert clock.monotonic() == began_s
        assert controller.asked == 1
        controller.is_silent = False
        await asyncio.sleep(REST_S)
        await newest.catch_up()
        assert controller.asked == 2

    in_scene(scene)


def test_a_request_that_is_given_up_holds_up_no_other() -> None:
    async def scene(newest: ClusterCatchUp, _: Shard, controller: Controller, __: VirtualClock) -> None:
        given_up, other = asyncio.create_task(newest.catch_up()), asyncio.create_task(newest.catch_up())
        await asyncio.sleep(LATENCY_S / 2)
        given_up.cancel()
        await other
        assert controller.asked == 1

    in_scene(scene)

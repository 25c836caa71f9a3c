"""How a broker reaches the controller: once, unless nothing has happened, and never longer than a client waits."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from diskless_core.broker.authorization import Caller
from diskless_core.broker.forwarding import CATCH_UP_S, EnvelopeRefusedError, Forwarding
from diskless_core.coordinator.calls import MOVED_S
from diskless_core.coordinator.errors import NotControllerError, OutcomeUnknownError
from diskless_core.coordinator.leadership import Leadership
from diskless_core.coordinator.peers import AnswerLostError, PeerRequest, PeerUnavailableError
from diskless_core.coordinator.tail import Tail
from diskless_core.protocol.envelope import unpack_address, unpack_user
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import EnvelopeRequest, EnvelopeResponse
from tests.support.virtual_time import VirtualClock, run

OWN, CONTROLLER, OTHER = 1, 2, 3
CALLER = Caller("alice", "10.0.0.7", "PLAINTEXT")
REQUEST = struct.pack(">hhi", 19, 7, 42) + b"body"
RESPONSE = struct.pack(">i", 42) + b"\0answer"
LIMIT_S = 5.0


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

    async def until_led_elsewhere(self, node_id: int) -> None:
        hint = self.leader_hint
        await self.leadership.wait_until(lambda: self.leader_hint not in (None, node_id, hint))

    def nominate(self, node_id: int | None) -> None:
        self.leadership.hint = node_id
        self.leadership.changed.set()

    def apply(self, offset: int) -> None:
        self.next_offset = offset
        self.tail.wake()


class Peers:
    """Other brokers: each sends back what it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, EnvelopeRequest]] = []
        self.answers: dict[int, Callable[[], Awaitable[EnvelopeResponse]]] = {}

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        assert request.api_key == EnvelopeRequest.API_KEY
        self.asked.append((node_id, EnvelopeRequest.decode(request.body, version=0)))
        try:
            async with asyncio.timeout(timeout_s):
                return bytes((await self.answers[node_id]()).encode(version=0))
        except TimeoutError:
            raise AnswerLostError("no answer in time") from None

    def whom(self) -> list[int]:
        return [node_id for node_id, _ in self.asked]


async def answered(offset: int = 10, data: bytes | None = RESPONSE) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=data, error_code=0, applied_offset=offset)


async def refused(error: ErrorCode = ErrorCode.NOT_CONTROLLER) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=None, error_code=int(error))


async def silent() -> EnvelopeResponse:
    await asyncio.sleep(1e9)
    raise AssertionError


def unreachable() -> Awaitable[EnvelopeResponse]:
    raise PeerUnavailableError("no connection")


def broken() -> Awaitable[EnvelopeResponse]:
    raise AnswerLostError("the connection broke")


def in_scene(scene: Callable[[Forwarding, Shard, Peers], Awaitable[None]]) -> None:
    async def play() -> None:
        shard, peers = Shard(), Peers()
        clock = VirtualClock(asyncio.get_running_loop(), seed=1)
        await scene(Forwarding(OWN, shard, peers, clock, max_bytes=1000), shard, peers)  # type: ignore[arg-type]

    run(play)


def test_the_controller_gets_the_request_as_it_is_and_learns_whose_it_is() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        peers.answers[CONTROLLER] = answered
        assert await forwarding.send(REQUEST, CALLER) == RESPONSE
        [(node_id, sent)] = peers.asked
        assert node_id == CONTROLLER
        assert sent.request_data == REQUEST
        assert unpack_user(sent.request_principal) == "alice"
        assert unpack_address(sent.client_host_address) == "10.0.0.7"
        assert sent.listener_name == "PLAINTEXT"

    in_scene(scene)


def test_the_answer_comes_when_this_broker_has_read_what_the_request_changed() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        peers.answers[CONTROLLER] = lambda: answered(offset=12)
        sent = asyncio.create_task(forwarding.send(REQUEST, CALLER))
        await asyncio.sleep(CATCH_UP_S / 4)
        shard.apply(11)
        await asyncio.sleep(CATCH_UP_S / 4)
        assert not sent.done()
        shard.apply(12)
        await asyncio.sleep(0.001)
        assert sent.done()
        assert await sent == RESPONSE

    in_scene(scene)


def test_a_broker_that_lags_gives_the_answer_nevertheless() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        peers.answers[CONTROLLER] = lambda: answered(offset=12)
        async with asyncio.timeout(CATCH_UP_S + 0.1):
            assert await forwarding.send(REQUEST, CALLER) == RESPONSE

    in_scene(scene)


@pytest.mark.parametrize("first", [refused, unreachable])
def test_who_does_not_lead_or_cannot_be_reached_is_left_for_who_claimed_last(
    first: Callable[[], Awaitable[EnvelopeResponse]],
) -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        shard.leadership.claimant = OTHER
        peers.answers = {CONTROLLER: first, OTHER: answered}
        assert await forwarding.send(REQUEST, CALLER) == RESPONSE
        assert peers.whom() == [CONTROLLER, OTHER]

    in_scene(scene)


def test_a_request_waits_for_a_controller() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        shard.nominate(None)
        peers.answers[OTHER] = answered
        sent = asyncio.create_task(forwarding.send(REQUEST, CALLER, LIMIT_S))
        await asyncio.sleep(LIMIT_S / 2)
        assert not sent.done()
        shard.nominate(OTHER)
        assert await sent == RESPONSE

    in_scene(scene)


def test_without_any_controller_the_client_hears_in_time_that_nothing_happened() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        peers.answers[CONTROLLER] = refused
        async with asyncio.timeout(LIMIT_S + 0.1):
            with pytest.raises(NotControllerError, match="broker 2 is not the controller"):
                await forwarding.send(REQUEST, CALLER, LIMIT_S)

    in_scene(scene)


def test_a_broker_that_comes_to_lead_itself_is_told_to_answer_itself() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        peers.answers[CONTROLLER] = refused
        sent = asyncio.create_task(forwarding.send(REQUEST, CALLER, LIMIT_S))
        await asyncio.sleep(LIMIT_S / 2)
        shard.leading = True
        assert await sent is None

    in_scene(scene)


def test_a_request_whose_answer_is_lost_is_not_sent_again() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        shard.leadership.claimant = OTHER
        peers.answers = {CONTROLLER: broken, OTHER: answered}
        with pytest.raises(OutcomeUnknownError, match="the connection broke"):
            await forwarding.send(REQUEST, CALLER)
        assert peers.whom() == [CONTROLLER]

    in_scene(scene)


def test_a_silent_controller_is_waited_for_no_longer_than_the_client_waits() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        peers.answers[CONTROLLER] = silent
        async with asyncio.timeout(LIMIT_S + 0.1):
            with pytest.raises(OutcomeUnknownError, match="gave no answer in time"):
                await forwarding.send(REQUEST, CALLER, LIMIT_S)

    in_scene(scene)


def test_a_silent_controller_is_given_up_soon_once_another_one_is_nominated() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        peers.answers[CONTROLLER] = silent
        sent = asyncio.create_task(forwarding.send(REQUEST, CALLER, 10 * MOVED_S))
        await asyncio.sleep(MOVED_S)
        shard.nominate(OTHER)
        async with asyncio.timeout(MOVED_S + 0.1):
            with pytest.raises(OutcomeUnknownError, match="another node leads"):
                await sent

    in_scene(scene)


@pytest.mark.parametrize(
    "error", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_an_envelope_that_the_controller_does_not_take_is_not_sent_again(error: ErrorCode) -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        peers.answers[CONTROLLER] = lambda: refused(error)
        with pytest.raises(EnvelopeRefusedError, match=error.name):
            await forwarding.send(REQUEST, CALLER)
        assert peers.whom() == [CONTROLLER]

    in_scene(scene)


@pytest.mark.parametrize("data", [None, b"", struct.pack(">i", 43) + b"\0answer"])
def test_an_answer_to_something_else_is_none(data: bytes | None) -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        peers.answers[CONTROLLER] = lambda: answered(data=data)
        with pytest.raises(OutcomeUnknownError):
            await forwarding.send(REQUEST, CALLER)

    in_scene(scene)


def test_a_request_that_the_controller_would_not_read_is_not_sent() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        with pytest.raises(EnvelopeRefusedError, match="1001 bytes is too large"):
            await forwarding.send(bytes(1001), CALLER)
        assert peers.asked == []

    in_scene(scene)


def test_what_is_under_way_is_bounded_even_where_nobody_waits_for_it_any_more() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        peers.answers[CONTROLLER] = silent
        large = REQUEST + bytes(600)
        first = asyncio.create_task(forwarding.send(large, CALLER, LIMIT_S))
        await asyncio.sleep(0.001)
        with pytest.raises(NotControllerError, match="under way"):
            await forwarding.send(large, CALLER, LIMIT_S)
        first.cancel()  # its client is gone
        await asyncio.sleep(0.001)
        with pytest.raises(NotControllerError, match="under way"):
            await forwarding.send(large, CALLER, LIMIT_S)
        assert len(peers.asked) == 1
        peers.answers[CONTROLLER] = answered
        assert await forwarding.send(REQUEST, CALLER, LIMIT_S) == RESPONSE  # a small one finds room
        await asyncio.sleep(60)
        assert await forwarding.send(large, CALLER, LIMIT_S) == RESPONSE

    in_scene(scene)


def test_requests_that_wait_for_a_controller_are_bounded_too() -> None:
    async def scene(forwarding: Forwarding, shard: Shard, peers: Peers) -> None:
        shard.nominate(None)
        large = REQUEST + bytes(600)
        first = asyncio.create_task(forwarding.send(large, CALLER, LIMIT_S))
        await asyncio.sleep(0.001)
        with pytest.raises(NotControllerError, match="under way"):
            await forwarding.send(large, CALLER, LIMIT_S)
        peers.answers[CONTROLLER] = answered
        shard.nominate(CONTROLLER)
        assert await first == RESPONSE
        assert await forwarding.send(large, CALLER, LIMIT_S) == RESPONSE

    in_scene(scene)

"""What a broker that still starts answers to other brokers, and what waits until it can."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from diskless_core.broker.connection import CloseConnectionError
from diskless_core.broker.frames import Frame
from diskless_core.broker.starting import EarlyAnswers, StartingDispatcher
from diskless_core.cluster.membership.model import BrokerSpec
from diskless_core.cluster.membership.service import MembershipService
from diskless_core.diskless.api import FIND_COORDINATOR_KEY_TYPE
from diskless_core.pages import PagePool
from diskless_core.protocol.messages import (
    ApiVersionsRequest,
    DisklessIdentifyBrokerRequest,
    DisklessIdentifyBrokerResponse,
    DisklessListOffsetsRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

INTERNAL = "INTERNAL"
SPEC = BrokerSpec(node_id=7, incarnation_id=uuid.UUID(int=9), listeners=(), rack=None, features={})
POOL = PagePool(0)


class FakeConnection:
    """A connection, as a dispatcher sees it."""

    def __init__(self, listener: str = INTERNAL) -> None:
        self.user = "ANONYMOUS"
        self.listener = listener
        self.is_read = True
        self._listeners: list[Callable[[], None]] = []

    def wait_for_start(self) -> None:
        self.is_read = False

    def has_started(self) -> None:
        self.is_read = True

    def on_lost(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def lose(self) -> None:
        for listener in self._listeners:
            listener()


class Coordinators:
    async def handle(self, api_key: int, request: Any) -> Any:
        if api_key == DisklessListOffsetsRequest.API_KEY:
            raise ValueError("a defect")
        assert api_key == FindCoordinatorRequest.API_KEY
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=[])


class FullDispatcher:
    """Answers by the first bytes of a frame, at once or later."""

    def __init__(self) -> None:
        self.begun: list[tuple[Any, int]] = []

    def dispatch(self, frame: Frame, connection: Any) -> Any:
        correlation_id = int.from_bytes(frame.view[4:8], "big")
        self.begun.append((connection, correlation_id))
        if correlation_id == 13:
            raise CloseConnectionError("no such request")
        answer = [b"%d" % correlation_id]
        return answer if correlation_id % 2 else self._later(answer)

    async def _later(self, answer: list[bytes]) -> list[bytes]:
        await asyncio.sleep(0)
        return answer


def frame(request: Any, version: int, correlation_id: int = 1) -> Frame:
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id="broker-1")
    encoded = bytes(request.encode(version=version, header=True))
    made = Frame(len(encoded), POOL)
    made.view[:] = encoded
    return made


def versions(correlation_id: int) -> Frame:
    """A request that waits."""
    return frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, correlation_id)


@pytest.fixture
def dispatcher() -> StartingDispatcher:
    registrar: Any = SimpleNamespace()
    coordinators: Any = Coordinators()
    membership: Any = SimpleNamespace(service=MembershipService(registrar, SPEC, cluster_id="c", shards=[]))
    return StartingDispatcher(EarlyAnswers(membership=membership, coordinators=coordinators), INTERNAL)


def waiting(answer: Any) -> asyncio.Future[Any]:
    assert isinstance(answer, asyncio.Future)
    return answer


async def test_it_says_who_it_is_at_once(dispatcher: StartingDispatcher) -> None:
    answer = dispatcher.dispatch(frame(DisklessIdentifyBrokerRequest(broker_id=7), 0), FakeConnection())
    assert isinstance(answer, Awaitable)
    size_and_header, body = await answer
    assert size_and_header[4:] == b"\0\0\0\1\0"
    told = DisklessIdentifyBrokerResponse.decode(body, version=0)
    assert (told.error_code, told.broker_id, told.incarnation_id, told.cluster_id) == (0, 7, uuid.UUID(int=9), "c")


async def test_diskless_coordinators_can_be_looked_for_at_once_and_those_of_groups_cannot(
    dispatcher: StartingDispatcher,
) -> None:
    asked = FindCoordinatorRequest(key_type=FIND_COORDINATOR_KEY_TYPE, coordinator_keys=["0"])
    answer = dispatcher.dispatch(frame(asked, 4), FakeConnection())
    assert not isinstance(answer, asyncio.Future)
    assert await answer
    of_group = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
    assert not waiting(dispatcher.dispatch(frame(of_group, 4), FakeConnection())).done()
    of_old_client = FindCoordinatorRequest(key_type=FIND_COORDINATOR_KEY_TYPE, key="0")
    assert not waiting(dispatcher.dispatch(frame(of_old_client, 3), FakeConnection())).done()


async def test_what_waits_is_begun_in_order_when_the_broker_can_answer(dispatcher: StartingDispatcher) -> None:
    one, other, full = FakeConnection(), FakeConnection(), FullDispatcher()
    answers = [waiting(dispatcher.dispatch(versions(number), one)) for number in range(6)]
    elsewhere = waiting(dispatcher.dispatch(versions(13), other))
    assert not any(answer.done() for answer in answers)
    dispatcher.hand_over(full)
    assert full.begun == [*((one, number) for number in range(6)), (other, 13)]
    assert await asyncio.gather(*answers) == [[b"%d" % number] for number in range(6)]
    with pytest.raises(CloseConnectionError):
        await elsewhere


async def test_nothing_more_is_read_from_who_waits(dispatcher: StartingDispatcher) -> None:
    waits, other = FakeConnection(), FakeConnection()
    answer = waiting(dispatcher.dispatch(versions(1), waits))
    await dispatcher.dispatch(frame(DisklessIdentifyBrokerRequest(broker_id=7), 0), other)
    assert (waits.is_read, other.is_read) == (False, True)
    dispatcher.hand_over(FullDispatcher())
    assert waits.is_read
    await answer


async def test_a_defect_ends_the_connection_and_leaves_nobody_waiting(dispatcher: StartingDispatcher) -> None:
    asked = DisklessListOffsetsRequest(shard=0, timeout_ms=0, topics=[])
    with pytest.raises(CloseConnectionError, match="could not be processed"):
        await dispatcher.dispatch(frame(asked, 0), FakeConnection())


async def test_a_request_that_is_given_up_after_the_start_ends_its_connection(dispatcher: StartingDispatcher) -> None:
    class GivesUp(FullDispatcher):
        async def _later(self, answer: list[bytes]) -> list[bytes]:
            raise asyncio.CancelledError

    answer = waiting(dispatcher.dispatch(versions(2), FakeConnection()))
    dispatcher.hand_over(GivesUp())
    with pytest.raises(CloseConnectionError, match="given up"):
        await answer


async def test_the_requests_of_a_connection_that_is_gone_are_let_go(dispatcher: StartingDispatcher) -> None:
    gone, full, request = FakeConnection(), FullDispatcher(), versions(1)
    waiting(dispatcher.dispatch(request, gone))
    request.release()  # as the connection does
    assert request._holders == 1
    gone.lose()
    assert request._holders == 0
    dispatcher.hand_over(full)
    assert full.begun == []


async def test_a_frame_is_let_go_when_it_was_handed_over(dispatcher: StartingDispatcher) -> None:
    request = versions(1)
    answer = waiting(dispatcher.dispatch(request, FakeConnection()))
    request.release()
    dispatcher.hand_over(FullDispatcher())
    assert await answer == [b"1"]
    assert request._holders == 0


def test_a_malformed_request_ends_its_connection(dispatcher: StartingDispatcher) -> None:
    short = Frame(5, POOL)
    with pytest.raises(CloseConnectionError, match="malformed"):
        dispatcher.dispatch(short, FakeConnection())
    cut = frame(DisklessIdentifyBrokerRequest(broker_id=7), 0)
    cut.view = cut.view[:-3]
    with pytest.raises(CloseConnectionError, match="malformed"):
        dispatcher.dispatch(cut, FakeConnection())


def test_only_brokers_are_answered(dispatcher: StartingDispatcher) -> None:
    with pytest.raises(CloseConnectionError, match="only brokers"):
        dispatcher.dispatch(frame(DisklessIdentifyBrokerRequest(broker_id=7), 0), FakeConnection("PLAINTEXT"))

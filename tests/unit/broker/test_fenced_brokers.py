"""Whom a broker asks why others are fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from diskless_core.broker.fenced_brokers import ANSWER_MS, FencedBrokers
from diskless_core.coordinator.errors import NotControllerError
from diskless_core.coordinator.peers import PeerRequest, PeerUnavailableError
from diskless_core.protocol.messages import DisklessDescribeShardsRequest, DisklessDescribeShardsResponse
from tests.support.virtual_time import VirtualClock, run

OWN = {3: "it was shut down"}


class Controller:
    """Broker 2 is the controller, and 4 one that is silent, 5 one that is gone."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        assert request.api_key == DisklessDescribeShardsRequest.API_KEY
        self.asked.append(node_id)
        if node_id == 5:
            raise PeerUnavailableError("no connection")
        if node_id == 4:
            await asyncio.sleep(1e9)
        fenced = [DisklessDescribeShardsResponse.DisklessFencedBroker(broker_id=3, reason="its log fails")]
        response = DisklessDescribeShardsResponse(error_code=0, shards=[], fenced_brokers=fenced)
        return bytes(response.encode(version=0))


def reasons(
    transport: Controller, *, controller: int | None, leads: bool = False, fenced: bool = True, clients: int = 1
) -> Mapping[int, str]:
    def own() -> Mapping[int, str]:
        if not leads:
            raise NotControllerError("another one is")
        return OWN

    registrar: Any = SimpleNamespace(fenced=own)
    brokers: Any = SimpleNamespace(controller=controller, all=lambda: [SimpleNamespace(is_fenced=fenced)])
    found = dict[int, str]()

    async def ask() -> None:
        fenced_brokers = FencedBrokers(1, registrar, brokers, transport, VirtualClock(asyncio.get_running_loop()))
        async with asyncio.timeout(ANSWER_MS / 1000 + 0.1):
            for answer in await asyncio.gather(*(fenced_brokers.reasons() for _ in range(clients))):
                found.update(answer)

    run(ask)
    return found


def test_the_controller_knows_by_itself_and_others_ask_it() -> None:
    transport = Controller()
    assert reasons(transport, controller=1, leads=True) == OWN
    assert transport.asked == []
    assert reasons(transport, controller=2) == {3: "its log fails"}
    assert transport.asked == [2]


def test_nobody_is_asked_where_no_broker_is_fenced_or_no_controller_is_known() -> None:
    transport = Controller()
    assert reasons(transport, controller=2, fenced=False) == {}
    assert reasons(transport, controller=None) == {}
    assert reasons(transport, controller=1) == {}
    assert transport.asked == []


def test_a_controller_that_does_not_answer_holds_nobody_up() -> None:
    transport = Controller()
    assert reasons(transport, controller=4) == reasons(transport, controller=5) == {}
    assert transport.asked == [4, 5]


@pytest.mark.parametrize("controller", [2, 4, 5], ids=["answers", "silent", "gone"])
def test_the_controller_is_asked_once_however_many_clients_ask(controller: int) -> None:
    transport = Controller()
    reasons(transport, controller=controller, clients=100)
    assert transport.asked == [controller]

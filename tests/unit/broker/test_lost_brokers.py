"""Which brokers have most likely just ended, before the controller says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

from diskless_core.broker.lost_brokers import STAYS_S, LostBrokers
from diskless_core.coordinator.peers import PeerGoneError
from tests.support.virtual_time import VirtualClock, run

LIMIT_S = 9.0


class Peer:
    """Another broker, as connections find it."""

    def __init__(self) -> None:
        self.listens = True
        self.resets = False
        self.connections: list[SimpleNamespace] = []

    async def connect(self, node_id: int) -> SimpleNamespace:
        if not self.listens:
            raise PeerGoneError(f"nobody listens where node {node_id} did")
        self.connections.append(SimpleNamespace(is_closed=self.resets))
        return self.connections[-1]


def story(told: Callable[[LostBrokers, Peer], Awaitable[None]]) -> None:
    async def main() -> None:
        lost = LostBrokers(LIMIT_S, VirtualClock(asyncio.get_running_loop()))
        await told(lost, Peer())
        await lost.stop()
        assert lost.now() == frozenset()

    run(main)


def test_a_broker_is_lost_from_the_moment_that_it_ends_a_connection_until_there_is_one_that_lasts() -> None:
    async def told(lost: LostBrokers, peer: Peer) -> None:
        assert lost.now() == frozenset()
        lost.broke(2, peer.connect)
        assert lost.now() == {2}
        await asyncio.sleep(2 * STAYS_S)
        assert lost.now() == frozenset()
        assert len(peer.connections) == 1

    story(told)


def test_a_process_that_ends_and_still_takes_a_connection_stays_lost() -> None:
    async def told(lost: LostBrokers, peer: Peer) -> None:
        peer.resets = True
        lost.broke(2, peer.connect)
        await asyncio.sleep(2 * STAYS_S)
        peer.listens = False
        await asyncio.sleep(LIMIT_S / 2)
        assert lost.now() == {2}

    story(told)


def test_one_that_cannot_be_connected_to_is_lost_until_it_can_be_and_no_longer_than_a_session() -> None:
    async def told(lost: LostBrokers, peer: Peer) -> None:
        peer.listens = False
        lost.broke(2, peer.connect)
        await asyncio.sleep(LIMIT_S / 2)
        assert lost.now() == {2}
        peer.listens = True
        await asyncio.sleep(2)
        assert lost.now() == frozenset()
        peer.listens = False
        lost.broke(2, peer.connect)
        await asyncio.sleep(LIMIT_S - 0.1)
        assert lost.now() == {2}
        await asyncio.sleep(0.2)
        assert lost.now() == frozenset(), "then the controller knows better"

    story(told)


def test_however_many_connections_break_one_is_made() -> None:
    async def told(lost: LostBrokers, peer: Peer) -> None:
        for _ in range(5):
            lost.broke(2, peer.connect)
        lost.broke(3, peer.connect)
        assert lost.now() == {2, 3}
        await asyncio.sleep(1)
        assert len(peer.connections) == 2

    story(told)


def test_after_its_stop_it_looks_for_nobody() -> None:
    async def told(lost: LostBrokers, peer: Peer) -> None:
        await lost.stop()
        lost.broke(2, peer.connect)
        await asyncio.sleep(1)
        assert not peer.connections

    story(told)

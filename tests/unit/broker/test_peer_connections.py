"""Connections to other brokers: answers find their requests, and what goes wrong says whether the request was sent."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from diskless_core.broker.lost_brokers import LostBrokers
from diskless_core.broker.peer_connections import PeerConnections
from diskless_core.broker.rack_traffic import PeerTraffic
from diskless_core.clock import SystemClock
from diskless_core.coordinator.peers import (
    AnswerLostError,
    PeerAddress,
    PeerError,
    PeerGoneError,
    PeerMap,
    PeerRequest,
    PeerUnavailableError,
)
from diskless_core.metrics import Metrics
from diskless_core.pages import PAGE_BYTES
from tests.support.cluster import until

PEER = 2
LIMIT_S = 300.0
FLEXIBLE = b"\0"

Play = Callable[["Peer"], Awaitable[None]]


class Peer:
    """The other broker's side of one connection, played by the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> tuple[int, bytes]:
        """The correlation id and the body of the next request."""
        size = struct.unpack(">i", await self._reader.readexactly(4))[0]
        frame = await self._reader.readexactly(size)
        _, _, correlation_id, name_size = struct.unpack_from(">hhih", frame)
        return correlation_id, frame[10 + name_size + 1 :]

    def answer(self, correlation_id: int, body: bytes, *, header: bytes = FLEXIBLE, size: int | None = None) -> None:
        frame = struct.pack(">i", correlation_id) + header + body
        self._writer.write(struct.pack(">i", len(frame) if size is None else size) + frame)

    async def send_piece(self, piece: bytes) -> None:
        """Some bytes, in a packet of their own as far as that can be."""
        self._writer.write(piece)
        await self._writer.drain()
        await asyncio.sleep(0)

    async def until_closed(self) -> None:
        assert await self._reader.read() == b""


class Plays:
    """A listening broker that plays one piece for each connection."""

    def __init__(self, *plays: Play) -> None:
        self._plays = list(plays)
        self.begun = asyncio.Event()
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.begun.set()
        try:
            await self._plays.pop(0)(Peer(reader, writer))
        finally:
            writer.close()


@asynccontextmanager
async def connected_to(
    *plays: Play, traffic: PeerTraffic | None = None, lost: LostBrokers | None = None
) -> AsyncIterator[tuple[PeerConnections, Plays]]:
    played = Plays(*plays)
    server = await asyncio.start_server(played.serve, "127.0.0.1", 0)
    peers = PeerMap(1)
    peers.learn(PEER, PeerAddress("127.0.0.1", server.sockets[0].getsockname()[1]))
    connections = PeerConnections(peers, "broker-1", traffic=traffic, lost=lost)
    try:
        yield connections, played
    finally:
        await connections.stop()
        server.close()
        await server.wait_closed()


def request(body: bytes) -> PeerRequest:
    return PeerRequest(95, 0, body)


async def send(connections: PeerConnections, body: bytes, timeout_s: float = LIMIT_S) -> bytes:
    return await connections.send(PEER, request(body), timeout_s)


async def echo(peer: Peer) -> None:
    while True:
        try:
            correlation_id, body = await peer.receive()
        except asyncio.IncompleteReadError:
            return
        peer.answer(correlation_id, body)


@pytest.mark.parametrize("piece_bytes", [1, 3, 1_000, 16 << 10, 1 << 20])
async def test_answers_of_every_size_come_whole_in_whatever_pieces(piece_bytes: int) -> None:
    small = [0, 1, 50, 5_000] if piece_bytes < 1_000 else [0, 1, 5_000, (16 << 10) - 9, 16 << 10, 200_000, 3 << 20]
    sizes = [*small, *reversed(small)]

    async def play(peer: Peer) -> None:
        stream = b""
        for size in sizes:
            correlation_id, _ = await peer.receive()
            frame = struct.pack(">i", correlation_id) + FLEXIBLE + bytes([size % 251]) * size
            stream += struct.pack(">i", len(frame)) + frame
        for start in range(0, len(stream), piece_bytes):
            await peer.send_piece(stream[start : start + piece_bytes])
        await peer.until_closed()

    async with connected_to(play) as (connections, _):
        answers = await asyncio.gather(*(send(connections, b"") for _ in sizes))
        assert [bytes(answer) for answer in answers] == [bytes([size % 251]) * size for size in sizes]


async def test_a_large_answer_may_be_written_to_and_keeps_its_memory_to_itself() -> None:
    async with connected_to(echo) as (connections, _):
        first, second = [await send(connections, bytes(100_000)) for _ in range(2)]
        view = memoryview(first)
        assert not view.readonly
        view[0] = 1
        assert bytes(second) == bytes(100_000)


async def test_requests_share_a_connection_and_arrive_in_the_order_sent() -> None:
    received: list[bytes] = []

    async def play(peer: Peer) -> None:
        pending = [await peer.receive() for _ in range(5)]
        received.extend(body for _, body in pending)
        for correlation_id, body in pending:
            peer.answer(correlation_id, b"re:" + body)
        await peer.until_closed()

    async with connected_to(play) as (connections, played):
        bodies = [b"%d" % number for number in range(5)]
        answers = await asyncio.gather(*(send(connections, body) for body in bodies))
        assert answers == [b"re:" + body for body in bodies]
        assert received == bodies
        assert played.connections == 1


async def test_without_an_address_or_a_listener_nothing_is_sent() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        peers = PeerMap(1)
        connections = PeerConnections(peers, "broker-1")
        with pytest.raises(PeerUnavailableError, match="registration of node 2"):
            await send(connections, b"x")
        peers.learn(PEER, PeerAddress("127.0.0.1", unused.getsockname()[1]))
        outcomes = await asyncio.gather(*(send(connections, b"x") for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [PeerGoneError] * 3
        await connections.stop()


async def test_a_late_answer_ends_the_connection_and_the_next_request_makes_a_new_one() -> None:
    async def silent(peer: Peer) -> None:
        await peer.receive()
        await peer.receive()
        await peer.until_closed()

    async with connected_to(silent, echo) as (connections, _):
        patient = asyncio.create_task(send(connections, b"patient"))
        with pytest.raises(AnswerLostError, match="within"):
            await send(connections, b"x", 0.2)
        with pytest.raises(AnswerLostError):
            await patient
        assert await send(connections, b"y") == b"y"


async def test_what_was_under_way_when_the_connection_broke_has_no_answer() -> None:
    async def breaking(peer: Peer) -> None:
        correlation_id, _ = await peer.receive()
        await peer.receive()
        peer.answer(correlation_id, b"in time")

    async with connected_to(breaking, echo) as (connections, _):
        outcomes = await asyncio.gather(send(connections, b"a"), send(connections, b"b"), return_exceptions=True)
        assert outcomes[0] == b"in time"
        assert isinstance(outcomes[1], AnswerLostError)
        assert await send(connections, b"c") == b"c"


@pytest.mark.parametrize(
    ("shift", "options"),
    [(1, {}), (0, {"size": 1 << 30}), (0, {"size": 1}), (0, {"header": b"\1"})],
    ids=["another request's", "endless", "too short", "tagged header"],
)
async def test_an_answer_that_makes_no_sense_ends_the_connection(shift: int, options: dict[str, object]) -> None:
    async def confused(peer: Peer) -> None:
        correlation_id, body = await peer.receive()
        peer.answer(correlation_id + shift, body, **options)
        await peer.until_closed()

    async with connected_to(confused, echo) as (connections, _):
        with pytest.raises(AnswerLostError):
            await send(connections, b"a")
        assert await send(connections, b"b") == b"b"


async def test_an_answer_that_nobody_waits_for_any_more_is_not_given_to_the_next() -> None:
    async with connected_to(echo) as (connections, played):
        impatient = asyncio.create_task(send(connections, b"a"))
        await asyncio.sleep(0)
        assert await send(connections, b"warm") == b"warm"
        given_up = asyncio.create_task(send(connections, b"b"))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await send(connections, b"c") == b"c"
        assert await impatient == b"a"
        assert played.connections == 1


async def test_a_large_answer_takes_no_memory_before_it_comes() -> None:
    """A peer's word for a size must cost nothing: eight answers of 100 MiB are announced, and a byte of each comes."""
    said = (100 << 20) - 1024

    async def boasting(peer: Peer) -> None:
        correlation_id, _ = await peer.receive()
        peer.answer(correlation_id, b"x", size=said)
        await peer.until_closed()

    async with connected_to(*[boasting] * 8) as (connections, played):
        all_connections = [connections.beside() for _ in range(8)]
        before = resident_bytes()
        pending = [asyncio.create_task(send(one, b"")) for one in all_connections]
        await until(lambda: all(is_receiving(one) for one in all_connections))
        assert played.connections == 8
        assert resident_bytes() - before < said
        await connections.stop()
        await asyncio.gather(*pending, return_exceptions=True)


def is_receiving(connections: PeerConnections) -> bool:
    """Whether the rest of a large answer is awaited."""
    connection = connections._connections.get(PEER)
    return connection is not None and connection._frame is not None


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


async def test_a_question_to_an_address_has_a_connection_of_its_own_that_ends_with_the_answer() -> None:
    async def once(peer: Peer) -> None:
        correlation_id, body = await peer.receive()
        peer.answer(correlation_id, b"re:" + body)
        await peer.until_closed()

    async with connected_to(once, once) as (connections, played):
        address = connections._peers.address_of(PEER)
        assert address is not None
        assert await connections.ask_once(address, request(b"a"), LIMIT_S) == b"re:a"
        assert await connections.ask_once(address, request(b"b"), LIMIT_S) == b"re:b"
        assert played.connections == 2


async def test_a_question_to_an_address_has_an_answer_in_time_or_none() -> None:
    async def silent(peer: Peer) -> None:
        await peer.receive()
        await peer.until_closed()

    async with connected_to(silent) as (connections, _):
        address = connections._peers.address_of(PEER)
        assert address is not None
        with pytest.raises(PeerError):  # a slow machine may take all of the time for the connection
            await connections.ask_once(address, request(b"a"), 0.2)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(PeerGoneError):
            await connections.ask_once(PeerAddress("127.0.0.1", unused.getsockname()[1]), request(b"a"), LIMIT_S)


CONNECTED, NOT_CONNECTED = "connected to another broker", "another broker cannot be connected to"


async def test_the_log_says_when_a_broker_is_connected_to_and_when_that_fails_however_many_connections_there_are() -> (
    None
):
    async def once(peer: Peer) -> None:
        correlation_id, body = await peer.receive()
        peer.answer(correlation_id, body)

    with capture_logs() as logs:
        async with connected_to(*[once] * 12) as (connections, _):
            every = [connections, connections.beside(), connections.beside()]
            peers = connections._peers
            assert isinstance(peers, PeerMap)
            there = peers.address_of(PEER)
            assert there is not None
            with socket.socket() as unused:
                unused.bind(("127.0.0.1", 0))
                for address in (there, PeerAddress("127.0.0.1", unused.getsockname()[1]), there):
                    peers.learn(PEER, address)
                    for one in [*every, *every]:
                        await ask_or_fail(one)
    events = [(log["event"], log["log_level"]) for log in logs if log["event"] in (CONNECTED, NOT_CONNECTED)]
    assert events == [(CONNECTED, "info"), (NOT_CONNECTED, "info"), (CONNECTED, "info")]


async def ask_or_fail(connections: PeerConnections) -> None:
    """Ask, and wait until the connection has ended: the next request needs another one."""
    try:
        await send(connections, b"x")
    except PeerUnavailableError:
        return
    await until(lambda: connections._connections[PEER].is_closed)


async def test_a_broker_that_ends_a_connection_in_use_is_lost_until_there_is_one_and_one_that_is_late_is_not() -> None:
    async def leaving(peer: Peer) -> None:
        correlation_id, _ = await peer.receive()
        peer.answer(correlation_id, b"bye")
        await peer.receive()

    async def idle(peer: Peer) -> None:
        correlation_id, _ = await peer.receive()
        peer.answer(correlation_id, b"bye")

    async def late(peer: Peer) -> None:
        await peer.receive()
        await peer.until_closed()

    lost = LostBrokers(LIMIT_S, SystemClock())
    async with connected_to(late, idle, leaving, echo, lost=lost) as (connections, played):
        with pytest.raises(AnswerLostError):
            await send(connections, b"a", 0.05)
        assert lost.now() == frozenset()
        assert await send(connections, b"a") == b"bye"
        await until(lambda: connections._connections[PEER].is_closed)
        assert lost.now() == frozenset(), "it asked nothing of the one that ended"
        beside = connections.beside()
        assert await send(beside, b"a") == b"bye"
        with pytest.raises(AnswerLostError):
            await send(beside, b"b")
        assert lost.now() == {PEER}
        assert await send(beside, b"c") == b"c"
        await until(lambda: lost.now() == frozenset())
        assert played.connections == 4, "the one that there was by then is looked at"
        await lost.stop()


async def test_a_stop_loses_what_is_under_way() -> None:
    async def silent(peer: Peer) -> None:
        await peer.receive()
        await peer.until_closed()

    async with connected_to(silent) as (connections, played):
        pending = asyncio.create_task(send(connections, b"a"))
        await played.begun.wait()
        await connections.stop()
        with pytest.raises((AnswerLostError, PeerUnavailableError)):
            await pending


async def test_where_nobody_listens_the_message_has_the_address_and_what_to_set_on_which_broker() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        peers = PeerMap(1)
        peers.learn(PEER, PeerAddress("127.0.0.1", port))
        connections = PeerConnections(peers, "broker-1", "INTERNAL")
        with pytest.raises(PeerGoneError) as refused:
            await send(connections, b"")
        await connections.stop()
    assert f"nobody listens at 127.0.0.1:{port}, where node 2 says that it is. If it runs, set INTERNAL in its " in str(
        refused.value
    )
    assert "advertised.listeners" in str(refused.value)


async def test_a_node_that_nothing_was_read_of_is_not_said_to_have_registered_wrongly() -> None:
    connections = PeerConnections(PeerMap(1), "broker-1", "INTERNAL")
    with pytest.raises(PeerUnavailableError, match="has not read of a registration of node 2 yet"):
        await send(connections, b"")
    await connections.stop()


async def test_bytes_of_requests_and_of_answers_small_and_large_are_counted() -> None:
    metrics = Metrics()
    traffic = PeerTraffic(metrics, "a", {PEER: "b"}.get)
    bodies = [b"small", bytes(1 << 20)]

    async with connected_to(echo, traffic=traffic) as (connections, _):
        for body in bodies:
            assert bytes(await send(connections, body)) == body

    def counted(direction: str) -> float:
        samples = [sample for family in metrics.inter_broker_bytes.collect() for sample in family.samples]
        wanted = {"direction": direction, "racks": "other"}.items()
        return sum(one.value for one in samples if one.name.endswith("_total") and wanted <= one.labels.items())

    sizes, header = sum(map(len, bodies)), len("broker-1") + 4 + 2 + 2 + 4 + 2 + 1
    assert counted("sent") == sizes + 2 * header
    assert counted("received") == sizes + 2 * (4 + 4 + 1)

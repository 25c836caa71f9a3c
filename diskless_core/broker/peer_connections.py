"""Requests to other brokers over TCP: one connection to each, kept open, with many requests under way on it.

A connection that is late with one answer is closed, as Kafka's network client does: what comes after it would be late
as well.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from typing import cast

import structlog

from diskless_core.broker.lost_brokers import LostBrokers
from diskless_core.broker.rack_traffic import PeerBytes, PeerTraffic
from diskless_core.coordinator.peers import (
    AnswerLostError,
    PeerAddress,
    PeerError,
    PeerGoneError,
    PeerRequest,
    Peers,
    PeerUnavailableError,
    listener_advice,
)
from diskless_core.pages import fresh_pages
from diskless_core.protocol import framing

CONNECT_TIMEOUT_S = 5.0

_SIZE = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")
_MAX_CORRELATION_ID = 2**31 - 1
_MAX_ANSWER_BYTES = 100 << 20
_RECEIVE_BYTES = 16 << 10
"""An answer that is larger is received into a buffer of its own, and is not copied."""
_FRESH_PAGES_BYTES = 1 << 20
"""An answer that is larger gets memory that takes no RAM before bytes have arrived: a peer's word for its size is not
enough."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Expected:
    api_key: int
    correlation_id: int
    is_flexible: bool
    answer: asyncio.Future[bytes | memoryview]


class _Reached:
    """Which brokers can be connected to, and where; the log has a line when that changes, by whatever connection."""

    def __init__(self) -> None:
        self._addresses: dict[int, PeerAddress | None] = {}

    def connected(self, node_id: int, address: PeerAddress) -> None:
        if self._addresses.get(node_id) != address:
            _log.info("connected to another broker", node=node_id, address=f"{address.host}:{address.port}")
        self._addresses[node_id] = address

    def failed(self, node_id: int, error: PeerError) -> None:
        if self._addresses.get(node_id, ()) is not None:
            _log.info("another broker cannot be connected to", node=node_id, reason=str(error))
        self._addresses[node_id] = None


class PeerConnections:
    """A `PeerTransport` over TCP, to the inter-broker listeners of `peers`.

    Args:
        listener: the name of the listener of `peers`, for people.
        traffic: where the bytes of all connections but those of `ask_once` are counted.
        lost: is told of the brokers that end a connection.

    Attributes:
        on_lost: called with a node's id when the connection to it broke.
    """

    def __init__(
        self,
        peers: Peers,
        client_id: str,
        listener: str | None = None,
        traffic: PeerTraffic | None = None,
        lost: LostBrokers | None = None,
    ) -> None:
        self.on_lost: Callable[[int], None] = lambda _: None
        self._peers = peers
        self._client_id = client_id
        self._listener = listener
        self._traffic = traffic
        self._lost = lost
        self._reached = _Reached()
        self._connections: dict[int, PeerConnection] = {}
        self._connecting: dict[int, asyncio.Task[PeerConnection]] = {}
        self._beside: list[PeerConnections] = []

    def beside(self) -> PeerConnections:
        """Connections of their own to the same brokers, which end with these."""
        connections = PeerConnections(self._peers, self._client_id, self._listener, self._traffic, self._lost)
        connections._reached = self._reached
        self._beside.append(connections)
        return connections

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes | memoryview:
        connection = await self._connection(node_id)
        return await connection.send(request, timeout_s)

    async def ask_once(self, address: PeerAddress, request: PeerRequest, timeout_s: float) -> bytes | memoryview:
        """An `AskOnce`: the answer of whoever listens at an address, by a connection that ends then."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        connection = await _connected(address, self._client_id, lambda _: None, timeout_s)
        try:
            return await connection.send(request, max(0.0, began_s + timeout_s - loop.time()))
        finally:
            connection.close("it was made for one request")

    async def stop(self) -> None:
        """Close all connections, those beside them too; what is under way is lost."""
        for connections in self._beside:
            await connections.stop()
        connecting = list(self._connecting.values())
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        for connection in self._connections.values():
            connection.close("this broker stops")
        self._connections.clear()

    async def _connection(self, node_id: int) -> PeerConnection:
        """The one that there is, or a new one."""
        connection = self._connections.get(node_id)
        return connection if connection is not None and not connection.is_closed else await self._connect(node_id)

    async def _connect(self, node_id: int) -> PeerConnection:
        """The connection; however many ask at once, they get the same, in the order in which they asked."""
        task = self._connecting.get(node_id)
        if task is None:
            task = self._connecting[node_id] = asyncio.create_task(self._open(node_id))
            task.add_done_callback(lambda done: self._connected(node_id, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise PeerUnavailableError("this broker stops") from None
            raise

    def _connected(self, node_id: int, done: asyncio.Task[PeerConnection]) -> None:
        del self._connecting[node_id]
        if not done.cancelled():
            done.exception()  # whoever asked may be gone by now

    async def _open(self, node_id: int) -> PeerConnection:
        address = self._peers.address_of(node_id)
        if address is None:
            raise PeerUnavailableError(self._why_no_address(node_id))
        try:
            connection = await _connected(
                address,
                self._client_id,
                lambda in_use: self._closed(node_id, in_use=in_use),
                CONNECT_TIMEOUT_S,
                self._traffic.to(node_id) if self._traffic is not None else None,
            )
        except PeerError as error:
            self._reached.failed(node_id, error)
            if self._listener is None:
                raise
            raise type(error)(
                f"{error}, where node {node_id} says that it is. If it runs, set {listener_advice(self._listener)}"
            ) from error
        self._reached.connected(node_id, address)
        self._connections[node_id] = connection
        return connection

    def _closed(self, node_id: int, *, in_use: bool) -> None:
        self.on_lost(node_id)
        if in_use and self._lost is not None:
            self._lost.broke(node_id, self._connection)

    def _why_no_address(self, node_id: int) -> str:
        if node_id not in self._peers.node_ids():
            return f"this broker has not read of a registration of node {node_id} yet"
        return (
            f"node {node_id} has registered no address by the name of {self._listener}, this broker's "
            "inter.broker.listener.name: set that alike on all brokers"
        )


async def _connected(
    address: PeerAddress,
    client_id: str,
    on_closed: Callable[[bool], None],
    timeout_s: float,
    traffic: PeerBytes | None = None,
) -> PeerConnection:
    """A connection to whoever listens at an address.

    Raises:
        PeerUnavailableError: there is none within `timeout_s`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: PeerConnection(client_id, on_closed, traffic), address.host, address.port
            )
    except ConnectionRefusedError as error:
        raise PeerGoneError(f"nobody listens at {address.host}:{address.port}") from error
    except TimeoutError as error:
        place = f"{address.host}:{address.port}"
        raise PeerUnavailableError(f"no connection to {place} within {timeout_s} s") from error
    except (OSError, ValueError) as error:  # a port beyond 65535, a host that is no name
        raise PeerUnavailableError(f"no connection to {address.host}:{address.port}: {error!r}") from error
    return connection


class PeerConnection(asyncio.BufferedProtocol):
    """One connection: requests go out at once, answers come back in the order of the requests.

    Args:
        on_closed: called when it has ended, with whether the other broker ended it while it was asked something. It
            ends those that are idle, too.
    """

    def __init__(self, client_id: str, on_closed: Callable[[bool], None], traffic: PeerBytes | None = None) -> None:
        self._on_closed = on_closed
        self._traffic = traffic
        self._client_id = client_id
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._expected: deque[_Expected] = deque()
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._held = 0
        self._frame: bytearray | mmap | None = None
        self._filled = 0
        self.is_closed = False

    async def send(self, request: PeerRequest, timeout_s: float) -> bytes | memoryview:
        """Errors as `PeerTransport.send`."""
        if self.is_closed or self._transport is None:
            raise PeerUnavailableError("the connection has just been closed")
        self._correlation_id = self._correlation_id % _MAX_CORRELATION_ID + 1
        answer: asyncio.Future[bytes | memoryview] = asyncio.get_running_loop().create_future()
        is_flexible = framing.is_flexible(request.api_key, request.api_version)
        self._expected.append(_Expected(request.api_key, self._correlation_id, is_flexible, answer))
        header = framing.encode_request_header(
            request.api_key, request.api_version, self._correlation_id, self._client_id
        )
        size = len(header) + len(request.body)
        self._transport.writelines([_SIZE.pack(size), header, request.body])
        if self._traffic is not None:
            self._traffic.sent(request.api_key, _SIZE.size + size)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            self.close(f"no answer within {timeout_s} s")
            raise AnswerLostError(f"there was no answer within {timeout_s} s") from None

    def close(self, reason: str, *, by_the_other: bool = False) -> None:
        """Close it; what is under way is lost."""
        was_closed, self.is_closed = self.is_closed, True
        was_in_use = bool(self._expected)
        if self._transport is not None:
            self._transport.abort()  # a broker that reads nothing would keep an orderly end waiting
        while self._expected:
            answer = self._expected.popleft().answer
            if not answer.done():
                answer.set_exception(AnswerLostError(reason))
        if not was_closed:
            self._on_closed(by_the_other and was_in_use)

    # --- the transport's calls -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f"the connection broke: {exc!r}" if exc is not None else "the other broker closed the connection"
        self.close(reason, by_the_other=True)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the base class's signature
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return memoryview(self._buffer)[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            if self._frame is None:
                self._held += nbytes
                self._cut()
                return
            self._filled += nbytes
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._take(memoryview(frame))
        except ValueError as error:
            _log.error("another broker does not speak the protocol", error=str(error))
            self.close(str(error))

    # --- answers -------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Take the answers that the buffer has whole, and make room for the next one."""
        received = memoryview(self._buffer)[: self._held]
        position = 0
        while len(received) - position >= _SIZE.size:
            size = _SIZE.unpack_from(received, position)[0]
            if not _CORRELATION_ID.size <= size <= _MAX_ANSWER_BYTES:
                raise ValueError(f"an answer of {size} bytes")
            start = position + _SIZE.size
            here = received[start : start + size]
            if len(here) == size:
                self._take(bytes(here))
                position = start + size
            elif _SIZE.size + size > len(self._buffer):
                self._frame = bytearray(size) if size < _FRESH_PAGES_BYTES else fresh_pages(size)
                self._filled = len(here)
                self._frame[: self._filled] = here
                position = len(received)
            else:
                break
        rest = bytes(received[position:])
        self._buffer[: len(rest)] = rest
        self._held = len(rest)

    def _take(self, frame: bytes | memoryview) -> None:
        if not self._expected:
            raise ValueError("an answer that nobody waits for")
        expected = self._expected.popleft()
        correlation_id = _CORRELATION_ID.unpack_from(frame)[0]
        body = _CORRELATION_ID.size + expected.is_flexible
        if correlation_id != expected.correlation_id or len(frame) < body or (expected.is_flexible and frame[body - 1]):
            self._expected.appendleft(expected)
            raise ValueError("an answer to another request than was expected, or with an unknown header")
        if self._traffic is not None:
            self._traffic.received(expected.api_key, _SIZE.size + len(frame))
        if not expected.answer.done():
            expected.answer.set_result(frame[body:])

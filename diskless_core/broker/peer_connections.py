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

import structlog

from diskless_core.coordinator.peers import AnswerLostError, PeerGoneError, PeerRequest, Peers, PeerUnavailableError
from diskless_core.protocol import framing

CONNECT_TIMEOUT_S = 5.0

_SIZE = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")
_MAX_CORRELATION_ID = 2**31 - 1
_MAX_ANSWER_BYTES = 100 << 20

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Expected:
    correlation_id: int
    is_flexible: bool
    answer: asyncio.Future[bytes]


class PeerConnections:
    """A `PeerTransport` over TCP, to the inter-broker listeners of `peers`.

    Attributes:
        on_lost: called with a node's id when the connection to it broke.
    """

    def __init__(self, peers: Peers, client_id: str) -> None:
        self.on_lost: Callable[[int], None] = lambda _: None
        self._peers = peers
        self._client_id = client_id
        self._connections: dict[int, PeerConnection] = {}
        self._connecting: dict[int, asyncio.Task[PeerConnection]] = {}
        self._beside: list[PeerConnections] = []

    def beside(self) -> PeerConnections:
        """Connections of their own to the same brokers, which end with these."""
        connections = PeerConnections(self._peers, self._client_id)
        self._beside.append(connections)
        return connections

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        connection = self._connections.get(node_id)
        if connection is None or connection.is_closed:
            connection = await self._connect(node_id)
        return await connection.send(request, timeout_s)

    async def stop(self) -> None:
        """Close all connections, those beside them too; what is under way is lost."""
        for connections in self._beside:
            await connections.stop()
        connecting = list(self._connecting.values())
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        for connection in self._connections.values():
            await connection.stop()
        self._connections.clear()

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
            raise PeerUnavailableError(f"the address of node {node_id} is not known")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(address.host, address.port)
        except ConnectionRefusedError as error:
            raise PeerGoneError(f"nobody listens at {address.host}:{address.port}") from error
        except (OSError, TimeoutError) as error:
            raise PeerUnavailableError(f"no connection to {address.host}:{address.port}: {error!r}") from error
        _log.info("connected to another broker", node=node_id, address=f"{address.host}:{address.port}")
        connection = self._connections[node_id] = PeerConnection(
            reader, writer, self._client_id, lambda: self.on_lost(node_id)
        )
        return connection


class PeerConnection:
    """One connection: requests go out at once, answers come back in the order of the requests."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client_id: str,
        on_lost: Callable[[], None],
    ) -> None:
        self._on_lost = on_lost
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._correlation_id = 0
        self._expected: deque[_Expected] = deque()
        self._task = asyncio.create_task(self._read(), name="answers of another broker")
        self.is_closed = False

    async def send(self, request: PeerRequest, timeout_s: float) -> bytes:
        """Errors as `PeerTransport.send`."""
        if self.is_closed:
            raise PeerUnavailableError("the connection has just been closed")
        self._correlation_id = self._correlation_id % _MAX_CORRELATION_ID + 1
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        is_flexible = framing.is_flexible(request.api_key, request.api_version)
        self._expected.append(_Expected(self._correlation_id, is_flexible, answer))
        header = framing.encode_request_header(
            request.api_key, request.api_version, self._correlation_id, self._client_id
        )
        self._writer.writelines([_SIZE.pack(len(header) + len(request.body)), header, request.body])
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            self._close(f"no answer within {timeout_s} s")
            raise AnswerLostError(f"there was no answer within {timeout_s} s") from None

    async def stop(self) -> None:
        """Close it."""
        self._close("this broker stops")
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while True:
                size = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))[0]
                if not _CORRELATION_ID.size <= size <= _MAX_ANSWER_BYTES:
                    raise ValueError(f"an answer of {size} bytes")
                self._take(await self._reader.readexactly(size))
        except (OSError, asyncio.IncompleteReadError) as error:
            self._close(f"the connection broke: {error!r}")
        except ValueError as error:
            _log.error("another broker does not speak the protocol", error=str(error))
            self._close(str(error))

    def _take(self, frame: bytes) -> None:
        if not self._expected:
            raise ValueError("an answer that nobody waits for")
        expected = self._expected.popleft()
        correlation_id = _CORRELATION_ID.unpack_from(frame)[0]
        body = _CORRELATION_ID.size + expected.is_flexible
        if correlation_id != expected.correlation_id or len(frame) < body or (expected.is_flexible and frame[body - 1]):
            self._expected.appendleft(expected)
            raise ValueError("an answer to another request than was expected, or with an unknown header")
        if not expected.answer.done():
            expected.answer.set_result(frame[body:])

    def _close(self, reason: str) -> None:
        was_closed, self.is_closed = self.is_closed, True
        self._writer.transport.abort()  # a broker that reads nothing would keep an orderly end waiting
        while self._expected:
            answer = self._expected.popleft().answer
            if not answer.done():
                answer.set_exception(AnswerLostError(reason))
        if not was_closed:
            self._on_lost()

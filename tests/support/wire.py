"""A Kafka client of few lines: kafka-python's messages over a blocking socket, so that a test chooses every byte."""

from __future__ import annotations

import socket
import struct
from collections import deque
from types import TracebackType
from typing import Any, NamedTuple

from kafka.protocol.metadata import ApiVersionsRequest

TIMEOUT_S = 300.0
_SIZE = struct.Struct(">i")


class _Expected(NamedTuple):
    correlation_id: int
    response_class: Any
    version: int


class WireClient:
    """One connection. Requests can be sent ahead; answers are checked to come in the order of the requests.

    Every answer has to be exactly one message of the version that was asked for: it is encoded again and compared.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float = TIMEOUT_S, client_id: str = "wire") -> None:
        self.client_id = client_id
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._expected: deque[_Expected] = deque()

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def call(self, request: Any, version: int) -> Any:
        """Send a request and return its answer."""
        self.send(request, version)
        return self.receive()

    def send(self, request: Any, version: int, *, is_answered: bool = True) -> None:
        """Send a request whose answer, if it has one, `receive` will return in its turn."""
        frame = self.frame(request, version)
        if is_answered:
            self._expect(request, version)
        self.send_bytes(frame)

    def send_together(self, *requests: Any, version: int) -> None:
        """Send several requests in one write; each will be answered in its turn."""
        frames = []
        for request in requests:
            frames.append(self.frame(request, version))
            self._expect(request, version)
        self.send_bytes(b"".join(frames))

    def _expect(self, request: Any, version: int) -> None:
        response_class = request.header.get_response_class()[None]
        self._expected.append(_Expected(self._correlation_id, response_class, version))

    def frame(self, request: Any, version: int) -> bytes:
        """A request as it goes over the wire, with its size in front. Nothing is sent, no answer expected."""
        self._correlation_id += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._correlation_id, client_id=self.client_id)
        return bytes(request.encode(version=version, header=True, framed=True))

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> Any:
        """The next answer."""
        correlation_id, response_class, version = self._expected.popleft()
        frame = self.receive_frame()
        assert frame is not None, f"the broker closed the connection instead of sending {response_class.__name__}"
        assert struct.unpack_from(">i", frame)[0] == correlation_id
        body = frame[4:]
        if response_class.flexible_version_q(version) and response_class.API_KEY != ApiVersionsRequest.API_KEY:
            assert body[0] == 0, "the response header has tags"
            body = body[1:]
        response = _decoded(response_class, body, version)
        assert bytes(response.encode()) == body, f"not a {response_class.__name__} of version {version}"
        return response

    def receive_frame(self) -> bytes | None:
        """The next frame without its size; None when the broker has closed the connection."""
        size = self._receive_exactly(_SIZE.size)
        return None if size is None else self._receive_exactly(_SIZE.unpack(size)[0])

    def is_closed(self) -> bool:
        """Wait until the broker closes the connection; False when it sends something or the time is over."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def _receive_exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)


def _decoded(response_class: Any, body: bytes, version: int) -> Any:
    if response_class.API_KEY == ApiVersionsRequest.API_KEY:
        # kafka-python takes each error for that of an unknown version, the only one that is answered in version 0
        return super(response_class, response_class).decode(body, version=version)
    return response_class.decode(body, version=version)

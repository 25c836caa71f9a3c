"""One request of the product's own codec to one broker, for what librdkafka cannot ask. It blocks.

Without TLS and SASL, like all that brokers speak.
"""

from __future__ import annotations

import socket
import struct
from typing import BinaryIO, NamedTuple

from diskless_core.protocol import framing
from diskless_core.protocol.codec import ApiRequest, ResponseT_co
from diskless_core.protocol.framing import FrameError
from diskless_core.protocol.messages import response_class

_MAX_ANSWER_BYTES = 100 << 20
_SIZE = struct.Struct(">i")
_ANSWER_HEADER_BYTES = 5
"""A correlation id and no tagged fields, in flexible versions."""


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def ask(address: Address, request: ApiRequest[ResponseT_co], version: int, timeout_s: float) -> ResponseT_co:
    """The response to a request of a flexible version.

    Args:
        timeout_s: how long the broker may be silent.

    Raises:
        OSError: it cannot be reached, or is silent.
        EOFError: it closed the connection.
        ValueError: it answers something else.
    """
    body = request.encode(version=version)
    header = framing.encode_request_header(request.API_KEY, version, 1, "diskless")
    with socket.create_connection(address, timeout_s) as connection:
        connection.sendall(_SIZE.pack(len(header) + len(body)) + header + body)
        with connection.makefile("rb") as answers:
            (size,) = _SIZE.unpack(_exactly(answers, _SIZE.size))
            if not _ANSWER_HEADER_BYTES <= size <= _MAX_ANSWER_BYTES:
                raise ValueError(f"an answer of {size} bytes")
            answer = _exactly(answers, size)
    expected = response_class(request)
    try:
        framing.check_structure(expected, version, memoryview(answer), _ANSWER_HEADER_BYTES)
    except FrameError as error:
        raise ValueError(str(error)) from error
    return expected.decode(answer[_ANSWER_HEADER_BYTES:], version=version)


def _exactly(answers: BinaryIO, size: int) -> bytes:
    data = answers.read(size)
    if len(data) < size:
        raise EOFError("the connection was closed")
    return data

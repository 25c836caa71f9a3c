"""The response of DisklessReadObject, packed and read by hand: the bytes of the object are not copied.

Its bytes equal the generic codec's. (Extension to KIP-1164.)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from diskless_core.protocol.codec import Piece
from diskless_core.protocol.packed import MALFORMED, NO_TAGS, PackedReader, pack_string
from diskless_core.protocol.structure import FrameError
from diskless_core.protocol.varint import encode_uvarint

_HEAD = struct.Struct(">ih")
_START = struct.Struct(">q")
_NULL = b"\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadObjectAnswer:
    """A response of DisklessReadObject. Fields as in the schema."""

    error_code: int = 0
    error_message: str | None = None
    object_key: str = ""
    start: int = 0
    data: Piece = b""


def pack(answer: ReadObjectAnswer) -> list[Piece]:
    """The response's body, in pieces. `data` is one of them and must not change its size until it is written."""
    message = _NULL if answer.error_message is None else pack_string(answer.error_message)
    head = b"".join(
        (
            _HEAD.pack(0, answer.error_code),
            message,
            pack_string(answer.object_key),
            _START.pack(answer.start),
            encode_uvarint(len(answer.data) + 1),
        )
    )
    return [head, answer.data, NO_TAGS]


def unpack(body: bytes | memoryview) -> ReadObjectAnswer:
    """The response in a body. Its data is a view of the body.

    Raises:
        FrameError: it is malformed.
    """
    reader = PackedReader(body)
    try:
        error_code = reader.fixed(_HEAD)[1]
        answer = ReadObjectAnswer(
            error_code=error_code,
            error_message=reader.nullable_string(),
            object_key=reader.string(),
            start=reader.fixed(_START)[0],
            data=reader.bytes_field(),
        )
        reader.tagged_section({})
        reader.expect_end()
    except MALFORMED as error:
        raise FrameError(f"a malformed response of DisklessReadObject: {error}") from error
    return answer

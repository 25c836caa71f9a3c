"""The response of DisklessFollowShard, packed by hand: an entry is packed once, however many followers it goes to.

Its bytes equal the generic codec's. (Extension to KIP-1164, "Local state machine".)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from diskless_core.protocol.packed import NO_TAGS, pack_bytes, pack_string
from diskless_core.protocol.varint import encode_uvarint

_HEAD = struct.Struct(">ih")
_OFFSET = struct.Struct(">q")
_OFFSETS = struct.Struct(">qq")
_NULL = b"\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowShardAnswer:
    """A response of DisklessFollowShard.

    Attributes:
        next_offset: see the schema; -1 when unknown.
        digest: of all that counts below `next_offset`.
        entries: claims and accepted entries in the order of the log, each as `pack_entry` packs it.
    """

    error_code: int = 0
    error_message: str | None = None
    next_offset: int = -1
    digest: bytes = b""
    entries: Sequence[bytes] = ()


def pack_entry(offset: int, next_offset: int, digest: bytes, data: bytes) -> bytes:
    """One of a response's entries."""
    size = encode_uvarint(len(data) + 1)
    return b"".join((_OFFSETS.pack(offset, next_offset), pack_bytes(digest), size, data, NO_TAGS))


def pack(answer: FollowShardAnswer) -> list[bytes]:
    """The response's body, in pieces."""
    message = _NULL if answer.error_message is None else pack_string(answer.error_message)
    count = encode_uvarint(len(answer.entries) + 1)
    position = _OFFSET.pack(answer.next_offset), pack_bytes(answer.digest)
    head = b"".join((_HEAD.pack(0, answer.error_code), message, *position, count))
    return [head, *answer.entries, NO_TAGS]

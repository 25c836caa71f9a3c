"""Rows as bytes. A key's bytes compare as the key does, which is what an ordered key-value store needs. Pure."""

from __future__ import annotations

import json
from typing import Any

from diskless_core.plugin.coordinator_store import Key, Row, TableSpec

_SIGN = 1 << 63


def encode_key(key: Key) -> bytes:
    """The bytes of a key, or of a prefix of one. A prefix of a key is a prefix of its bytes."""
    return b"".join(map(_encode_part, key))


def _encode_part(value: object) -> bytes:
    if isinstance(value, int):
        return (value + _SIGN).to_bytes(8, "big")  # signed 64 bit: the negative ones first
    if not isinstance(value, str | bytes):
        raise TypeError(f"a key has no {type(value).__name__}")
    data = value.encode() if isinstance(value, str) else value
    # The end sorts before all that could follow, and a zero byte in the text is told apart from it.
    return data.replace(b"\0", b"\0\xff") + b"\0\0"


def encode_row(row: Row) -> str:
    """A whole row. Replace it by something more compact, such as msgpack."""
    return json.dumps(row, default=_hex, separators=(",", ":"))


def decode_row(text: str) -> Row:
    """What `encode_row` was given."""
    return tuple(json.loads(text, object_hook=lambda found: bytes.fromhex(found["hex"])))


def declared(table: TableSpec) -> str:
    """What makes two declarations of a table the same. `TableSpec.level` is not part of it."""
    return json.dumps([[[column.name, column.type.value] for column in part] for part in (table.key, table.values)])


def _hex(value: Any) -> dict[str, str]:
    return {"hex": value.hex()}  # json has no bytes

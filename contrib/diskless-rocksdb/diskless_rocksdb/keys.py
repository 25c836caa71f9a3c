"""Keys of rows as bytes that compare as the keys do. Pure.

A column that others follow ends by itself, so that a prefix of a key's columns is a prefix of its bytes, and no longer
value sorts between the rows of a shorter one:

- an integer is 8 bytes, big-endian, with the sign turned round, so that negative ones come first;
- text (as UTF-8) and blobs are their bytes, where 0x00 is written as 0x00 0xFF, and 0x00 0x00 at the end. Nothing that
  can follow a value's bytes sorts before that end. The last column of a key needs none of this: it is as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from diskless_core.plugin.coordinator_store import ColumnType, Key, TableSpec

Encoder = Callable[[Any], bytes]

_END = b"\x00\x00"
_ZERO, _ESCAPED_ZERO = b"\x00", b"\x00\xff"
_SIGN = 1 << 63
_pack_integer = struct.Struct(">Q").pack
_pack_prefix = struct.Struct(">H").pack

_MOST_KNOWN = 4096
"""Beginnings of keys that a codec remembers at most: rows of few partitions come again and again."""

MAX_TABLES = 0xFFFE
"""Numbers of tables are 1 to this: 0 is the store's own, and each needs a next one that bounds it."""


class KeyFormatError(ValueError):
    """A key is not of its table's columns."""


def table_prefix(number: int) -> bytes:
    """The first bytes of all keys of the table of this number; those of `number + 1` come after all of them."""
    return _pack_prefix(number)


@dataclass(frozen=True, slots=True)
class KeyCodec:
    """Encodes the keys of one table, and prefixes of them.

    Attributes:
        first: before or at all keys of the table.
        after: behind all of them.
    """

    first: bytes
    after: bytes
    _inner: tuple[Encoder, ...]
    _last: Encoder
    _known: dict[tuple[Key, tuple[type, ...]], bytes] = field(default_factory=dict, compare=False, repr=False)

    @property
    def width(self) -> int:
        """How many columns a key has."""
        return len(self._inner) + 1

    @classmethod
    def of(cls, spec: TableSpec, number: int) -> KeyCodec:
        """The codec of a table that has this number."""
        *inner, last = (column.type for column in spec.key)
        return cls(table_prefix(number), table_prefix(number + 1), tuple(_INNER[type_] for type_ in inner), _LAST[last])

    def encode(self, columns: Key) -> bytes:
        """The bytes of a row that begins with a whole key; further columns do not count.

        Raises:
            KeyFormatError: a column is of another type, or an integer has more than 64 bits.
        """
        width = len(self._inner)
        begin = columns[:width]
        known = begin, tuple(map(type, begin))  # 1.0 equals 1, and is no integer
        try:
            begins = self._known.get(known)
            if begins is None:
                begins = self._joined(begin)
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[known] = begins
            return begins + self._last(columns[width])
        except (AttributeError, IndexError, TypeError, ValueError, struct.error) as error:
            raise KeyFormatError(f"not a key of this table: {_shape(columns)}") from error

    def bound(self, columns: Key) -> bytes:
        """What is at or before all rows whose key begins with these columns, and behind all that are smaller.

        Raises:
            KeyFormatError: as `encode`, or there are more columns than in a key.
        """
        if len(columns) > len(self._inner):
            if len(columns) > len(self._inner) + 1:
                raise KeyFormatError(f"not a key of this table: {_shape(columns)}")
            return self.encode(columns)
        try:
            return self._joined(columns)
        except (AttributeError, TypeError, ValueError, struct.error) as error:
            raise KeyFormatError(f"not a key of this table: {_shape(columns)}") from error

    def _joined(self, begin: Key) -> bytes:
        return b"".join((self.first, *(encode(value) for encode, value in zip(self._inner, begin, strict=False))))


def _integer(value: int) -> bytes:
    return _pack_integer(value + _SIGN)


def _text(value: str) -> bytes:
    return value.encode().replace(_ZERO, _ESCAPED_ZERO) + _END


def _blob(value: bytes) -> bytes:
    return value.replace(_ZERO, _ESCAPED_ZERO) + _END


def _last_text(value: str) -> bytes:
    return value.encode()


def _last_blob(value: bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("not bytes")
    return value


_INNER: Mapping[ColumnType, Encoder] = {ColumnType.INTEGER: _integer, ColumnType.TEXT: _text, ColumnType.BLOB: _blob}
_LAST: Mapping[ColumnType, Encoder] = {
    ColumnType.INTEGER: _integer,
    ColumnType.TEXT: _last_text,
    ColumnType.BLOB: _last_blob,
}


def _shape(columns: Sequence[object]) -> str:
    """The types alone: a key may be what a client sent."""
    return ", ".join(type(value).__name__ for value in columns) or "no columns"

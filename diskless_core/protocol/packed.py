"""Flexible messages packed and unpacked by hand: rows of one `struct` each, compact arrays and tagged sections.

For the few messages that carry a row for every batch; everything else goes through the generic codec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from typing import Any, TypeVar

from diskless_core.protocol.varint import VarintError, encode_uvarint, read_uvarint

Row = TypeVar("Row")

NO_TAGS = b"\0"
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")


class PackedError(ValueError):
    """The bytes are not what they should be. Readers of a message turn it into that message's own error."""


MALFORMED = (PackedError, struct.error, IndexError, VarintError, UnicodeDecodeError)
"""What reading malformed bytes may raise."""


def pack_string(text: str) -> bytes:
    """A compact string."""
    return pack_bytes(text.encode())


def pack_bytes(data: bytes) -> bytes:
    """Compact bytes."""
    return encode_uvarint(len(data) + 1) + data


def pack_array(layout: struct.Struct, rows: Sequence[tuple[Any, ...]]) -> bytes:
    """A compact array of rows.

    Raises:
        struct.error: a number does not fit its field.
    """
    return b"".join((encode_uvarint(len(rows) + 1), *starmap(layout.pack, rows)))


def pack_integers(numbers: Sequence[int]) -> bytes:
    """A compact array of int32."""
    return encode_uvarint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def pack_tagged(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """A tagged section of (tag, content), by ascending tag."""
    contents = list(fields)
    parts = [encode_uvarint(len(contents))]
    for tag, content in contents:
        parts += (encode_uvarint(tag), encode_uvarint(len(content)), content)
    return b"".join(parts)


class PackedReader:
    """Reads one message from front to back. Every method may raise what `MALFORMED` lists."""

    __slots__ = ("_data", "pos")

    def __init__(self, data: bytes | memoryview, pos: int = 0) -> None:
        self._data = memoryview(data)
        self.pos = pos

    def expect_end(self) -> None:
        if self.pos != len(self._data):
            raise PackedError("there are trailing bytes, or it is truncated")

    def fixed(self, layout: struct.Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self._data, self.pos)
        self.pos += layout.size
        return values

    def varint(self) -> int:
        value = self._data[self.pos]
        if value < 0x80:
            self.pos += 1
            return value
        value, self.pos = read_uvarint(self._data, self.pos)
        return value

    def take(self, size: int) -> memoryview:
        taken = self._data[self.pos : self.pos + size]
        if len(taken) < size:
            raise PackedError("it is truncated")
        self.pos += size
        return taken

    def count(self, smallest: int) -> int:
        """The number of an array's elements, each of which takes `smallest` bytes or more."""
        count = self.varint() - 1
        if count < 0 or count * smallest > len(self._data) - self.pos:
            raise PackedError(f"it counts {count} elements beyond its end")
        return count

    def bytes_field(self) -> memoryview:
        return self.take(self.count(1))

    def string(self) -> str:
        return str(self.bytes_field(), "utf-8")

    def nullable_string(self) -> str | None:
        if self._data[self.pos] == 0:
            self.pos += 1
            return None
        return self.string()

    def integers(self) -> tuple[int, ...]:
        count = self.count(INT32.size)
        return struct.unpack(f">{count}i", self.take(INT32.size * count))

    def rows(self, layout: struct.Struct, make: Callable[[tuple[Any, ...]], Row]) -> tuple[Row, ...]:
        """An array of structs whose last byte is their tagged section, which has to be empty."""
        return tuple(map(make, layout.iter_unpack(self.packed_rows(layout))))

    def packed_rows(self, layout: struct.Struct) -> memoryview:
        """The bytes of the structs that `rows` would read."""
        content = self.take(layout.size * self.count(layout.size))
        tag_counts = content[layout.size - 1 :: layout.size].tobytes()
        if tag_counts.count(0) != len(tag_counts):
            raise PackedError("it has tagged fields where none are defined")
        return content

    def end_of_struct(self) -> None:
        if self._data[self.pos]:
            raise PackedError("it has tagged fields where none are defined")
        self.pos += 1

    def tagged_section(self, readers: dict[int, tuple[str, Callable[[PackedReader], Any]]]) -> dict[str, Any]:
        """The fields that `readers` knows, by the names there; others are skipped."""
        fields: dict[str, Any] = {}
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            stop = self.pos + size
            if tag in readers:
                name, read = readers[tag]
                fields[name] = read(self)
            else:
                self.take(size)
            if self.pos != stop:
                raise PackedError(f"tagged field {tag} does not fill its size")
        return fields

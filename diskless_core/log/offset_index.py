"""Kafka's offset index: where in a segment some of its batches lie. Pure.

A file of 8-byte entries, an offset relative to the segment's base and a byte position, both 32 bit. An entry has the
*last* offset of its batch, and the position where the batch begins.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from diskless_core.protocol.record_batch import Buffer

SUFFIX = ".index"
ENTRY_BYTES = 8

_ENTRY = struct.Struct(">ii")
_OFFSET = struct.Struct(">i")


class CorruptIndexError(Exception):
    """The bytes are no index of the segment that they are said to belong to; it can be built again from the segment."""


class OffsetPosition(NamedTuple):
    """A batch that ends with `offset` begins at the byte `position` of the segment."""

    offset: int
    position: int


def pack(offset: int, position: int, base_offset: int) -> bytes:
    """One entry."""
    return _ENTRY.pack(offset - base_offset, position)


def lookup(index: Buffer, base_offset: int, target: int) -> OffsetPosition:
    """The last entry whose offset is at most `target`, or the segment's beginning: read from there to find it.

    Raises:
        CorruptIndexError: the index does not consist of whole entries.
    """
    view = _entries(index)
    count = len(view) // ENTRY_BYTES
    behind = bisect_right(
        range(count), target - base_offset, key=lambda entry: _OFFSET.unpack_from(view, entry * ENTRY_BYTES)[0]
    )
    if not behind:
        return OffsetPosition(base_offset, 0)
    found, position = _ENTRY.unpack_from(view, (behind - 1) * ENTRY_BYTES)
    return OffsetPosition(base_offset + found, position)


def first_from(index: Buffer, base_offset: int, position: int) -> OffsetPosition | None:
    """The first entry at the byte `position` of the segment or behind; None without one.

    Raises:
        CorruptIndexError: as `lookup`.
    """
    view = _entries(index)
    count = len(view) // ENTRY_BYTES
    before = bisect_left(range(count), position, key=lambda entry: _ENTRY.unpack_from(view, entry * ENTRY_BYTES)[1])
    if before == count:
        return None
    found, at = _ENTRY.unpack_from(view, before * ENTRY_BYTES)
    return OffsetPosition(base_offset + found, at)


def entries(index: Buffer, base_offset: int) -> list[OffsetPosition]:
    """All entries, in order.

    Raises:
        CorruptIndexError: as `lookup`.
    """
    return [OffsetPosition(base_offset + offset, position) for offset, position in _ENTRY.iter_unpack(_entries(index))]


def _entries(index: Buffer) -> memoryview:
    view = memoryview(index)
    if len(view) % ENTRY_BYTES:
        raise CorruptIndexError(f"an offset index of {len(view)} bytes does not consist of {ENTRY_BYTES}-byte entries")
    return view

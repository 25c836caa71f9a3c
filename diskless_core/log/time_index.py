"""Kafka's time index: up to which offset of a segment nothing is later than a timestamp. Pure.

A file of 12-byte entries, a timestamp in 64 and an offset relative to the segment's base in 32 bit; both ascend. An
entry says: the greatest timestamp up to here is this one, and the batch that has it ends with this offset.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import NamedTuple

from diskless_core.log.offset_index import CorruptIndexError
from diskless_core.protocol.record_batch import Buffer

SUFFIX = ".timeindex"
ENTRY_BYTES = 12
NO_TIMESTAMP = -1

_ENTRY = struct.Struct(">qi")
_TIMESTAMP = struct.Struct(">q")


class TimestampOffset(NamedTuple):
    """The greatest timestamp so far, and the last offset of the batch that has it."""

    timestamp: int
    offset: int


def pack(timestamp: int, offset: int, base_offset: int) -> bytes:
    """One entry."""
    return _ENTRY.pack(timestamp, offset - base_offset)


def lookup(index: Buffer, base_offset: int, target: int) -> TimestampOffset:
    """The last entry whose timestamp is at most `target`: what is later than it lies at its offset or behind.

    Without such an entry it is the segment's beginning, with the timestamp -1.

    Raises:
        CorruptIndexError: the index does not consist of whole entries.
    """
    view = _entries(index)
    count = len(view) // ENTRY_BYTES
    behind = bisect_right(range(count), target, key=lambda entry: _TIMESTAMP.unpack_from(view, entry * ENTRY_BYTES)[0])
    if not behind:
        return TimestampOffset(NO_TIMESTAMP, base_offset)
    timestamp, offset = _ENTRY.unpack_from(view, (behind - 1) * ENTRY_BYTES)
    return TimestampOffset(timestamp, base_offset + offset)


def entries(index: Buffer, base_offset: int) -> list[TimestampOffset]:
    """All entries, in order.

    Raises:
        CorruptIndexError: as `lookup`.
    """
    return [TimestampOffset(time, base_offset + offset) for time, offset in _ENTRY.iter_unpack(_entries(index))]


def _entries(index: Buffer) -> memoryview:
    view = memoryview(index)
    if len(view) % ENTRY_BYTES:
        raise CorruptIndexError(f"a time index of {len(view)} bytes does not consist of {ENTRY_BYTES}-byte entries")
    return view

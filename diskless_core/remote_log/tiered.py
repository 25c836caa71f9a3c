"""Which segments hold the older records of a partition, as its coordinator has decided. Pure.

What else is known of a segment is the matter of `remote_log_metadata`. Of several copies of the same records one is
here: the others are nobody's, and are removed.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from diskless_core.remote_log.metadata import NO_TIMESTAMP

_PACKED = struct.Struct(">16sqqqq")
_END_OFFSET = attrgetter("end_offset")


class TieredSegment(NamedTuple):
    """A segment in remote storage: the records from `start_offset` to `end_offset`, both inclusive.

    `segment_id` is that of the copy, `size_bytes` the size of its log, `max_timestamp` -1 where no record has any.
    """

    segment_id: bytes
    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int = NO_TIMESTAMP


TieredLog = tuple[TieredSegment, ...]
"""A partition's segments in order. Each begins where the one before ended."""


def from_offset(log: TieredLog, offset: int) -> TieredLog:
    """The segments that have records at `offset` or behind."""
    return log[bisect_left(log, offset, key=_END_OFFSET) :]


def size_from(log: TieredLog, offset: int) -> int:
    """The size in bytes of the segments that have records at `offset` or behind."""
    return sum(segment.size_bytes for segment in from_offset(log, offset))


def follow_each_other(segments: Sequence[TieredSegment]) -> bool:
    """Whether they are segments that could be a partition's log."""
    starts = [segment.start_offset for segment in segments]
    ends = [segment.end_offset + 1 for segment in segments]
    return starts[1:] == ends[:-1] and all(start < end for start, end in zip(starts, ends, strict=True))


def pack(log: TieredLog) -> bytes:
    """As a column of the store."""
    return b"".join(_PACKED.pack(*segment) for segment in log)


def unpack(column: bytes) -> TieredLog:
    return tuple(map(TieredSegment._make, _PACKED.iter_unpack(column)))

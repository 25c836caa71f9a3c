"""Kafka's segment file: names, batches in it, sparse offset lookup, recovery of a torn end.

Pure functions over file names and bytes; who opens, reads and truncates files is the caller.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from diskless_core.log.flipped_bit import FlippedBit, flipped_bit
from diskless_core.log.torn_write import is_torn
from diskless_core.protocol.record_batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    CorruptBatchError,
    crc_is_valid,
    read_header,
)

LOG_SUFFIX = ".log"
INDEX_INTERVAL_BYTES = 64 * 1024

_OFFSET_DIGITS = 20
_BATCH_LENGTH = struct.Struct(">i")
_BASE_OFFSET_BYTES = 8
_LENGTH_AT = 8
_MAGIC_AT = 16
_MAGIC_BYTE = bytes([MAGIC])


class CorruptSegmentError(Exception):
    """A segment lacks batches that were durable, or has bytes that no interrupted write leaves.

    Attributes:
        position: byte position of the first batch that is not intact.
        expected_offset: the base offset that this batch should have.
        flipped: the one bit that is wrong in it, where that is all.
    """

    def __init__(self, message: str, *, position: int, expected_offset: int, flipped: FlippedBit | None = None) -> None:
        super().__init__(message)
        self.position = position
        self.expected_offset = expected_offset
        self.flipped = flipped


def file_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """Name of a segment's file: the offset of its first record in 20 digits."""
    return f"{base_offset:0{_OFFSET_DIGITS}d}{suffix}"


def base_offset_of(name: str, suffix: str = LOG_SUFFIX) -> int | None:
    """The base offset that a file name states, or None when it is no name of a segment file."""
    digits = name.removesuffix(suffix)
    if digits == name or len(digits) != _OFFSET_DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


@dataclass(slots=True)
class SparseIndex:
    """Positions of some batches of one segment, at least `interval_bytes` apart; offsets ascend."""

    interval_bytes: int = INDEX_INTERVAL_BYTES
    _offsets: list[int] = field(default_factory=list)
    _positions: list[int] = field(default_factory=list)

    def add(self, base_offset: int, position: int) -> None:
        """Note a batch, unless the last one noted is nearer than the interval. Call in ascending order."""
        if not self._positions or position - self._positions[-1] >= self.interval_bytes:
            self._offsets.append(base_offset)
            self._positions.append(position)

    def floor(self, offset: int) -> tuple[int, int] | None:
        """Base offset and position of the last noted batch that does not begin behind `offset`."""
        found = bisect_right(self._offsets, offset) - 1
        return (self._offsets[found], self._positions[found]) if found >= 0 else None


def require_whole_batch(data: Buffer) -> BatchHeader:
    """Check that `data` is exactly one intact v2 batch whose n records take n offsets, and return its header.

    Raises:
        CorruptBatchError: it is not.
    """
    header = read_header(data, 0)
    if header.magic != MAGIC:
        raise CorruptBatchError(f"the batch has magic {header.magic}; only {MAGIC} is supported")
    if header.size != len(data):
        raise CorruptBatchError(f"the batch says that it has {header.size} bytes, but {len(data)} were given")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise CorruptBatchError(
            f"the batch has {header.record_count} records but a last offset delta of {header.last_offset_delta}"
        )
    if not crc_is_valid(data, 0, header):
        raise CorruptBatchError("the batch's CRC does not match its content")
    return header


def whole_batch_size(buf: Buffer, position: int) -> int | None:
    """Size in bytes of the batch at `position` as it states it; None when `buf` ends before it says so."""
    if position + LENGTH_PREFIX_BYTES > len(buf):
        return None
    (length,) = _BATCH_LENGTH.unpack_from(buf, position + _LENGTH_AT)
    return int(length) + LENGTH_PREFIX_BYTES


def intact_batches(
    buf: Buffer, position: int, expected_offset: int, *, gapless: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the intact batches from `position` on, up to the first that is torn or bad.

    Intact are whole v2 batches with a right CRC whose base offset is not below the end of the one before
    (`expected_offset` for the first), and with `gapless` exactly at it.
    """
    while position < len(buf):
        header = _intact_header(buf, position)
        if header is None or header.base_offset < expected_offset:
            return
        if gapless and header.base_offset != expected_offset:
            return
        yield position, header
        position += header.size
        expected_offset = header.last_offset + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredSegment:
    """What a segment holds.

    Attributes:
        valid_bytes: the file is to be truncated to this size: what follows is left of an interrupted write.
        next_offset: the offset after its last intact batch.
        unsynced_from: byte position from which the intact batches may not be durable yet.
        index: sparse index of the intact batches.
    """

    valid_bytes: int
    next_offset: int
    unsynced_from: int
    index: SparseIndex


def recover_tail(data: bytes, base_offset: int, *, synced_offset: int = 0) -> RecoveredSegment:
    """Find where the last segment of a gapless log ends, when its last write may have been interrupted.

    The leader epoch of each batch says how many bytes before it were not known to be durable when it was written. Where
    each write is synced, these are bytes of the same write. So a batch proves that what lies before them was durable.

    Args:
        data: the whole file.
        base_offset: of the segment.
        synced_offset: everything below this offset is known to have been durable.

    Raises:
        CorruptSegmentError: an interrupted write does not explain what is there.
    """
    index = SparseIndex()
    valid_bytes, next_offset, unsynced_from = 0, base_offset, 0
    for position, header in intact_batches(data, 0, base_offset, gapless=True):
        index.add(header.base_offset, position)
        unsynced_from = synced_position(position, header)
        valid_bytes, next_offset = position + header.size, header.last_offset + 1
    problem = _problem(data, valid_bytes, next_offset, synced_offset)
    if problem is not None:
        raise CorruptSegmentError(
            f"at byte {valid_bytes} there is no intact batch of offset {next_offset}, and {problem}",
            position=valid_bytes,
            expected_offset=next_offset,
            flipped=flipped_bit(data, valid_bytes, next_offset),
        )
    return RecoveredSegment(valid_bytes=valid_bytes, next_offset=next_offset, unsynced_from=unsynced_from, index=index)


def synced_position(position: int, header: BatchHeader) -> int:
    """Up to which byte of its segment everything was durable when the batch at `position` was written."""
    is_possible = 0 <= header.partition_leader_epoch <= position
    return position - header.partition_leader_epoch if is_possible else position


def intact_batches_after(data: bytes, position: int, expected_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of intact batches of a gapless log behind a damaged one, whose length leads nowhere.

    Args:
        data: the segment.
        position: where the damaged batch begins.
        expected_offset: the base offset that it should have. A batch with a lower one is data inside of another one,
            and so is one with a base offset that the bytes between have no room for.
    """
    found = data.find(_MAGIC_BYTE, position + _MAGIC_AT)
    while found >= 0:
        at = found - _MAGIC_AT
        base_offset = int.from_bytes(data[at : at + _BASE_OFFSET_BYTES])
        following = found + 1
        if expected_offset <= base_offset <= expected_offset + at - position:
            header = _intact_header(data, at)
            if header is not None:
                yield at, header
                following = at + header.size + _MAGIC_AT
        found = data.find(_MAGIC_BYTE, following)


def _problem(data: bytes, position: int, next_offset: int, synced_offset: int) -> str | None:
    """Why what is at `position` and after it is damage; None if it is not, or nothing is there."""
    if next_offset < synced_offset:
        return f"everything below offset {synced_offset} was durable"
    for at, header in intact_batches_after(data, position, next_offset):
        if synced_position(at, header) > position:
            return f"what is there was durable before the intact batch of offset {header.base_offset} was written"
    if not is_torn(data, position, next_offset):
        return "no interrupted write leaves what is there: it lacks neither bytes nor whole sectors"
    return None


def _intact_header(buf: Buffer, position: int) -> BatchHeader | None:
    if len(buf) - position < HEADER_BYTES or buf[position + _MAGIC_AT] != MAGIC:
        return None
    try:
        header = read_header(buf, position)
    except CorruptBatchError:
        return None
    if header.last_offset_delta < 0 or not crc_is_valid(buf, position, header):
        return None
    return header

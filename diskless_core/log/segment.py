"""Kafka's segment file: names, batches in it, sparse offset lookup, recovery of a torn end.

Pure functions over file names and bytes; who opens, reads and truncates files is the caller.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

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
_LENGTH_AT = 8
_MAGIC_AT = 16
_ZERO_EPOCH_AND_MAGIC = b"\x00\x00\x00\x00\x02"
_EPOCH_AT = 12


class CorruptSegmentError(Exception):
    """A segment holds bytes that no torn write explains.

    Attributes:
        position: byte position of the first bad batch.
        expected_offset: the base offset that this batch should have had.
        intact_position: byte position of an intact batch behind it, or None where there is none.
    """

    def __init__(
        self, message: str, *, position: int, expected_offset: int, intact_position: int | None = None
    ) -> None:
        super().__init__(message)
        self.position = position
        self.expected_offset = expected_offset
        self.intact_position = intact_position


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
    """What a segment holds up to its first bad byte.

    Attributes:
        valid_bytes: the file is to be truncated to this size.
        next_offset: the offset after its last intact batch.
        index: sparse index of the intact batches.
    """

    valid_bytes: int
    next_offset: int
    index: SparseIndex


def recover_tail(data: bytes, base_offset: int, *, gapless: bool = False) -> RecoveredSegment:
    """Find where a log's last segment ends, when its last write may have been torn.

    Raises:
        CorruptSegmentError: behind the first bad batch there is an intact one, so that cutting would lose data.
    """
    index = SparseIndex()
    valid_bytes, next_offset = 0, base_offset
    for position, header in intact_batches(data, 0, base_offset, gapless=gapless):
        index.add(header.base_offset, position)
        valid_bytes, next_offset = position + header.size, header.last_offset + 1
    intact = _find_intact_batch(data, valid_bytes, next_offset)
    if intact is not None:
        raise CorruptSegmentError(
            f"at byte {valid_bytes} there is no intact batch of offset {next_offset}, but at byte {intact} there is "
            f"an intact one",
            position=valid_bytes,
            expected_offset=next_offset,
            intact_position=intact,
        )
    return RecoveredSegment(valid_bytes=valid_bytes, next_offset=next_offset, index=index)


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


def _find_intact_batch(data: bytes, start: int, lowest_offset: int) -> int | None:
    """Search every byte, for the length of a bad batch leads nowhere. Leader epoch and magic make it quick."""
    found = data.find(_ZERO_EPOCH_AND_MAGIC, start + _EPOCH_AT)
    while found >= 0:
        position = found - _EPOCH_AT
        header = _intact_header(data, position)
        if header is not None and header.base_offset >= lowest_offset:
            return position
        found = data.find(_ZERO_EPOCH_AND_MAGIC, found + 1)
    return None

"""Walks the records of one batch in a stream: what they unpack to is never in memory as a whole.

For offsets and timestamps only the beginning of each record is read; keys, values and headers are skipped. A batch of a
few kilobytes can hold millions of records, or one of gigabytes, so a lookup is a series of steps, and its caller can do
other work between two of them. Pure.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple, TypeVar

from diskless_core.protocol import record_walk
from diskless_core.protocol.compression import DecompressionError, UnknownCodecError, Unpacker
from diskless_core.protocol.record_batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    CorruptBatchError,
    UnsupportedCompressionError,
    crc_is_valid,
    read_header,
)
from diskless_core.protocol.record_walk import MalformedRecordsError

STEP_RECORDS = 2_000
"""Records that a step walks at most: about a millisecond."""

STEP_BYTES = 1 << 20
"""A step also ends when so many bytes have been unpacked."""

_AHEAD_BYTES = 64 << 10
"""Unpacked before records are walked, so that a small batch takes one step."""

_PIECE_BYTES = 1 << 20
_MAX_VARINT_BYTES = 10
_BEGINNING_BYTES = 32
"""More than a record's length, attributes and two deltas can take. As many zeros follow the last record."""

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that can be stopped between two steps, and its result. A step takes milliseconds."""


class Found(NamedTuple):
    """A record: its absolute offset, and its timestamp in milliseconds since the epoch."""

    offset: int
    timestamp: int


def finished(steps: Steps[T]) -> T:
    """The result of steps, all of them done at once: for callers that may take their time."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def first_at_or_after(batch: Buffer, timestamp_ms: int, from_offset: int = 0) -> Steps[Found | None]:
    """The batch's first record whose timestamp is `timestamp_ms` or later, None without one.

    Records below `from_offset` do not count; the batch ends at or after it. With LogAppendTime the batch's maximum
    timestamp is that of every record, so the answer is the first of them. Reading ends there.

    Raises:
        CorruptBatchError: header, compressed data or a record before the one that is looked for is malformed. The CRC
            is not checked.
        UnsupportedCompressionError: there is no such codec.
    """
    header = read_header(batch)
    if header.max_timestamp < timestamp_ms:
        return None
    if header.is_log_append_time:
        return Found(max(header.base_offset, from_offset), header.max_timestamp)
    for some in _records(batch, header):
        for one in some:
            if one[1] >= timestamp_ms and one[0] >= from_offset:
                return Found(*one)
        yield
    return None


def latest(batch: Buffer, from_offset: int = 0) -> Steps[Found]:
    """The batch's latest record; of several, the one with the lowest offset.

    Records below `from_offset` do not count; the batch ends at or after it. Reading ends at a record that has the
    header's maximum timestamp.

    Raises:
        CorruptBatchError, UnsupportedCompressionError: as `first_at_or_after`; also for a batch without records.
    """
    header = read_header(batch)
    if header.is_log_append_time:
        return Found(max(header.base_offset, from_offset), header.max_timestamp)
    best: tuple[int, int] | None = None
    for some in _records(batch, header):
        for one in some:
            if one[0] >= from_offset and (best is None or one[1] > best[1]):
                best = one
        if best is not None and best[1] >= header.max_timestamp:
            break
        yield
    if best is None:
        raise CorruptBatchError("a batch without records has no latest record")
    return Found(*best)


def problem_of(batch: Buffer) -> str | None:
    """Why a consumer cannot read all records of the one batch that `batch` consists of; None where it can.

    This checks the checksum and every field of every record, as the Java client does. It does not report what Apache
    Kafka accepts or repairs: offset deltas that do not run 0, 1, 2, or a latest timestamp that is not the header's.
    """
    try:
        header = read_header(batch)
        if header.magic != MAGIC or header.size != len(batch):
            return f"{len(batch)} bytes are not one batch of magic {MAGIC}"
        if not crc_is_valid(batch, 0, header):
            return "its checksum is wrong"
        count, pieces = _count(header), _pieces(batch, header)
        if count:
            record_walk.walk(pieces, count)
        elif any(pieces):
            return "the header counts no records, and there are some"
    except (CorruptBatchError, UnsupportedCompressionError, MalformedRecordsError) as error:
        return str(error)
    return None


class _Plain:
    """The unpacked records, of which a part is in memory. `data[at:]` begins with what has not been read yet."""

    def __init__(self, batch: Buffer, header: BatchHeader) -> None:
        self.data = b""
        self.at = 0
        self.has_ended = False
        self._unpacked = 0
        self._pieces = _pieces(batch, header)

    def load(self) -> bool:
        """Bring in the next piece, and drop what has been read. False at the end, where zeros follow."""
        piece = next(self._pieces, None)
        if piece is None:
            if not self.has_ended:
                self.data += bytes(_BEGINNING_BYTES)
                self.has_ended = True
            return False
        self._unpacked += len(piece)
        dropped = min(self.at, len(self.data))
        self.data = self.data[dropped:] + piece
        self.at -= dropped
        return True

    def ends_step(self) -> bool:
        """Whether enough was unpacked for a step. If so, the next one begins."""
        if self._unpacked < STEP_BYTES:
            return False
        self._unpacked = 0
        return True

    @property
    def left(self) -> int:
        """Bytes in memory that have not been read. Less than 0 where records reach beyond them."""
        return len(self.data) - self.at - (_BEGINNING_BYTES if self.has_ended else 0)

    def require_end(self) -> None:
        while self.left == 0 and self.load():
            pass
        if self.left:
            raise CorruptBatchError("there are more bytes than the records of the header's count have")


def _pieces(batch: Buffer, header: BatchHeader) -> Iterator[bytes]:
    records = memoryview(batch)[HEADER_BYTES : header.size]
    if not header.compression:
        for start in range(0, len(records), _PIECE_BYTES):
            yield bytes(records[start : start + _PIECE_BYTES])
        return
    try:
        yield from Unpacker().pieces(header.compression, records)
    except UnknownCodecError as error:
        raise UnsupportedCompressionError(str(error)) from error
    except DecompressionError as error:
        raise CorruptBatchError(str(error)) from error


def _records(batch: Buffer, header: BatchHeader) -> Iterator[list[tuple[int, int]]]:
    """Offsets and timestamps, those of a step at a time; there may be none among them."""
    if header.magic != MAGIC or header.size != len(batch):
        raise CorruptBatchError(f"{len(batch)} bytes are not one batch of magic {MAGIC}")
    plain = _Plain(batch, header)
    left = _count(header)
    while left:
        while plain.left < _AHEAD_BYTES and plain.load():
            if plain.ends_step():
                yield []
        found = _whole_beginnings(plain, header, min(left, STEP_RECORDS))
        left -= len(found)
        yield found
    while plain.left < 0 and plain.load():
        if plain.ends_step():
            yield []
    plain.require_end()


def _whole_beginnings(plain: _Plain, header: BatchHeader, count: int) -> list[tuple[int, int]]:
    """Up to so many of the next records, as far as their beginnings are in memory.

    One loop without calls: it is what a lookup spends its time with.
    """
    data, at = plain.data, plain.at
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    end = len(data) - _BEGINNING_BYTES
    found: list[tuple[int, int]] = []
    append = found.append
    while count and at <= end:
        if plain.has_ended and at == end:
            raise CorruptBatchError("there are fewer records than the header's count")
        count -= 1
        length = data[at]
        at += 1
        if length >= 0x80:
            length, at = _uvarint(data, at - 1)
        following = at + (length >> 1)
        if length & 1:
            raise CorruptBatchError("a record has a negative length")
        at += 1  # the attributes, which have no meaning yet
        time_delta = data[at]
        at += 1
        if time_delta >= 0x80:
            time_delta, at = _uvarint(data, at - 1)
        offset_delta = data[at]
        at += 1
        if offset_delta >= 0x80:
            offset_delta, at = _uvarint(data, at - 1)
        if at > following:
            raise CorruptBatchError("a record is shorter than its fields")
        at = following
        offset = base_offset + (offset_delta >> 1 ^ -(offset_delta & 1))
        append((offset, base_timestamp + (time_delta >> 1 ^ -(time_delta & 1))))
    plain.at = at
    if not found or (plain.has_ended and at > end):
        raise CorruptBatchError("the records end within one of them")
    return found


def _count(header: BatchHeader) -> int:
    if header.record_count < 0:
        raise CorruptBatchError(f"the header counts {header.record_count} records")
    return header.record_count


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(at, at + _MAX_VARINT_BYTES):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    raise CorruptBatchError("a varint has more than ten bytes")

"""Whether the records of a produced batch are what its header says: how thoroughly that is checked, and where. Pure.

Cheap checks are made for every batch, on the event loop: that it begins with a record and that its bytes can hold as
many records as it counts. A whole walk is made as far as the setting wants it. What would hold the event loop is left
over, to be done in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from diskless_core.config.types import RecordValidation
from diskless_core.protocol import record_walk
from diskless_core.protocol.compression import DecompressedSizeError, Unpacker, first_block_bytes
from diskless_core.protocol.record_batch import HEADER_BYTES, BatchHeader
from diskless_core.protocol.record_walk import MAX_HEAD_BYTES, MIN_RECORD_BYTES, MalformedRecordsError, Walked

MAX_BODY_BYTES = 2**31 - 1
"""Of records without compression. No client can hold more of them in an array."""

AT_ONCE_US = 10_000
"""About how long the checks of one request may hold the event loop, in microseconds."""

_PIECE_BYTES = 64 << 10
_AT_ONCE_UNPACKED_BYTES = 128 << 10
_AT_ONCE_PACKED_BYTES = 16 << 10
_UNPACKING_US = 100
"""At most what 128 KiB take, of the slowest codec."""

_PIECE_US = 5
"""At most what it takes to get to a piece: a block, member or frame of its own, with empty ones before it."""

_SMALL_BYTES = 1 << 10
"""Of a compressed body that may be unpacked part by part: it has few blocks, members or frames."""

_STEPS_PER_US = 64 if record_walk.is_compiled() else 1
"""Records and headers that a walk passes."""


class LaterError(Exception):
    """The check would hold the event loop."""


class _LongBodyError(Exception):
    """There is more to unpack than is allowed here."""


class RecordChecks:
    """The checks of one broker's event loop. Call `begin_request` before the first batch of each request."""

    def __init__(self, validation: RecordValidation) -> None:
        self._validation = validation
        self._unpacker = Unpacker()
        self._left_us = AT_ONCE_US

    def begin_request(self) -> None:
        """What follows is a new request, with as much time as each has."""
        self._left_us = AT_ONCE_US

    def is_whole(self, header: BatchHeader, *, is_unpacked: bool) -> bool:
        """Whether every record of this batch is checked. `is_unpacked`: the broker unpacks it in any case."""
        if header.compression and not is_unpacked:
            return self._validation is RecordValidation.ALL
        return self._validation is not RecordValidation.FIRST

    def at_once(self, batch: memoryview, header: BatchHeader, *, whole: bool) -> Walked | None:
        """Check a batch on the event loop. Returns what a walk learned, if there was one.

        Raises:
            LaterError: it would take too long; call `check_records` in a thread.
            MalformedRecordsError, DecompressionError: as `check_records`.
        """
        if not header.compression:
            beginning = bytes(batch[HEADER_BYTES : HEADER_BYTES + MAX_HEAD_BYTES])
            record_walk.check_beginning(beginning, header.record_count, len(batch) - HEADER_BYTES)
            if not whole:
                return None
            self._take(_most_steps(header.record_count, len(batch) - HEADER_BYTES) // _STEPS_PER_US)
            return record_walk.walk(_pieces(batch[HEADER_BYTES:]), header.record_count)
        body = batch[HEADER_BYTES:]
        if whole:
            self._take(_UNPACKING_US)
            if len(body) > _AT_ONCE_PACKED_BYTES:
                raise LaterError
            try:
                pieces = _up_to(self._unpacker.pieces(header.compression, body), _AT_ONCE_UNPACKED_BYTES)
                return record_walk.walk(self._paid(pieces), header.record_count)
            except _LongBodyError:
                raise LaterError from None
        self._check_first_block(body, header)
        return None

    def _check_first_block(self, body: memoryview, header: BatchHeader) -> None:
        self._take(_UNPACKING_US * first_block_bytes(header.compression, body) // _AT_ONCE_UNPACKED_BYTES)
        needed_bytes = header.record_count * MIN_RECORD_BYTES
        holds = self._unpacker.quickly_holds(header.compression, body, needed_bytes)
        if holds is None and needed_bytes > _AT_ONCE_UNPACKED_BYTES:
            raise LaterError
        beginning = self._unpacker.quick_beginning(header.compression, body, MAX_HEAD_BYTES)
        if holds is not None and len(beginning) == MAX_HEAD_BYTES:
            _check_packed(beginning, header, holds=holds)
            return
        if len(body) > _SMALL_BYTES:
            raise LaterError
        self._take(_UNPACKING_US)
        _check_packed_beginning(self._unpacker, header, body)

    def _paid(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._take(_PIECE_US + _most_steps(0, len(piece)) // _STEPS_PER_US)
            yield piece

    def _take(self, cost_us: int) -> None:
        if cost_us > self._left_us:
            raise LaterError
        self._left_us -= cost_us


def check_records(batch: memoryview, header: BatchHeader, *, whole: bool) -> Walked | None:
    """Check a batch in a thread. Returns what a walk learned, if there was one. Takes the memory of a few pieces.

    Raises:
        MalformedRecordsError: its records are not what the header says.
        DecompressionError: they are damaged.
        DecompressedSizeError: they are larger than `MAX_BODY_BYTES`.
    """
    body = batch[HEADER_BYTES:]
    if not header.compression:
        return check_unpacked(body, header, whole=whole)
    unpacker = Unpacker()
    if not whole:
        _check_packed_beginning(unpacker, header, body)
        return None
    try:
        return record_walk.walk(_up_to(unpacker.pieces(header.compression, body), MAX_BODY_BYTES), header.record_count)
    except _LongBodyError:
        raise DecompressedSizeError(f"the records are larger than {MAX_BODY_BYTES} bytes once decompressed") from None


def check_unpacked(body: memoryview, header: BatchHeader, *, whole: bool) -> Walked | None:
    """The same for records that are not compressed, or not any longer.

    Raises:
        MalformedRecordsError: they are not what the header says.
    """
    if whole:
        return record_walk.walk(_pieces(body), header.record_count)
    record_walk.check_beginning(bytes(body[:MAX_HEAD_BYTES]), header.record_count, len(body))
    return None


def _check_packed_beginning(unpacker: Unpacker, header: BatchHeader, body: memoryview) -> None:
    needed_bytes = header.record_count * MIN_RECORD_BYTES
    beginning = unpacker.beginning(header.compression, body, MAX_HEAD_BYTES)
    _check_packed(beginning, header, holds=unpacker.holds(header.compression, body, needed_bytes))


def _check_packed(beginning: bytes, header: BatchHeader, *, holds: bool) -> None:
    size = len(beginning) if len(beginning) < MAX_HEAD_BYTES else -1
    record_walk.check_beginning(beginning, header.record_count, size)
    if header.record_count * MIN_RECORD_BYTES > MAX_BODY_BYTES or not holds:
        raise MalformedRecordsError(f"the body cannot hold the {header.record_count} records that the header counts")


def _most_steps(record_count: int, body_bytes: int) -> int:
    """How many records and headers a walk passes at most: a header has a byte each for its key and its value."""
    return record_count + max(body_bytes - record_count * MIN_RECORD_BYTES, 0) // 2


def _pieces(body: memoryview) -> Iterator[bytes]:
    if len(body) <= _PIECE_BYTES:
        return iter((bytes(body),))
    return (bytes(body[at : at + _PIECE_BYTES]) for at in range(0, len(body), _PIECE_BYTES))


def _up_to(pieces: Iterator[bytes], max_bytes: int) -> Iterator[bytes]:
    left = max_bytes
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise _LongBodyError
        yield piece

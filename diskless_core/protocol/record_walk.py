"""Whether the records of a v2 batch are laid out as its header says, without building any of them. Pure.

A batch's body arrives in pieces of any size. The walk keeps one of them and never reads past it, so that a body of any
size takes the memory of one piece. Keys and values are skipped; their contents are not looked at.

This module also runs compiled, about seventy times as fast: mypyc makes an extension of this same file, which Python
imports instead of it where it is installed. For that reason the loop is one long function on local integers, and the
module imports nothing of the project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from mypy_extensions import i64

MIN_RECORD_BYTES: Final = 7
"""Of the smallest record: one byte each for length, attributes, both deltas, key and value lengths, header count."""

MAX_HEAD_BYTES: Final = 26
"""Of a record up to its key: length, attributes, timestamp delta, offset delta and the key's length."""

_MAX_VARINT_BYTES: Final = 5
_NO_TIMESTAMP_YET: Final = 0x7FFF_FFFF_FFFF_FFFF


class MalformedRecordsError(Exception):
    """The records contradict the batch's header or themselves."""


class Walked(NamedTuple):
    """What a walk learned.

    Attributes:
        earliest_delta: the smallest timestamp, relative to the batch's base timestamp, in milliseconds.
        latest_delta: the largest one.
        is_consecutive: whether the offset deltas run 0, 1, 2 and so on.
    """

    earliest_delta: int
    latest_delta: int
    is_consecutive: bool


def is_compiled() -> bool:
    """Whether this module runs as an extension."""
    return not __file__.endswith(".py")


def walk(pieces: Iterator[bytes], count: int) -> Walked:
    """Walk `count` records, which have to fill the body exactly.

    Accepts what Apache Kafka's own reader accepts: any attributes, any offset deltas, any negative length for a key or
    value that is null.

    Args:
        pieces: the body without compression, in order. No piece is empty.
        count: how many records the header counts, at least 1.

    Raises:
        MalformedRecordsError: the records are fewer or more than that, or one of them is not well-formed.
        Exception: what `pieces` raises.
    """
    try:
        return _walk(pieces, count)
    except IndexError:
        raise MalformedRecordsError(f"the records end before the {count} that the header counts") from None


def check_beginning(beginning: bytes, count: int, body_bytes: int) -> None:
    """Check that a body begins with a record, and that as many bytes can hold `count` records.

    Args:
        beginning: of the body without compression: `MAX_HEAD_BYTES` of it, or all of it if it has fewer.
        count: how many records the header counts, at least 1.
        body_bytes: the size of the whole body without compression, or -1 if it is unknown.

    Raises:
        MalformedRecordsError: it does not, or they cannot.
    """
    try:
        _check_beginning(beginning, count, body_bytes)
    except IndexError:
        raise MalformedRecordsError("the records end within the first one") from None


def _check_beginning(beginning: bytes, count: int, body_bytes: int) -> None:
    size: i64 = body_bytes
    others: i64 = count - 1
    length, pos = _varint(beginning, 0)
    end = pos + length
    if length < MIN_RECORD_BYTES - 1:
        raise MalformedRecordsError(f"the body does not begin with a record: a record has no length of {length}")
    if size >= 0:
        if end > size:
            raise MalformedRecordsError("the first record is longer than the body")
        if end + others * MIN_RECORD_BYTES > size:
            raise MalformedRecordsError(f"{size} bytes cannot hold the {count} records that the header counts")
        if others == 0 and end != size:
            raise MalformedRecordsError("the records go on after the one that the header counts")
    pos += 1  # attributes
    _, pos = _varlong(beginning, pos)
    _, pos = _varint(beginning, pos)
    key_length, pos = _varint(beginning, pos)
    if pos + max(key_length, 0) > end - 2:  # the value's length and the header count follow
        raise MalformedRecordsError("the first record is shorter than its key")


def _walk(pieces: Iterator[bytes], count: int) -> Walked:
    buf = next(pieces, b"")
    is_last = False
    end: i64 = len(buf)
    pos: i64 = 0
    records: i64 = count
    index: i64 = 0
    record_end: i64 = 0
    byte: i64 = 0
    number: i64 = 0
    headers: i64 = 0
    earliest: i64 = _NO_TIMESTAMP_YET
    latest: i64 = -_NO_TIMESTAMP_YET - 1
    is_consecutive = True
    while index < records:
        while pos + MAX_HEAD_BYTES > end and not is_last:
            buf, is_last = _refilled(buf, pos, pieces)
            pos = 0
            end = len(buf)
        # Most numbers take one byte: this is the fast path, here and below. With a call for each, the walk takes twice
        # as long where the module is not compiled.
        byte = buf[pos]
        pos += 1
        if byte < 0x80:
            number = (byte >> 1) ^ -(byte & 1)
        else:
            number, pos = _varint(buf, pos - 1)
        record_end = pos + number
        pos += 1  # attributes
        byte = buf[pos]
        pos += 1
        if byte < 0x80:
            number = (byte >> 1) ^ -(byte & 1)
        else:
            number, pos = _varlong(buf, pos - 1)
        if number > latest:
            latest = number
        if number < earliest:
            earliest = number
        byte = buf[pos]
        pos += 1
        if byte < 0x80:
            number = (byte >> 1) ^ -(byte & 1)
        else:
            number, pos = _varint(buf, pos - 1)
        if number != index:
            is_consecutive = False
        byte = buf[pos]
        pos += 1
        if byte < 0x80:
            number = (byte >> 1) ^ -(byte & 1)
        else:
            number, pos = _varint(buf, pos - 1)
        if number > 0:
            if number > record_end - pos:
                raise MalformedRecordsError(f"record {index} is shorter than its key")
            pos += number
        while pos + 2 * _MAX_VARINT_BYTES > end and not is_last:
            record_end -= pos
            buf, is_last = _refilled(buf, pos, pieces)
            pos = 0
            end = len(buf)
        byte = buf[pos]
        pos += 1
        if byte < 0x80:
            number = (byte >> 1) ^ -(byte & 1)
        else:
            number, pos = _varint(buf, pos - 1)
        if number > 0:
            if number > record_end - pos:
                raise MalformedRecordsError(f"record {index} is shorter than its value")
            pos += number
            while pos + _MAX_VARINT_BYTES > end and not is_last:
                record_end -= pos
                buf, is_last = _refilled(buf, pos, pieces)
                pos = 0
                end = len(buf)
        byte = buf[pos]
        pos += 1
        if byte < 0x80:
            headers = (byte >> 1) ^ -(byte & 1)
        else:
            headers, pos = _varint(buf, pos - 1)
        if headers:
            if headers < 0 or headers > record_end - pos:
                raise MalformedRecordsError(f"record {index} cannot have {headers} headers")
            headers *= 2  # a key and a value each
            while headers > 0:
                while pos + _MAX_VARINT_BYTES > end and not is_last:
                    record_end -= pos
                    buf, is_last = _refilled(buf, pos, pieces)
                    pos = 0
                    end = len(buf)
                number, pos = _varint(buf, pos)
                if number > 0:
                    if number > record_end - pos:
                        raise MalformedRecordsError(f"record {index} is shorter than its headers")
                    pos += number
                elif number < 0 and headers & 1 == 0:
                    raise MalformedRecordsError(f"record {index} has a header without a key")
                headers -= 1
        if pos != record_end:
            raise MalformedRecordsError(f"the fields of record {index} do not fill it")
        index += 1
    while pos >= end and not is_last:
        buf, is_last = _refilled(buf, pos, pieces)
        pos = 0
        end = len(buf)
    if pos > end:
        raise IndexError
    if pos < end:
        raise MalformedRecordsError(f"the records go on after the {count} that the header counts")
    return Walked(earliest, latest, is_consecutive)


def _varint(buf: bytes, pos: i64) -> tuple[i64, i64]:
    """The signed number of 32 bits at `pos`, and the position after it. Bits beyond 32 are dropped, as in Java."""
    byte: i64 = buf[pos]
    sign: i64 = -(byte & 1)
    value: i64 = (byte & 0x7F) >> 1
    shift: i64 = 6
    while byte >= 0x80:
        if shift > 27:
            raise MalformedRecordsError("a number takes more than five bytes")
        pos += 1
        byte = buf[pos]
        value |= (byte & (0x7F if shift < 27 else 0x0F)) << shift
        shift += 7
    return value ^ sign, pos + 1


def _varlong(buf: bytes, pos: i64) -> tuple[i64, i64]:
    """The signed number of 64 bits at `pos`, and the position after it. Bits beyond 64 are dropped, as in Java."""
    byte: i64 = buf[pos]
    sign: i64 = -(byte & 1)
    value: i64 = (byte & 0x7F) >> 1
    shift: i64 = 6
    while byte >= 0x80:
        if shift > 62:
            raise MalformedRecordsError("a number takes more than ten bytes")
        pos += 1
        byte = buf[pos]
        value |= (byte & (0x7F if shift < 62 else 0x01)) << shift
        shift += 7
    return value ^ sign, pos + 1


def _refilled(buf: bytes, pos: i64, pieces: Iterator[bytes]) -> tuple[bytes, bool]:
    """What follows `pos`, which may lie in a later piece, with one more piece; and whether there are none after it.

    Raises:
        IndexError: the body ends before `pos`.
    """
    end: i64 = len(buf)
    while pos > end:
        pos -= end
        buf = next(pieces, b"")
        end = len(buf)
        if end == 0:
            raise IndexError
    piece = next(pieces, b"")
    return buf[pos:] + piece, not piece

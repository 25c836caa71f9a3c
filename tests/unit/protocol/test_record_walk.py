"""Records are walked the same way from source and compiled, and whatever contradicts the header is found."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from diskless_core.protocol.record_batch import HEADER_BYTES, RecordData, build
from tests.support.record_walks import WAYS, record_walk

HEADERS = (("name", b"value"), ("empty", b""), ("null", None))
RECORDS = (
    RecordData(None, None),
    RecordData(b"", b"", (), 1_005),
    RecordData(b"key" * 30, b"v" * 300, HEADERS, 900),
    RecordData(b"k", b"v" * 20_000, HEADERS * 40, 1_000),
)
BODY = build(RECORDS, timestamp_ms=1_000)[HEADER_BYTES:]
FIRST_LENGTH, SECOND_LENGTH = 7, 8


@pytest.fixture(params=WAYS)
def module(request: pytest.FixtureRequest) -> Any:
    return record_walk(request.param)


def pieces(body: bytes, size: int = 1 << 16) -> Iterator[bytes]:
    return (body[at : at + size] for at in range(0, len(body), size))


def refused(module: Any, body: bytes, count: int, size: int = 1 << 16) -> str:
    with pytest.raises(module.MalformedRecordsError) as caught:
        module.walk(pieces(body, size), count)
    return str(caught.value)


def test_one_of_the_two_is_compiled() -> None:
    assert [record_walk(way).is_compiled() for way in WAYS] == [False, True]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 26, 300, 1 << 16])
def test_a_good_body_passes_however_it_is_cut(module: Any, size: int) -> None:
    assert module.walk(pieces(BODY, size), len(RECORDS)) == (-100, 5, True)


@pytest.mark.parametrize("size", [1, 11, 1 << 16])
def test_a_body_that_is_cut_anywhere_is_refused(module: Any, size: int) -> None:
    body = build(RECORDS[:3], timestamp_ms=1_000)[HEADER_BYTES:]
    for end in range(len(body)):
        refused(module, body[:end], 3, size)


@pytest.mark.parametrize("size", [1, 1 << 16])
def test_more_or_fewer_records_than_the_header_counts_are_refused(module: Any, size: int) -> None:
    assert "go on after the 3" in refused(module, BODY, 3, size)
    assert "end before the 5" in refused(module, BODY, 5, size)
    assert "end before the 2147483647" in refused(module, BODY, 2**31 - 1, size)
    refused(module, BODY + b"\0", 4, size)
    refused(module, b"", 1, size)


def record(*fields: bytes, length: int | None = None) -> bytes:
    body = b"".join(fields)
    return varint(len(body) if length is None else length) + body


def varint(number: int, bits: int = 64) -> bytes:
    unsigned = ((number << 1) ^ (number >> (bits - 1))) & (2**bits - 1)
    encoded = bytearray()
    while unsigned >= 0x80:
        encoded.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    return bytes(encoded) + bytes((unsigned,))


PLAIN = (b"\0", b"\0", b"\0", b"\x01", b"\x01", b"\0")
"""Attributes, timestamp delta, offset delta, no key, no value, no headers."""


@pytest.mark.parametrize(
    "body",
    [
        record(*PLAIN, length=5),
        record(*PLAIN, length=7),
        record(*PLAIN, length=-6),
        record(*PLAIN, length=2**31 - 1),
        record(*PLAIN[:3], varint(2), *PLAIN[4:]),
        record(*PLAIN[:3], varint(2**31 - 1), *PLAIN[4:]),
        record(*PLAIN[:4], varint(2), PLAIN[5]),
        record(*PLAIN[:5], varint(-1)),
        record(*PLAIN[:5], varint(1)),
        record(*PLAIN[:5], varint(2**31 - 1)),
        record(*PLAIN[:5], varint(1), varint(-1), varint(0)),
        record(*PLAIN[:5], varint(1), varint(5), b"name", varint(0)),
        record(PLAIN[0], b"\xff" * 10, *PLAIN[2:]),
        record(PLAIN[0], PLAIN[1], b"\xff" * 5, *PLAIN[3:]),
        b"\xff" * 40,
        b"a" * 40,
        bytes(40),
    ],
    ids=lambda body: body[:12].hex(),
)
def test_a_record_that_contradicts_itself_is_refused(module: Any, body: bytes) -> None:
    refused(module, body, 1)
    refused(module, body, 1, size=1)


def test_what_apache_kafka_takes_is_taken(module: Any) -> None:
    """Any attributes, offset deltas in any order, numbers with more bytes than they need, any negative length."""
    odd = [
        record(b"\xff", *PLAIN[1:]),
        record(*PLAIN[:2], varint(-3), *PLAIN[3:]),
        record(PLAIN[0], b"\x80\x80\0", b"\x80\x80\x80\x80\0", *PLAIN[3:]),
        record(*PLAIN[:3], varint(-7), varint(-(2**31)), PLAIN[5]),
        record(*PLAIN[:5], varint(1), varint(0), varint(-9)),
    ]
    assert module.walk(pieces(b"".join(odd)), len(odd)) == (0, 0, False)


@pytest.mark.parametrize("delta", [-(2**63), -(2**31), -1, 0, 1, 63, 64, 2**40, 2**63 - 1])
def test_timestamps_have_64_bits(module: Any, delta: int) -> None:
    body = record(PLAIN[0], varint(delta), *PLAIN[2:])
    assert module.walk(pieces(body), 1)[:2] == (delta, delta)


@pytest.mark.parametrize("delta", [-(2**31), -65, -64, 63, 64, 2**31 - 1])
def test_numbers_of_32_bits_are_read_as_java_reads_them(module: Any, delta: int) -> None:
    first = record(*PLAIN[:2], varint(delta, 32), *PLAIN[3:])
    assert not module.walk(pieces(first), 1).is_consecutive
    # the upper bits of a fifth byte are dropped
    assert module.walk(pieces(record(*PLAIN[:2], b"\x80\x80\x80\x80\x70", *PLAIN[3:])), 1).is_consecutive


def test_a_record_larger_than_a_piece_takes_no_more_memory_than_a_few_pieces(module: Any) -> None:
    size = 64 << 20
    head = b"".join((b"\0", b"\0", b"\0", b"\x01", varint(size)))
    zeroes = bytes(1 << 16)

    def large() -> Iterator[bytes]:
        yield varint(len(head) + size + 1) + head
        for _ in range(size // len(zeroes)):
            yield zeroes
        yield b"\0"

    tracemalloc.start()
    try:
        assert module.walk(large(), 1) == (0, 0, True)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_goes_wrong_while_the_body_is_unpacked_is_told(module: Any) -> None:
    def damaged() -> Iterator[bytes]:
        yield BODY[:5]
        raise struct.error("damaged")

    with pytest.raises(struct.error, match="damaged"):
        module.walk(damaged(), len(RECORDS))


def beginning(module: Any, body: bytes, count: int, size: int | None = None) -> str | None:
    try:
        module.check_beginning(body[: module.MAX_HEAD_BYTES], count, len(body) if size is None else size)
    except module.MalformedRecordsError as error:
        return str(error)
    return None


def test_a_good_beginning_passes(module: Any) -> None:
    for one in RECORDS:
        body = build([one], timestamp_ms=1_000)[HEADER_BYTES:]
        assert beginning(module, body, 1) is None
        assert beginning(module, body, 1, size=-1) is None
    assert beginning(module, BODY, len(RECORDS)) is None
    most = record(*PLAIN) * 100
    assert beginning(module, most, 100) is None


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", 1),
        (bytes(100), 1),
        (b"\xff" * 100, 1),
        (b"a" * 100, 1),
        (record(*PLAIN)[:5], 1),
        (record(*PLAIN, length=5), 1),
        (record(*PLAIN, length=7), 1),
        (record(*PLAIN) * 2, 1),
        (record(*PLAIN) * 99, 100),
        (BODY, 2**31 - 1),
        (record(PLAIN[0], b"\xff" * 10, *PLAIN[2:]), 1),
        (record(*PLAIN[:3], varint(2), *PLAIN[4:]), 1),
        (record(*PLAIN[:3], varint(-1), b"\x01"), 1),
    ],
    ids=lambda value: value[:12].hex() if isinstance(value, bytes) else str(value),
)
def test_a_body_that_does_not_begin_with_a_record_or_cannot_hold_the_count_is_refused(
    module: Any, body: bytes, count: int
) -> None:
    assert beginning(module, body, count) is not None

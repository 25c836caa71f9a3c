"""Produce: batches whose records are not what their header says, in every codec.

`SCENARIOS` are for a broker that checks every record, `UNCHECKED` for one that checks the beginning of a batch only.
"""

from __future__ import annotations

import struct
import zlib

import cramjam
import lz4.frame
import zstandard

from diskless_core.protocol.compression import CODECS, Codec, compress
from diskless_core.protocol.record_batch import HEADER_BYTES
from tests.differential.language import Made, Scenario, Step, scenario
from tests.differential.words import LATEST, fetch, list_offsets, lying, produce, timed, topic
from tests.support.batches import NOW_MS, batch_of, counting, with_body, with_header

HOUR_MS = 3_600_000
NONE, GZIP, SNAPPY, LZ4, ZSTD = CODECS.values()
GOOD = batch_of(b"a", b"b" * 50, b"c")
BODY = GOOD[HEADER_BYTES:]


def record(
    offset_delta: int = 0, *, length: int = 6, attributes: int = 0, key: int = -1, value: int = -1, headers: int = 0
) -> bytes:
    """A small record with these numbers, whatever follows them."""
    return bytes(
        (zigzag(length), attributes, 0, zigzag(offset_delta), zigzag(key), zigzag(value), zigzag(headers))
    )  # fmt: skip


def zigzag(number: int) -> int:
    return number * 2 if number >= 0 else -number * 2 - 1


THREE = b"".join(map(record, range(3)))


def holding(body: bytes, codec: int, count: int = 3) -> bytes:
    return packed(bytes(compress(Codec(codec), body)), codec, count)


def packed(body: bytes, codec: int, count: int = 3) -> bytes:
    return counting(with_body(GOOD, body, attributes=codec), count)


def false_beginnings(codec: int) -> list[bytes]:
    """Batches that do not begin with a record, or cannot hold as many as they count."""
    return [
        holding(BODY, codec, 1_000),
        holding(BODY, codec, 2**31 - 1),
        holding(b"", codec),
        holding(bytes(len(BODY)), codec),
        holding(b"no records, but some text", codec),
        holding(record(key=5), codec, 1),
        holding(THREE[:4], codec, 1),
    ]


def false_later_on(codec: int) -> list[bytes]:
    return [
        holding(BODY, codec, 4),
        holding(BODY, codec, 2),
        holding(BODY[:-1], codec),
        holding(BODY + b"\0", codec),
        holding(BODY[:8] + bytes(len(BODY) - 8), codec),
        holding(record(headers=1) + b"\x01\x01", codec, 1),
        holding(record(headers=-1), codec, 1),
        holding(record(headers=60), codec, 1),
    ]


def false_lengths(codec: int) -> list[bytes]:
    """Records whose fields do not fill them."""
    return [
        holding(THREE[:14] + record(2, length=7), codec),
        holding(THREE[:7] + record(1, length=7) + THREE[14:], codec),
    ]


def odd(codec: int) -> list[bytes]:
    """What no client sends, and Apache Kafka takes."""
    return [
        holding(record(attributes=0xFF), codec, 1),
        holding(record(key=-7, value=-20), codec, 1),
        holding(b"\x14\0\0\x80\x80\x80\x80\x70\x01\x01\0", codec, 1),
        holding(b"\x10\0\x80\0\x80\0\x01\x01\0", codec, 1),
        with_header(holding(BODY, codec), max_timestamp=NOW_MS + 1_000 * HOUR_MS),
        with_header(holding(BODY, codec), max_timestamp=NOW_MS - 5),
    ]


def without_its_order(codec: int) -> bytes:
    return holding(record(0) + record(5) + record(2), codec)


CUT_OFF = (
    packed(zlib.compress(BODY, wbits=31)[:-8], GZIP),
    packed(bytes(compress(Codec(LZ4), BODY))[:-4], LZ4),
    packed(zstandard.compress(BODY) + b"something", ZSTD),
)
FOREIGN = (
    packed(zlib.compress(BODY), GZIP),
    packed(bytes(cramjam.snappy.compress(BODY)), SNAPPY),
    packed(lz4.frame.compress(record() * 20_000, block_linked=True, block_size=4), LZ4, 20_000),
)
"""Formats of those libraries that are not the ones that Kafka's clients use."""

TWO_FRAMES_OF_LZ4 = packed(lz4.frame.compress(BODY[:3]) + lz4.frame.compress(BODY[3:]), LZ4)
SEVERAL_FRAMES = (
    packed(zlib.compress(BODY[:3], wbits=31) + zlib.compress(BODY[3:], wbits=31), GZIP),
    packed(zlib.compress(BODY, wbits=31) + b"something", GZIP),
    packed(bytes(compress(Codec(LZ4), BODY)) + b"something", LZ4),
    packed(zstandard.compress(BODY[:3]) + zstandard.compress(BODY[3:]), ZSTD),
    packed(struct.pack("<II", 0x184D2A50, 4) + b"skip" + zstandard.compress(BODY), ZSTD),
)


def each(batches: list[bytes] | tuple[bytes, ...]) -> tuple[Step, ...]:
    return tuple(produce(made(one)) for one in batches)


def made(batch: bytes) -> Made:
    return Made(bytes, (batch,))


SCENARIOS: tuple[Scenario, ...] = (
    *(
        scenario(
            f"records that are not what the header says, {name}",
            topic(),
            produce(made(GOOD)),
            each(false_beginnings(codec)),
            each(false_later_on(codec)),
            produce(made(GOOD)),
            fetch(0),
        )
        for name, codec in CODECS.items()
    ),
    *(
        scenario(
            f"records that no client sends, {name}",
            topic(message_timestamp_after_max_ms=str(HOUR_MS), retention_ms="-1"),
            each(odd(codec)),
            *(fetch(offset, max_bytes=1) for offset in (2, 3, 4, 7)),
        )
        for name, codec in CODECS.items()
    ),
    scenario(
        "records whose lengths are wrong, for a topic that wants another codec",
        topic(compression_type="zstd"),
        each(false_lengths(NONE)),
        each(false_lengths(GZIP)),
        each(false_beginnings(GZIP)),
        each(false_later_on(LZ4)),
        fetch(0),
    ),
    scenario("records whose lengths are wrong", topic(), each(false_lengths(NONE)), fetch(0)),
    *(
        scenario(
            f"records whose lengths are wrong, {name}",
            topic(),
            each(false_lengths(codec)),
            differs=("lengths of compressed records",),
        )
        for name, codec in CODECS.items()
        if codec
    ),
    scenario("offset deltas that do not run", topic(), produce(made(without_its_order(NONE))), fetch(0)),
    *(
        scenario(
            f"offset deltas that do not run, {name}",
            topic(),
            produce(made(without_its_order(codec))),
            differs=("offset deltas of compressed records",),
        )
        for name, codec in CODECS.items()
        if codec
    ),
    scenario(
        "records in several frames",
        topic(),
        each(SEVERAL_FRAMES),
        produce(made(TWO_FRAMES_OF_LZ4)),
        list_offsets(LATEST),
    ),
    scenario(
        "records that cannot be unpacked",
        topic(),
        each(CUT_OFF),
        each(FOREIGN),
        fetch(0),
        differs=("damaged compressed records",),
    ),
    scenario(
        "the second record of a batch is too old",
        topic(message_timestamp_before_max_ms=str(HOUR_MS)),
        produce(timed(NOW_MS, NOW_MS - 2 * HOUR_MS)),
        produce(timed(NOW_MS, NOW_MS - 2 * HOUR_MS, compression=GZIP)),
        about="Produce 3 7",
    ),
    scenario(
        "a latest timestamp that no record has",
        topic(retention_ms="-1"),
        produce(timed(-5)),
        produce(lying(made(GOOD), max_timestamp=NOW_MS + 5)),
        fetch(0),
        fetch(1),
        about="Produce ends",
    ),
)

UNCHECKED: tuple[Scenario, ...] = (
    *(
        scenario(
            f"beginnings that are not what the header says, {name}",
            topic(),
            produce(made(GOOD)),
            each(false_beginnings(codec)),
            produce(made(GOOD)),
            fetch(0),
        )
        for name, codec in CODECS.items()
    ),
    *(
        scenario(
            f"later records that are not what the header says, {name}",
            topic(),
            produce(made(false_later_on(codec)[0])),
            differs=("records behind the first one",),
        )
        for name, codec in CODECS.items()
    ),
    scenario(
        "an old record that is not looked at",
        topic(message_timestamp_before_max_ms=str(HOUR_MS)),
        produce(timed(NOW_MS, NOW_MS - 2 * HOUR_MS)),
        about="Produce ends",
        differs=("old records in a batch",),
    ),
    scenario(
        "a latest timestamp that is not looked at",
        topic(retention_ms="-1"),
        produce(timed(-5)),
        produce(lying(made(GOOD), max_timestamp=NOW_MS + 5)),
        fetch(0),
        fetch(1),
        differs=("the latest timestamp that a client writes",),
    ),
    scenario(
        "latest timestamps that would be refused are looked at",
        topic(message_timestamp_after_max_ms=str(HOUR_MS), retention_ms="-1"),
        *(produce(made(odd(codec)[4])) for codec in CODECS.values()),
        fetch(0),
    ),
    scenario(
        "an end of compressed records that is not looked at",
        topic(),
        produce(made(packed(zlib.compress(BODY, wbits=31)[:-8], GZIP))),
        differs=("damaged compressed records",),
    ),
)

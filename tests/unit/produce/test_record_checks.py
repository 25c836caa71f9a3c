"""Batches whose records are not what their header says are refused, as thoroughly as the setting asks for it."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import cramjam
import kafka.codec as stock
import lz4.frame
import pytest
import snappy
import zstandard

from diskless_core.config.broker import BrokerConfig
from diskless_core.config.types import RecordValidation
from diskless_core.diskless.commands import TimestampType
from diskless_core.produce import record_checks
from diskless_core.produce.record_checks import AT_ONCE_US, RecordChecks
from diskless_core.produce.validation import InvalidBatchError, TopicRules, ValidBatch, finished, validate
from diskless_core.protocol import compression, record_batch, record_walk
from diskless_core.protocol.compression import CODECS, Codec, Unpacker, compress
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import HEADER_BYTES, RecordData, build, read_header
from diskless_core.protocol.record_walk import MAX_HEAD_BYTES
from diskless_core.protocol.varint import encode_uvarint
from tests.support.batches import NOW_MS, batch_of, counting, timed_batch, with_body, with_header
from tests.support.guarantees import guarantee
from tests.support.produce_path import RULES as PATH_RULES
from tests.support.produce_path import ProducePath
from tests.support.virtual_time import START_MS, run

FIRST, UNPACKED, ALL = RecordValidation.FIRST, RecordValidation.UNPACKED, RecordValidation.ALL
RULES = TopicRules(
    max_message_bytes=1 << 20,
    timestamp_type=TimestampType.CREATE_TIME,
    timestamp_before_max_ms=60_000,
    timestamp_after_max_ms=30_000,
)
NONE, GZIP, SNAPPY, LZ4, ZSTD = CODECS.values()
GOOD = batch_of(b"a", b"b" * 50, b"c")
BODY = GOOD[HEADER_BYTES:]
EMPTY_RECORD = b"\x0c\0\0\0\x01\x01\0"


def holding(body: bytes, codec: int = NONE, count: int = 3) -> bytes:
    """A batch with this body, compressed, and a header that counts so many records."""
    return counting(with_body(GOOD, bytes(compress(Codec(codec), body)), attributes=codec), count)


def judged(batch: bytes, validation: RecordValidation, rules: TopicRules = RULES) -> ErrorCode:
    """What becomes of a batch, also where a thread finds it out."""
    try:
        finished(validate(memoryview(batch), rules, 9, NOW_MS, RecordChecks(validation)))
    except InvalidBatchError as error:
        return error.code
    return ErrorCode.NONE


ALWAYS_REFUSED: Mapping[str, Callable[[int], bytes]] = {
    "counts more than the bytes can hold": lambda codec: holding(BODY, codec, 1000),
    "counts as many as a number can": lambda codec: holding(BODY, codec, 2**31 - 1),
    "counts one more than its smallest records": lambda codec: holding(EMPTY_RECORD * 500, codec, 501),
    "has no records": lambda codec: holding(b"", codec),
    "has zeroes": lambda codec: holding(bytes(len(BODY)), codec),
    "has a lot of zeroes": lambda codec: holding(bytes(300_000), codec),
    "has ones": lambda codec: holding(b"\xff" * 40, codec),
    "has text": lambda codec: holding(b"no records, but some text", codec),
    "has a record that is shorter than its key": lambda codec: holding(b"\x0c\0\0\0\x0a\x01\0" * 3, codec),
    "has half a record": lambda codec: holding(EMPTY_RECORD[:4], codec, 1),
}
REFUSED_BY_A_WALK: Mapping[str, Callable[[int], bytes]] = {
    "counts more than there are": lambda codec: holding(BODY, codec, 4),
    "counts fewer than there are": lambda codec: holding(BODY, codec, 2),
    "is cut within its last record": lambda codec: holding(BODY[:-1], codec),
    "goes on in its last record": lambda codec: holding(BODY + b"\0", codec),
    "has zeroes behind its first record": lambda codec: holding(BODY[:8] + bytes(len(BODY) - 8), codec),
}


@guarantee(
    "Offsets",
    "A batch that does not begin with a record, or whose bytes cannot hold as many records as its header counts, is "
    "refused with INVALID_RECORD, compressed or not. `diskless.produce.records.validation` has every record checked.",
)
@pytest.mark.parametrize("validation", [FIRST, UNPACKED, ALL])
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("lie", ALWAYS_REFUSED)
def test_a_batch_that_does_not_begin_with_a_record_or_cannot_hold_its_count_is_always_refused(
    lie: str, codec: int, validation: RecordValidation
) -> None:
    assert judged(ALWAYS_REFUSED[lie](codec), validation) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("lie", REFUSED_BY_A_WALK)
def test_a_walk_finds_what_lies_further_back(lie: str, codec: int) -> None:
    batch = REFUSED_BY_A_WALK[lie](codec)
    assert judged(batch, ALL) is ErrorCode.INVALID_RECORD
    assert judged(batch, FIRST) is ErrorCode.NONE
    assert judged(batch, UNPACKED) is (ErrorCode.NONE if codec else ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize(
    ("came", "wanted"), [pair for pair in product(CODECS.values(), repeat=2) if pair[0] != pair[1]]
)
def test_what_is_unpacked_for_its_topic_is_walked_then(came: int, wanted: int) -> None:
    rules = replace(RULES, stored_with=Codec(wanted))
    for make in REFUSED_BY_A_WALK.values():
        assert judged(make(came), UNPACKED, rules) is ErrorCode.INVALID_RECORD
        assert judged(make(came), FIRST, rules) is ErrorCode.NONE
    for make in ALWAYS_REFUSED.values():
        assert judged(make(came), FIRST, rules) is ErrorCode.INVALID_RECORD


def snappy_in_blocks_of(size: int) -> Callable[[bytes], bytes]:
    def encode(data: bytes) -> bytes:
        blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + size])) for at in range(0, len(data), size)]
        return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)

    return encode


def zstd_without_a_size(data: bytes) -> bytes:
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return packer.compress(data) + packer.flush()


def in_two(encode: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Two frames, of which the first holds less than the beginning of a record."""
    return lambda data: encode(data[:3]) + encode(data[3:])


ENCODERS: Mapping[str, tuple[int, Callable[[bytes], Any]]] = {
    "gzip": (GZIP, gzip.compress),
    "gzip, stored": (GZIP, lambda data: gzip.compress(data, 0)),
    "gzip, two members": (GZIP, in_two(gzip.compress)),
    "snappy as a whole": (SNAPPY, lambda data: cramjam.snappy.compress_raw(data)),
    "snappy in blocks": (SNAPPY, stock.snappy_encode),
    "snappy in small blocks": (SNAPPY, snappy_in_blocks_of(11)),
    "gzip and something behind it": (GZIP, lambda data: gzip.compress(data) + b"something"),
    "snappy and something behind it": (SNAPPY, lambda data: snappy_in_blocks_of(1 << 15)(data) + b"\0\0"),
    "lz4 and something behind it": (LZ4, lambda data: bytes(stock.lz4_encode(data)) + b"something"),
    "lz4": (LZ4, stock.lz4_encode),
    "lz4 with its size": (LZ4, lambda data: lz4.frame.compress(data, store_size=True, block_linked=False)),
    "zstd": (ZSTD, zstandard.ZstdCompressor().compress),
    "zstd without its size": (ZSTD, zstd_without_a_size),
    "zstd, two frames": (ZSTD, in_two(zstandard.ZstdCompressor().compress)),
    "zstd behind a frame to skip": (
        ZSTD,
        lambda data: struct.pack("<II", 0x184D2A50, 4) + b"skip" + zstandard.ZstdCompressor().compress(data),
    ),
}
BODIES = {
    "a small record": [RecordData(None, b"v")],
    "records that repeat": [RecordData(b"key", b"value " * 10, (("h", b"v"),))] * 2_000,
    "records that are all but empty": [RecordData(None, None)] * 20_000,
    "a large record": [RecordData(b"k" * 100, bytes(range(256)) * 3_000)],
    "a large key": [RecordData(bytes(200_000), None)] * 2,
    "unlike bytes": [RecordData(None, struct.pack(">Q", number * 0x9E3779B97F4A7C15 % 2**64)) for number in range(900)],
}


@pytest.mark.parametrize("validation", [FIRST, ALL])
@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("content", BODIES)
def test_a_good_batch_passes_whatever_has_compressed_it(content: str, name: str, validation: RecordValidation) -> None:
    codec, encode = ENCODERS[name]
    records = BODIES[content]
    plain = build(records, timestamp_ms=NOW_MS)
    batch = with_body(plain, bytes(encode(plain[HEADER_BYTES:])), attributes=codec)
    assert judged(batch, validation, replace(RULES, max_message_bytes=1 << 30)) is ErrorCode.NONE
    assert judged(counting(batch, len(plain)), validation, replace(RULES, max_message_bytes=1 << 30)) is (
        ErrorCode.INVALID_RECORD
    )


LINKED = lz4.frame.compress(EMPTY_RECORD * 20_000, block_linked=True, block_size=4)
CUT_OFF: Mapping[str, tuple[int, bytes]] = {
    "gzip without its end": (GZIP, gzip.compress(BODY)[:-8]),
    "gzip with another checksum": (GZIP, gzip.compress(BODY)[:-8] + bytes(8)),
    "lz4 without its end": (LZ4, bytes(stock.lz4_encode(BODY))[:-4]),
    "lz4 of two frames": (LZ4, in_two(stock.lz4_encode)(BODY)),
    "zstd and something behind it": (ZSTD, zstandard.compress(BODY) + b"something"),
    "snappy whose last block is cut": (SNAPPY, snappy_in_blocks_of(11)(BODY)[:-1]),
    "snappy that claims gigabytes": (SNAPPY, b"\xff\xff\xff\xff\x07" + bytes(cramjam.snappy.compress_raw(BODY))[1:]),
}


@pytest.mark.parametrize("name", CUT_OFF)
def test_compressed_records_that_cannot_be_unpacked_are_refused_by_a_walk(name: str) -> None:
    codec, packed = CUT_OFF[name]
    assert judged(counting(with_body(GOOD, bytes(packed), attributes=codec), 3), ALL) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("rules", [RULES, replace(RULES, stored_with=Codec(ZSTD))])
def test_lz4_that_the_java_client_cannot_read_is_refused(rules: TopicRules) -> None:
    linked = counting(with_body(GOOD, LINKED, attributes=LZ4), 20_000)
    assert judged(linked, FIRST, rules) is ErrorCode.INVALID_RECORD


def test_what_apache_kafka_takes_is_taken() -> None:
    """Offset deltas that do not run 0, 1, 2."""
    for codec, validation in product(CODECS.values(), (FIRST, UNPACKED, ALL)):
        assert judged(holding(EMPTY_RECORD * 3, codec), validation) is ErrorCode.NONE


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_walk_corrects_the_latest_timestamp(codec: int) -> None:
    good = timed_batch(NOW_MS, NOW_MS + 7, NOW_MS + 3, compression=codec)
    batch = with_header(good, max_timestamp=NOW_MS + 10**12)
    found = validate(memoryview(batch), RULES, 9, NOW_MS, RecordChecks(ALL))
    assert (bytes(found.data), found.max_timestamp) == (good, NOW_MS + 7)
    assert judged(batch, FIRST) is ErrorCode.NONE
    assert validate(memoryview(batch), RULES, 9, NOW_MS, RecordChecks(FIRST)).max_timestamp == NOW_MS + 7
    by_the_broker = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert bytes(validate(memoryview(batch), by_the_broker, 9, NOW_MS, RecordChecks(ALL)).data) == batch


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ((0, -60_001), ErrorCode.INVALID_TIMESTAMP),
        ((0, -60_000), ErrorCode.NONE),
        ((0, 30_001, 0), ErrorCode.INVALID_TIMESTAMP),
        ((0, 30_000, 0), ErrorCode.NONE),
    ],
)
def test_a_walk_looks_at_the_timestamp_of_every_record(offsets: tuple[int, ...], error: ErrorCode, codec: int) -> None:
    batch = timed_batch(*(NOW_MS + offset for offset in offsets), compression=codec)
    assert judged(with_header(batch, max_timestamp=NOW_MS), ALL) is error


def test_timestamps_beyond_64_bits_are_far_in_the_future() -> None:
    batch = with_header(timed_batch(0, 2**62), base_timestamp=2**62 + 2**61, max_timestamp=0)
    assert judged(batch, UNPACKED) is ErrorCode.INVALID_TIMESTAMP
    ever = replace(RULES, timestamp_after_max_ms=2**63 - 1, timestamp_before_max_ms=2**63 - 1)
    assert validate(memoryview(batch), ever, 9, 2**62, RecordChecks(UNPACKED)).max_timestamp == 2**63 - 1


def bomb(size: int, count: int, record: bytes = EMPTY_RECORD) -> bytes:
    return counting(
        with_body(GOOD, zstandard.ZstdCompressor().compress(record * (size // len(record))), attributes=ZSTD), count
    )


def at_once(checks: RecordChecks, batch: bytes) -> bool:
    """Whether the event loop does all of it."""
    return validate(memoryview(batch), RULES, 9, NOW_MS, checks).unfinished is None


def test_what_would_hold_the_event_loop_is_left_to_a_thread() -> None:
    packed = bomb(7_000_000, 1_000_000)
    checks = RecordChecks(ALL)
    assert not at_once(checks, packed)
    unsized = with_body(packed, zstd_without_a_size(EMPTY_RECORD * 1_000_000))
    assert not at_once(RecordChecks(FIRST), unsized)
    assert judged(unsized, FIRST) is ErrorCode.NONE
    assert judged(packed, ALL) is ErrorCode.NONE


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_request_of_very_many_batches_holds_the_event_loop_no_longer_than_another(codec: int) -> None:
    batch = holding(EMPTY_RECORD * 2_000, codec, 2_000)
    checks = RecordChecks(ALL)
    limit = AT_ONCE_US // (2_000 // 64) + 1
    first = [at_once(checks, batch) for _ in range(limit + 1)]
    assert first[0]
    assert not first[-1]
    checks.begin_request()
    assert at_once(checks, batch)


def test_records_beyond_what_a_client_can_hold_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_checks, "MAX_BODY_BYTES", 6_999_999)
    assert judged(bomb(7_000_000, 1_000_000), ALL) is ErrorCode.MESSAGE_TOO_LARGE
    assert judged(bomb(7_000_000, 1_000_000), FIRST) is ErrorCode.INVALID_RECORD


@guarantee(
    "Offsets",
    "Batches of a partition keep their order where a thread checks the records of some, and those that are refused "
    "leave no gap.",
)
def test_batches_that_a_thread_checks_keep_their_order_and_stay_as_they_are() -> None:
    async def main() -> None:
        async with ProducePath(record_validation=ALL) as path:
            big = build([RecordData(None, b"v" * 40)] * 20_000, timestamp_ms=START_MS, compression=ZSTD)
            small = batch_of(b"small", timestamp_ms=START_MS)
            answers = [path.produce((0, one)) for one in (big, counting(big, 20_001), small)]
            results = [(await answer)[0] for answer in answers]
            assert [one.error for one in results] == [ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.NONE]
            assert [one.base_offset for one in results] == [0, -1, 20_000]
            [found] = await path.fetch((0, 0))
            stored = b"".join(bytes(part) for part in found.records)
            assert stored[HEADER_BYTES : read_header(stored).size] == big[HEADER_BYTES:]
            assert path.metrics.produce_recompressions._value.get() == 0
            assert path.metrics.produce_rejections.labels(error="INVALID_RECORD")._value.get() == 1
            assert path.writer.backlog.size_bytes == 0
            assert path.released == 3

    run(main)


def test_a_topic_with_a_codec_of_its_own_gets_the_true_timestamp_too() -> None:
    async def main() -> None:
        async with ProducePath(record_validation=UNPACKED) as path:
            batch = with_header(timed_batch(START_MS, START_MS + 9), max_timestamp=START_MS + 5_000)
            [result] = await path.produce((0, batch), rules=replace(PATH_RULES, stored_with=Codec(ZSTD, 3)))
            assert result.error is ErrorCode.NONE
            [found] = await path.fetch((0, 0))
            stored = b"".join(bytes(part) for part in found.records)
            header = read_header(stored)
            assert (header.compression, header.max_timestamp) == (ZSTD, START_MS + 9)
            assert record_batch.crc_is_valid(stored, 0, header)

    run(main)


def test_a_batch_that_is_finished_stays_as_it_is() -> None:
    done = validate(memoryview(GOOD), RULES, 9, NOW_MS, RecordChecks(FIRST))
    assert isinstance(done, ValidBatch)
    assert finished(done) is done


@pytest.mark.parametrize(("is_compiled", "expected"), [(True, UNPACKED), (False, FIRST)])
def test_by_default_a_walk_is_made_where_it_is_quick(
    monkeypatch: pytest.MonkeyPatch, is_compiled: bool, expected: RecordValidation
) -> None:
    monkeypatch.setattr(record_walk, "is_compiled", lambda: is_compiled)
    assert BrokerConfig.model_validate({}).record_validation is expected
    for chosen in (FIRST, UNPACKED, ALL):
        text = {"diskless.produce.records.validation": chosen.value}
        assert BrokerConfig.model_validate(text).record_validation is chosen


def test_lz4_of_large_blocks_holds_the_event_loop_no_longer_than_another() -> None:
    body = lz4.frame.compress(EMPTY_RECORD * 3 + bytes(3 << 20), block_size=7, block_linked=False)
    batch = counting(with_body(GOOD, body, attributes=LZ4), 3)
    checks = RecordChecks(FIRST)
    assert [at_once(checks, batch) for _ in range(5)] == [True, True, True, False, False]


@pytest.mark.parametrize(
    "name",
    ["gzip", "snappy as a whole", "snappy in blocks", "lz4", "lz4 as librdkafka", "zstd", "zstd without its size"],
)
@pytest.mark.parametrize("is_random", [False, True])
def test_the_beginning_of_what_clients_compress_is_checked_on_the_event_loop(name: str, is_random: bool) -> None:
    chance = random.Random(1)
    values = [chance.randbytes(30_000) if is_random else b"words " * 5_000 for _ in range(30)]
    plain = build([RecordData(None, value) for value in values], timestamp_ms=NOW_MS)
    codec, encode = (LZ4, lz4_as_librdkafka) if name == "lz4 as librdkafka" else ENCODERS[name]
    assert at_once(RecordChecks(FIRST), with_body(plain, bytes(encode(plain[HEADER_BYTES:])), attributes=codec))


def lz4_as_librdkafka(data: bytes) -> bytes:
    packed: bytes = lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX256KB, block_linked=False)
    return packed


def test_records_of_very_many_headers_hold_the_event_loop_no_longer_than_other_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headers = 500_000
    rest = b"\0\0\0\1\1" + varint(headers) + bytes(2 * headers)
    batch = counting(with_body(GOOD, varint(len(rest)) + rest), 1)
    late = with_header(batch, max_timestamp=NOW_MS + 10**12)  # forces a walk, whatever the setting is
    walks = 0
    walk = record_walk.walk

    def counted(pieces: Iterator[bytes], count: int) -> record_walk.Walked:
        nonlocal walks
        walks += 1
        return walk(pieces, count)

    monkeypatch.setattr(record_walk, "walk", counted)
    checks = RecordChecks(FIRST)
    assert not [at_once(checks, late) for _ in range(4)][-1]
    assert walks * headers <= AT_ONCE_US * record_checks._STEPS_PER_US
    assert judged(late, FIRST) is ErrorCode.NONE


def varint(number: int) -> bytes:
    return encode_uvarint(number << 1)


def in_blocks(*blocks: bytes) -> bytes:
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


def snappy_block(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


SPUN_OUT: Mapping[str, tuple[int, bytes, int]] = {
    "blocks of snappy that hold nothing": (SNAPPY, in_blocks(*[b"\0"] * 50_000), 3),
    "blocks of snappy that hold nothing, and say so at length": (SNAPPY, in_blocks(*[b"\x80\0"] * 50_000), 3),
    "a small block of snappy and a large one": (
        SNAPPY,
        in_blocks(snappy_block(BODY[:3]), snappy_block(EMPTY_RECORD * 900_000)),
        3,
    ),
    "blocks of snappy of a byte each": (SNAPPY, in_blocks(*[snappy_block(b"a")] * 15_000), 18_000),
    "members of gzip that hold nothing": (GZIP, gzip.compress(b"") * 20_000, 3),
    "members of gzip of a byte each": (GZIP, gzip.compress(b"a") * 5_000, 18_000),
    "frames of zstd that hold nothing": (ZSTD, zstandard.compress(b"") * 20_000, 3),
    "frames of zstd to skip": (ZSTD, struct.pack("<II", 0x184D2A50, 0) * 20_000, 3),
    "frames of zstd of a byte each": (ZSTD, zstd_without_a_size(b"a") * 8_000, 18_000),
    "blocks of lz4 that hold nothing": (
        LZ4,
        lz4.frame.compress(b"", block_linked=False)[:-4] + struct.pack("<IB", 1, 0) * 40_000 + bytes(4),
        3,
    ),
}


class Unpacking:
    """Counts what is unpacked of compressed bodies: blocks of snappy, members of gzip, and bytes of either form."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts = self.walked_bytes = self.block_bytes = 0
        claimed, member, pieces = compression._claimed_by_block, zlib.decompressobj, Unpacker.pieces
        uncompress = snappy.uncompress

        def counted_claim(block: memoryview) -> int:
            self.parts += 1
            return claimed(block)

        def counted_member(wbits: int) -> Any:
            self.parts += 1
            return member(wbits)

        def counted_pieces(unpacker: Unpacker, codec: int, packed: memoryview) -> Iterator[bytes]:
            self.walked_bytes += len(packed)
            return pieces(unpacker, codec, packed)

        def counted_block(block: bytes) -> bytes:
            found: bytes = uncompress(block)
            self.block_bytes += len(found)
            return found

        monkeypatch.setattr(compression, "_claimed_by_block", counted_claim)
        monkeypatch.setattr(zlib, "decompressobj", counted_member)
        monkeypatch.setattr(snappy, "uncompress", counted_block)
        monkeypatch.setattr(Unpacker, "pieces", counted_pieces)
        first_block = compression._first_zstd_block

        def counted_zstd(packed: memoryview) -> memoryview:
            found = first_block(packed)
            self.block_bytes += len(found)
            return found

        monkeypatch.setattr(compression, "_first_zstd_block", counted_zstd)


@pytest.mark.parametrize("name", SPUN_OUT)
def test_a_compressed_body_that_yields_little_for_its_size_is_not_unpacked_on_the_event_loop(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec, body, count = SPUN_OUT[name]
    batch = counting(with_body(GOOD, body, attributes=codec), count)
    unpacking = Unpacking(monkeypatch)
    checks = RecordChecks(FIRST)
    for _ in range(3):
        with suppress(InvalidBatchError):
            at_once(checks, batch)
    assert unpacking.walked_bytes == 0
    assert unpacking.parts <= 3 * 50
    assert unpacking.block_bytes <= 3 * MAX_HEAD_BYTES
    assert judged(batch, FIRST) is (
        ErrorCode.NONE if name == "a small block of snappy and a large one" else ErrorCode.INVALID_RECORD
    )


@pytest.mark.parametrize(
    ("codec", "part"),
    [(SNAPPY, struct.pack(">i", 3) + snappy_block(b"a")), (GZIP, gzip.compress(b"a"))],
    ids=["snappy", "gzip"],
)
def test_whole_checks_of_bodies_in_very_many_parts_hold_the_event_loop_no_longer_than_others(
    codec: int, part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = varint(10_000 + 7) + b"\0\0\0\1" + varint(10_000)
    head = in_blocks(snappy_block(record)) if codec == SNAPPY else gzip.compress(record)
    batch = counting(with_body(GOOD, head + part * ((16_000 - len(head)) // len(part)), attributes=codec), 1)
    unpacking = Unpacking(monkeypatch)
    checks = RecordChecks(ALL)
    for _ in range(20):
        with suppress(InvalidBatchError):
            at_once(checks, batch)
    assert 0 < unpacking.parts <= AT_ONCE_US // 5 + 20

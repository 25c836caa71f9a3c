"""Records are found by time, and their problems named, without ever having all of them in memory."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest

from diskless_core.protocol import compression, record_batch, record_stream
from diskless_core.protocol.record_batch import (
    HEADER_BYTES,
    CorruptBatchError,
    RecordData,
    UnsupportedCompressionError,
    build,
    patch_log_append_time,
)
from diskless_core.protocol.record_stream import STEP_RECORDS, finished, first_at_or_after, latest, problem_of
from tests.support.batches import batch_of, timed_batch, with_header

MIB = 1 << 20
CODECS = [*compression.CODECS.values()]


@pytest.mark.parametrize("codec", CODECS)
def test_a_timestamp_finds_the_first_record_that_is_not_earlier(codec: int) -> None:
    batch = with_header(timed_batch(10, 30, 20, 30, compression=codec), base_offset=100)
    found = [finished(first_at_or_after(batch, timestamp)) for timestamp in (-5, 10, 11, 20, 30, 31)]
    assert found == [(100, 10), (100, 10), (101, 30), (101, 30), (101, 30), None]
    assert finished(first_at_or_after(batch, 11, from_offset=102)) == (102, 20)
    assert finished(latest(batch)) == (101, 30)
    assert finished(latest(batch, from_offset=102)) == (103, 30)


def test_every_record_has_the_time_of_its_append_where_the_broker_gave_it() -> None:
    batch = bytearray(with_header(timed_batch(10, 30, 20), base_offset=4))
    patch_log_append_time(batch, 0, 777)
    assert finished(first_at_or_after(batch, 700)) == (4, 777)
    assert finished(first_at_or_after(batch, 778)) is None
    assert finished(latest(batch, from_offset=5)) == (5, 777)


@pytest.mark.parametrize("piece_bytes", [1, 3, 50, 1000])
def test_where_pieces_of_the_unpacked_records_end_makes_no_difference(
    piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(record_stream, "_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(record_stream, "STEP_RECORDS", 4)
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    for _ in range(20):
        records = [
            RecordData(
                draw.choice([None, b"", b"key"]),
                draw.choice([None, draw.randbytes(draw.choice([0, 1, 60, 64, 300]))]),
                draw.choice([(), (("name", None),), (("a", b"1" * 70), ("b", b""))]),
                10**12 + draw.choice([draw.randrange(200), draw.randrange(10**9)]),
            )
            for _ in range(draw.randint(1, 30))
        ]
        batch = build(records, timestamp_ms=0, base_offset=draw.choice([0, 2**40]), compression=draw.choice(CODECS))
        read = [(one.offset, one.timestamp) for one in record_batch.records(batch)]
        for timestamp in (0, read[0][1], read[-1][1], 10**12 + 100):
            expected = next((one for one in read if one[1] >= timestamp), None)
            assert finished(first_at_or_after(batch, timestamp)) == expected, f"seed {seed}"
        from_offset = draw.choice(read)[0]
        remaining = [one for one in read if one[0] >= from_offset]
        assert finished(latest(batch, from_offset)) == max(remaining, key=lambda one: (one[1], -one[0])), f"seed {seed}"
        assert problem_of(batch) is None, f"seed {seed}"


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_far_above_64_mib_is_walked_in_a_few_mebibytes_of_memory(codec: int) -> None:
    batch = build([RecordData(b"k", bytes(70 * MIB)), RecordData(b"k", b"", (), 9)], timestamp_ms=5, compression=codec)
    tracemalloc.start()
    try:
        assert finished(first_at_or_after(batch, 6)) == (1, 9)
        assert finished(latest(batch)) == (1, 9)
        assert problem_of(batch) is None
        packed = 2 * len(batch)
        assert tracemalloc.get_traced_memory()[1] < packed + 8 * MIB
    finally:
        tracemalloc.stop()


def test_a_step_walks_a_limited_number_of_records_and_none_behind_the_one_that_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 10 * STEP_RECORDS
    batch = timed_batch(*range(count), compression=4)
    walked: list[int] = []
    walk = record_stream._whole_beginnings

    def counting(*arguments: object) -> list[tuple[int, int]]:
        found = walk(*arguments)  # type: ignore[arg-type]
        walked.append(len(found))
        return found

    monkeypatch.setattr(record_stream, "_whole_beginnings", counting)
    steps = first_at_or_after(batch, count - 1)
    for _ in steps:
        assert sum(walked) <= STEP_RECORDS
        walked.clear()
    assert finished(first_at_or_after(batch, 5)) == (5, 5)
    assert sum(walked) <= 2 * STEP_RECORDS
    walked.clear()
    early = with_header(timed_batch(*range(count, 0, -1)), base_offset=0)
    assert finished(latest(early)) == (0, count)
    assert sum(walked) <= STEP_RECORDS


def test_a_small_batch_takes_one_step_and_a_large_record_one_for_each_piece_at_most() -> None:
    assert list(first_at_or_after(timed_batch(1, 2, 3, compression=4), 3)) == []
    large = build([RecordData(None, bytes(8 * MIB)), RecordData(None, b"", (), 9)], timestamp_ms=5, compression=4)
    assert 8 <= len(list(first_at_or_after(large, 6))) <= 12


def damaged_batches() -> dict[str, bytes]:
    batch = batch_of(b"one" * 20, b"two" * 20)
    packed = batch_of(b"one" * 20, b"two" * 20, compression=1)
    body = bytearray(batch)
    body[HEADER_BYTES] = 2  # the length of the first record
    headers = bytearray(batch_of(b"v"))
    headers[-1] = 0x7E  # 63 headers in a record of a few bytes
    negative = bytearray(batch_of(b"v"))
    negative[-1] = 1
    return {
        "more records counted than there are": with_header(batch, record_count=1000, last_offset_delta=999),
        "as many as a header can count": with_header(packed, record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        "fewer records counted than there are": with_header(batch, record_count=1, last_offset_delta=0),
        "fewer than none": with_header(batch, record_count=-1),
        "no records counted": with_header(batch, record_count=0),
        "a record that ends too early": with_header(bytes(body)),
        "records of zeros": with_header(batch[:HEADER_BYTES] + bytes(len(batch) - HEADER_BYTES)),
        "compressed bytes that are none": with_header(packed[:HEADER_BYTES] + bytes(len(packed) - HEADER_BYTES)),
        "more headers than bytes": with_header(bytes(headers)),
        "fewer headers than none": with_header(bytes(negative)),
        "another codec than there is": with_header(batch, attributes=6),
        "no records at all": with_header(batch[:HEADER_BYTES], batch_length=HEADER_BYTES - 12),
        "a cut record": with_header(batch[:-5], batch_length=len(batch) - 17),
        "another checksum": with_header(batch, crc=1),
        "the older format": with_header(batch, magic=1),
        "a batch and a half": batch + batch[:80],
        "half a header": batch[:40],
    }


@pytest.mark.parametrize("damage", damaged_batches())
def test_what_keeps_a_consumer_from_reading_a_batch_is_named(damage: str) -> None:
    assert problem_of(damaged_batches()[damage])


def test_what_kafka_takes_is_no_problem() -> None:
    batch = batch_of(b"one", b"two", b"three")
    assert problem_of(with_header(batch, last_offset_delta=9)) is None
    assert problem_of(with_header(batch, max_timestamp=2**40)) is None
    assert problem_of(with_header(batch[:HEADER_BYTES], batch_length=HEADER_BYTES - 12, record_count=0)) is None
    control = build([RecordData(struct.pack(">hh", 0, 1), bytes(6))], timestamp_ms=3)
    assert problem_of(with_header(control, attributes=0x20)) is None


@pytest.mark.parametrize("damage", ["more records counted than there are", "records of zeros", "a cut record"])
def test_a_lookup_that_finds_nothing_before_the_damage_says_so(damage: str) -> None:
    batch = with_header(damaged_batches()[damage], max_timestamp=2**60)
    for look in (lambda: first_at_or_after(batch, 2**59), lambda: latest(batch)):
        with pytest.raises(CorruptBatchError):
            finished(look())
    with pytest.raises(UnsupportedCompressionError):
        finished(latest(damaged_batches()["another codec than there is"]))

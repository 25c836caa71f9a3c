"""Record batches become the rows that kafka-python reads from them, whatever is in them, or an error."""

from __future__ import annotations

import random
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import CorruptBatchError, RecordData
from diskless_spark.source.decoding import Place, PlainBatch, decode, plain_batch
from tests.support.batches import with_header

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
PLACE = Place("orders", 3)
EVERYTHING = 2**63 - 1

payloads = st.none() | st.binary(max_size=200) | st.integers(0, 20_000).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=10), payloads), max_size=3).map(tuple)
# Timestamps that Spark can show; deltas take one byte to six.
timestamps = st.integers(0, 4_000_000_000_000)
records = st.builds(RecordData, payloads, payloads, headers, timestamps)
some_records = st.lists(records, min_size=1, max_size=20)
alike = st.builds(lambda record, count: [record] * count, records, st.integers(1, 300))


def read(batch: bytes, start: int = 0, end: int = EVERYTHING, place: Place = PLACE) -> PlainBatch:
    return plain_batch(place, start, end, record_batch.read_header(batch), memoryview(batch))


def rows(*batches: PlainBatch, schema: pa.Schema = SCHEMA) -> list[dict]:
    return decode(batches, schema).to_pylist()


def expected(batch: bytes, place: Place = PLACE) -> list[dict]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": place.topic,
            "partition": place.partition,
            "offset": record.offset,
            "timestamp": pa.scalar(record.timestamp * 1000, SCHEMA.field("timestamp").type).as_py(),
            "timestampType": int(record_batch.read_header(batch).is_log_append_time),
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for record in record_batch.records(batch)
    ]


@given(batches=st.lists(some_records | alike, min_size=1, max_size=4), codec=st.integers(0, 4))
@settings(deadline=None)
def test_rows_are_the_records_as_another_decoder_reads_them(batches, codec):
    built = [
        record_batch.build(batch, timestamp_ms=0, base_offset=1_000 * number, compression=codec)
        for number, batch in enumerate(batches)
    ]
    assert rows(*map(read, built)) == [row for batch in built for row in expected(batch)]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 129, 9_000])
@pytest.mark.parametrize("spread", [0, 1, 50], ids="bytes that sizes differ by: {}".format)
def test_large_batches(count, spread):
    sizes = random.Random(count)
    data = [RecordData(b"k", bytes(100 + sizes.randint(0, spread)), (), 5_000 + n) for n in range(count)]
    batch = record_batch.build(data, timestamp_ms=0)
    assert rows(read(batch)) == expected(batch)


def test_records_of_more_than_16_kib_between_small_ones():
    data = [RecordData(None, bytes(size)) for size in (1, 8_000, 20_000, 3, 3_000_000, 3, 3)]
    batch = record_batch.build(data, timestamp_ms=7)
    assert rows(read(batch)) == expected(batch)


def test_places_are_told_apart():
    batch = record_batch.build([RecordData(None, b"a"), RecordData(None, b"b")], timestamp_ms=1)
    found = rows(read(batch), read(batch, place=Place("bills", 0)))
    assert [(row["topic"], row["partition"]) for row in found] == [("orders", 3)] * 2 + [("bills", 0)] * 2


def test_only_the_wanted_offsets_become_rows():
    batch = record_batch.build([RecordData(None, b"%d" % n) for n in range(10)], timestamp_ms=1, base_offset=100)
    found = rows(read(batch, 103, 105), read(batch, 109, 300))
    assert [row["offset"] for row in found] == [103, 104, 109]


def test_only_the_columns_asked_for_in_their_order():
    batch = record_batch.build([RecordData(b"k", b"v")], timestamp_ms=1, base_offset=5)
    schema = pa.schema([SCHEMA.field("offset"), SCHEMA.field("key")])
    assert list(rows(read(batch), schema=schema)[0].items()) == [("offset", 5), ("key", b"k")]


def test_with_log_append_time_all_records_have_the_time_of_the_commit():
    batch = bytearray(record_batch.build([RecordData(None, b"a", (), n) for n in (3, 9)], timestamp_ms=0))
    record_batch.patch_log_append_time(batch, 0, 77)
    found = rows(read(bytes(batch)))
    assert [(row["timestamp"].microsecond, row["timestampType"]) for row in found] == [(77_000, 1)] * 2
    assert found == expected(bytes(batch))


def test_a_header_whose_key_is_no_text_has_a_replacement_in_it():
    batch = record_batch.build([RecordData(None, b"a", (("ab", b"x"),))], timestamp_ms=0).replace(b"ab", b"a\xff")
    assert rows(read(batch))[0]["headers"] == [{"key": "a\N{REPLACEMENT CHARACTER}", "value": b"x"}]


def test_gaps_between_offsets_as_compaction_by_key_leaves_them():
    whole = record_batch.build([RecordData(None, b"v") for _ in range(3)], timestamp_ms=0)
    body = whole[record_batch.HEADER_BYTES :]
    size = len(body) // 3
    batch = whole[: record_batch.HEADER_BYTES] + body[:size] + body[2 * size :]
    batch = with_header(batch, batch_length=len(batch) - record_batch.LENGTH_PREFIX_BYTES, record_count=2)
    assert [row["offset"] for row in rows(read(batch))] == [0, 2]


damages = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), min_size=1, max_size=3)
few_records = st.lists(
    st.builds(
        RecordData, st.none() | st.just(b"k"), st.integers(0, 70).map(bytes), st.just((("h", b"x"),)), st.just(1)
    ),
    min_size=1,
    max_size=30,
)


def damaged(records: list[RecordData], damage: list[tuple[int, int]]) -> bytes:
    batch = bytearray(record_batch.build(records, timestamp_ms=0))
    for at, value in damage:
        batch[record_batch.HEADER_BYTES + at % (len(batch) - record_batch.HEADER_BYTES)] = value
    return bytes(batch)


@given(few_records, damages)
@settings(deadline=None)
def test_damaged_records_give_rows_or_a_clear_error(records, damage):
    schema = pa.schema([field for field in SCHEMA if field.name != "timestamp"])
    with suppress(CorruptBatchError):
        assert len(rows(read(damaged(records, damage)), schema=schema)) <= len(records)


@given(few_records, damages)
@settings(deadline=None)
def test_damaged_records_that_two_decoders_can_read_are_the_same_to_both(records, damage):
    # the other one reads attributes as a number of any size, this one as a byte
    batch = damaged(records, [(at, value & 0x7F) for at, value in damage])
    schema = pa.schema([SCHEMA.field(name) for name in ("offset", "key", "value")])
    with suppress(CorruptBatchError):
        found = [tuple(row.values()) for row in rows(read(batch), schema=schema)]
        assert found == [(one.offset, one.key, one.value) for one in record_batch.records(batch)]


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 1_000_000])
def test_another_number_of_records_than_the_header_says(count):
    batch = record_batch.build([RecordData(None, b"a")] * 2, timestamp_ms=0)
    with pytest.raises(CorruptBatchError, match="offset 0"):
        rows(read(with_header(batch, record_count=count)))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_cannot_be_decompressed(codec):
    batch = record_batch.build([RecordData(None, bytes(1_000))], timestamp_ms=0, compression=codec)
    with pytest.raises(CorruptBatchError):
        rows(read(batch[:-20] + bytes(20)))


def test_another_format_of_batches():
    batch = record_batch.build([RecordData(None, b"a")], timestamp_ms=0)
    with pytest.raises(CorruptBatchError, match="magic 1"):
        read(with_header(batch, magic=1))


def test_a_timestamp_that_spark_has_no_number_for():
    batch = record_batch.build([RecordData(None, b"a", (), 2**62)], timestamp_ms=0)
    with pytest.raises(CorruptBatchError, match="timestamp"):
        rows(read(batch))

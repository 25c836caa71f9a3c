"""Record batches: read in place, patched, built, and corrupt ones told apart."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import (
    CONTROL_MASK,
    HEADER_BYTES,
    CorruptBatchError,
    RecordData,
    UnsupportedCompressionError,
    build,
    crc_is_valid,
    patch_base_offset,
    patch_log_append_time,
    read_header,
    walk,
)

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def batch_at(*timestamps: int, base_offset: int = 0, compression: int = 0, value: bytes = b"v" * 100) -> bytes:
    data = [RecordData(b"k", value, (), timestamp) for timestamp in timestamps]
    return build(data, timestamp_ms=0, base_offset=base_offset, compression=compression)


def test_a_header_is_read_as_kafka_python_reads_it() -> None:
    batch = build(
        [RecordData(b"k", b"v"), RecordData(None, None)],
        timestamp_ms=1000,
        base_offset=70,
        producer_id=2**40,
        producer_epoch=3,
        base_sequence=11,
    )
    header = read_header(b"xx" + batch, 2)
    stock = DefaultRecordBatch(batch)
    assert header == stock._header_data
    assert (header.size, header.last_offset, header.compression) == (len(batch), 71, 0)
    assert (header.is_control, header.is_transactional, header.is_log_append_time) == (False, False, False)
    assert stock.validate_crc()
    assert crc_is_valid(b"xx" + batch, 2, header)


def test_attributes_are_read_bit_by_bit() -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=4,
        is_transactional=True,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        batch_size=999,
    )
    builder.append(0, 5, None, b"0" * 200, [])
    header = read_header(builder.build())
    assert (header.compression, header.is_transactional, header.is_control) == (4, True, False)


@pytest.mark.parametrize("codec", CODECS)
def test_built_records_are_read_back_through_every_codec(codec: str) -> None:
    data = [
        RecordData(b"key", b"value" * 100),
        RecordData(None, b"", (("h", b"1"), ("h", None), ("日", b"")), 17),
        RecordData(b"", None),
    ]
    batch = build(data, timestamp_ms=5, base_offset=1000, compression=CODECS[codec])
    assert read_header(batch).compression == CODECS[codec]
    assert list(record_batch.records(memoryview(batch))) == [
        (1000, 5, b"key", b"value" * 100, ()),
        (1001, 17, None, b"", (("h", b"1"), ("h", None), ("日", b""))),
        (1002, 5, b"", None, ()),
    ]


def test_a_batch_without_records_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build([], timestamp_ms=0)


def test_a_codec_that_does_not_exist_is_named_as_unsupported() -> None:
    with pytest.raises(UnsupportedCompressionError):
        build([RecordData(None, b"v" * 1000)], timestamp_ms=0, compression=5)
    batch = bytearray(batch_at(1))
    batch[22] |= 6
    with pytest.raises(UnsupportedCompressionError):
        list(record_batch.records(batch))


def test_walking_yields_position_and_header_of_each_batch() -> None:
    batches = [batch_at(1, base_offset=5), batch_at(1, 2, base_offset=6), batch_at(1, base_offset=8)]
    joined = b"".join(batches)
    found = [(pos, header.base_offset, header.record_count) for pos, header in walk(joined)]
    second = len(batches[0])
    assert found == [(0, 5, 1), (second, 6, 2), (second + len(batches[1]), 8, 1)]
    assert [pos for pos, _ in walk(joined, second, second + len(batches[1]))] == [second]
    assert list(walk(b"")) == []


@pytest.mark.parametrize("missing", [1, 50, 150])
def test_walking_yields_the_whole_batches_before_a_torn_one(missing: int) -> None:
    joined = batch_at(1) * 2
    walker = walk(memoryview(joined), 0, len(joined) - missing)
    next(walker)
    with pytest.raises(CorruptBatchError):
        next(walker)


@pytest.mark.parametrize("claimed", [-1, 0, -(2**31), 2**31 - 1, HEADER_BYTES - 13, 1000])
def test_a_length_that_cannot_be_is_corrupt(claimed: int) -> None:
    batch = bytearray(batch_at(1))
    struct.pack_into(">i", batch, 8, claimed)
    with pytest.raises(CorruptBatchError):
        read_header(batch)
    with pytest.raises(CorruptBatchError):
        list(walk(batch))


def test_each_damaged_byte_behind_the_crc_is_noticed() -> None:
    batch = batch_at(1, 2, 3)
    for at in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[at] ^= 0x10
        assert not crc_is_valid(damaged, 0, read_header(damaged))


def test_patching_offset_and_leader_epoch_leaves_the_crc_valid() -> None:
    buffer = bytearray(b"pad" + batch_at(1, 2))
    patch_base_offset(memoryview(buffer), 3, 2**50, leader_epoch=9)
    header = read_header(buffer, 3)
    assert (header.base_offset, header.partition_leader_epoch) == (2**50, 9)
    assert crc_is_valid(buffer, 3, header)


@pytest.mark.parametrize("codec", CODECS)
def test_patching_the_log_append_time_gives_every_record_that_time_and_a_valid_crc(codec: str) -> None:
    buffer = bytearray(b"pad" + batch_at(10, 30, 20, base_offset=4, compression=CODECS[codec]) + b"more")
    patch_log_append_time(buffer, 3, 777)
    batch = buffer[3:-4]
    header = read_header(batch)
    assert (header.is_log_append_time, header.max_timestamp, header.base_timestamp) == (True, 777, 10)
    assert header.crc == crc32c(bytes(batch[21:]))
    assert [record.timestamp for record in record_batch.records(batch)] == [777, 777, 777]


def test_control_batches_are_read_too() -> None:
    batch = bytearray(build([RecordData(struct.pack(">hh", 0, 1), b"\0" * 6)], timestamp_ms=3, base_offset=8))
    struct.pack_into(">h", batch, 21, CONTROL_MASK)
    assert read_header(batch).is_control
    assert [(record.offset, record.key) for record in record_batch.records(batch)] == [(8, b"\0\0\0\1")]
    struct.pack_into(">b", batch, 61 + 4, -1)  # the length of the key, a zigzag varint
    with pytest.raises(CorruptBatchError):
        list(record_batch.records(batch))


def damaged_batches() -> dict[str, Any]:
    batch = batch_at(1, 2)
    compressed = batch_at(1, 2, compression=1)
    more_records = bytearray(batch)
    struct.pack_into(">i", more_records, 57, 2**31 - 1)
    fewer_records = bytearray(batch)
    struct.pack_into(">i", fewer_records, 57, 1)
    magic_1 = bytearray(batch)
    magic_1[16] = 1
    return {
        "more records counted than there are": more_records,
        "fewer records counted than there are": fewer_records,
        "a record that ends too early": batch[:62] + b"\x02" + batch[63:],
        "compressed bytes that are none": compressed[:HEADER_BYTES] + b"\0" * (len(compressed) - HEADER_BYTES),
        "the older format": magic_1,
        "a batch and a half": batch + batch[:80],
    }


@pytest.mark.parametrize("damage", damaged_batches())
def test_records_of_a_damaged_batch_are_an_error(damage: str) -> None:
    with pytest.raises(CorruptBatchError):
        list(record_batch.records(damaged_batches()[damage]))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_damaged_compressed_data_is_corrupt_whatever_its_codec_says(codec: str) -> None:
    batch = batch_at(1, 2, compression=CODECS[codec])
    for damaged in (batch[:HEADER_BYTES] + b"\xff" * (len(batch) - HEADER_BYTES), _shortened(batch)):
        with pytest.raises(CorruptBatchError):
            list(record_batch.records(damaged))


def _shortened(batch: bytes) -> bytes:
    shorter = bytearray(batch[:-10])
    struct.pack_into(">i", shorter, 8, len(shorter) - 12)
    return bytes(shorter)

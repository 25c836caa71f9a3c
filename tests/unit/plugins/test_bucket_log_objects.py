"""The objects of the bucket log: what is written is read back, and what is damaged or swapped is named."""

from __future__ import annotations

import pytest

from diskless_bucket_log.objects import (
    HEADER_BYTES,
    MAX_ENTRY_BYTES,
    MAX_OBJECT_BYTES,
    NO_DIGEST,
    DamagedObjectError,
    LogStart,
    Names,
    encode_entry,
    encode_start,
    read_entry,
    read_entry_header,
    read_start,
)
from diskless_core.plugin.shard import ShardId
from diskless_core.testing.coordinator_log_tools import batch_of

SHARD = ShardId("__diskless_metadata", 3)
NAMES = Names("wal-log", SHARD)
OTHER = Names("wal-log", ShardId("__diskless_metadata", 4))
NONCE = bytes(range(16))
BATCHES = [batch_of(b"a", b"b"), batch_of(b"c")]
HEADER, DATA = encode_entry(SHARD, 7, 100, NONCE, NO_DIGEST, BATCHES)


def test_an_entry_is_read_as_it_was_written_with_its_offsets() -> None:
    found = read_entry(NAMES, 7, memoryview(DATA))
    assert found.header == HEADER
    assert [(batch.offset, batch.next_offset, batch.data) for batch in found.batches] == [
        (100, 102, BATCHES[0]),
        (102, 103, BATCHES[1]),
    ]
    assert read_entry_header(NAMES, 7, DATA[:HEADER_BYTES]) == HEADER
    assert (HEADER.base_offset, HEADER.next_offset) == (100, 103)


def test_numbers_are_listed_and_other_keys_of_a_shard_are_not_taken_for_them() -> None:
    assert NAMES.number_of(NAMES.entry(12)) == 12
    for key in (NAMES.start, NAMES.lease, OTHER.entry(12), NAMES.entry(12) + "0", NAMES.folder):
        assert NAMES.number_of(key) is None


@pytest.mark.parametrize("size", range(0, len(DATA), 7))
def test_an_object_that_was_cut_short_is_named(size: int) -> None:
    with pytest.raises(DamagedObjectError, match=NAMES.entry(7)):
        read_entry(NAMES, 7, DATA[:size])


@pytest.mark.parametrize("position", range(0, len(DATA), 5))
def test_an_object_with_a_changed_byte_is_named(position: int) -> None:
    changed = bytearray(DATA)
    changed[position] ^= 1
    with pytest.raises(DamagedObjectError, match=NAMES.entry(7)):
        read_entry(NAMES, 7, changed)


@pytest.mark.parametrize(("names", "number"), [(NAMES, 8), (OTHER, 7)])
def test_an_object_in_the_place_of_another_one_is_named(names: Names, number: int) -> None:
    with pytest.raises(DamagedObjectError, match="wrong place"):
        read_entry(names, number, DATA)
    with pytest.raises(DamagedObjectError, match="wrong place"):
        read_entry_header(names, number, DATA)


def test_an_object_of_a_later_version_says_that_the_broker_has_to_be_upgraded() -> None:
    later = bytearray(DATA)
    later[9] = 2
    with pytest.raises(DamagedObjectError, match="upgrade"):
        read_entry(NAMES, 7, later)


def test_the_largest_entry_fits_into_one_object() -> None:
    room = MAX_ENTRY_BYTES - len(batch_of(b"")) - 8
    _, data = encode_entry(SHARD, 0, 0, NONCE, NO_DIGEST, [batch_of(bytes(room))])
    assert len(data) <= MAX_OBJECT_BYTES


def test_a_log_start_is_read_as_it_was_written_and_refused_when_damaged() -> None:
    start = LogStart(number=9, offset=1234, predecessor=HEADER.digest)
    data = encode_start(SHARD, start, NONCE)
    assert read_start(NAMES, memoryview(data)) == start
    for damaged in (data[:-1], data + b"x", data[:20] + b"\xff" + data[21:], b"", DATA):
        with pytest.raises(DamagedObjectError, match=NAMES.start):
            read_start(NAMES, damaged)
    with pytest.raises(DamagedObjectError, match="wrong place"):
        read_start(OTHER, data)
    assert encode_start(SHARD, start, bytes(16)) != data, "a version made of the bytes would come back"

"""Lookups in Kafka's indexes, and the small files beside a segment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.log import leader_epochs, offset_index, producer_snapshot, time_index
from diskless_core.log.leader_epochs import CorruptCheckpointError
from diskless_core.log.offset_index import CorruptIndexError, OffsetPosition
from diskless_core.log.producer_snapshot import CorruptSnapshotError, ProducerEntry
from diskless_core.log.segment_indexer import MAX_OFFSETS, SegmentFullError, SegmentIndexer
from diskless_core.log.time_index import TimestampOffset
from diskless_core.protocol import record_batch
from tests.support.batches import NOW_MS, batch_of
from tests.support.segments import random_segment

BASE = 2**33
ascending = st.lists(st.integers(0, 10_000), unique=True, max_size=40).map(sorted)


def header_at(offset: int, *, timestamp_ms: int = NOW_MS, **fields: int) -> record_batch.BatchHeader:
    batch = bytearray(batch_of(b"v", timestamp_ms=timestamp_ms, **fields))
    record_batch.patch_base_offset(batch, 0, offset)
    return record_batch.read_header(batch)


@given(ascending, st.integers(-1, 10_001))
def test_an_offset_lookup_finds_the_last_entry_at_or_before_the_offset(offsets, target):
    index = b"".join(offset_index.pack(BASE + one, one * 2, BASE) for one in offsets)
    earlier = [one for one in offsets if one <= target]
    expected = OffsetPosition(BASE + earlier[-1], earlier[-1] * 2) if earlier else OffsetPosition(BASE, 0)
    assert offset_index.lookup(index, BASE, BASE + target) == expected
    assert [one.offset - BASE for one in offset_index.entries(index, BASE)] == offsets


@given(ascending, st.integers(-1, 10_001))
def test_a_time_lookup_finds_the_last_entry_at_or_before_the_timestamp(times, target):
    index = b"".join(time_index.pack(one, BASE + one * 2, BASE) for one in times)
    earlier = [one for one in times if one <= target]
    expected = TimestampOffset(earlier[-1], BASE + earlier[-1] * 2) if earlier else TimestampOffset(-1, BASE)
    assert time_index.lookup(index, BASE, target) == expected
    assert [one.timestamp for one in time_index.entries(index, BASE)] == times


@pytest.mark.parametrize("module", [offset_index, time_index])
def test_an_index_with_half_an_entry_is_corrupt(module):
    for read in (lambda data: module.lookup(data, 0, 5), lambda data: module.entries(data, 0)):
        with pytest.raises(CorruptIndexError, match="does not consist of"):
            read(bytes(module.ENTRY_BYTES + 1))


@pytest.mark.parametrize("seed", range(5))
def test_whoever_reads_from_where_the_indexes_say_meets_every_batch_looked_for(seed):
    segment = random_segment(seed)
    indexes = segment.indexer.finish()
    batches = list(record_batch.walk(segment.data))
    for position, header in batches:
        found = offset_index.lookup(indexes.offset_index, segment.base_offset, header.base_offset)
        assert found.position <= position
    for wanted in range(NOW_MS - 1001, NOW_MS + 1, 50):
        first = next((header for _, header in batches if header.max_timestamp >= wanted), None)
        if first is not None:
            found = time_index.lookup(indexes.time_index, segment.base_offset, wanted - 1)
            assert found.offset <= first.last_offset
    assert indexes.max_timestamp == max(header.max_timestamp for _, header in batches)
    assert (indexes.end_offset, indexes.size_bytes) == (batches[-1][1].last_offset, len(segment.data))


def test_a_batch_too_far_from_the_segments_first_begins_another_one():
    indexer = SegmentIndexer(BASE)
    indexer.add(header_at(BASE + MAX_OFFSETS))
    with pytest.raises(SegmentFullError):
        indexer.add(header_at(BASE + MAX_OFFSETS + 1))


def test_batches_out_of_order_are_refused():
    indexer = SegmentIndexer(BASE)
    indexer.add(header_at(BASE + 5))
    with pytest.raises(ValueError, match="comes after"):
        indexer.add(header_at(BASE + 5))


def test_a_segment_whose_batches_have_no_timestamps_has_an_empty_time_index():
    indexer = SegmentIndexer(BASE)
    indexer.add(header_at(BASE, max_timestamp=-1))
    indexes = indexer.finish()
    assert (indexes.time_index, indexes.max_timestamp) == (b"", -1)


# --- producers ----------------------------------------------------------------------------------------------------


def test_ranges_folded_apart_and_merged_are_what_all_is_folded_at_once():
    headers = [
        header_at(offset, producer_id=offset % 3, producer_epoch=0, base_sequence=offset, timestamp_ms=NOW_MS + offset)
        for offset in range(20)
    ]
    whole: producer_snapshot.ProducerState = {}
    parts: list[producer_snapshot.ProducerState] = [{}, {}]
    for header in headers:
        producer_snapshot.note(whole, header)
        producer_snapshot.note(parts[header.base_offset >= 11], header)
    assert producer_snapshot.merge(*parts) == whole
    assert producer_snapshot.decode(producer_snapshot.encode(whole.values())) == whole
    assert set(producer_snapshot.without_expired(whole, NOW_MS + 20, 3)) == {18 % 3, 19 % 3}


def test_a_sequence_wraps_inside_a_batch():
    state: producer_snapshot.ProducerState = {}
    batch = batch_of(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=2**31 - 1)
    producer_snapshot.note(state, record_batch.read_header(batch))
    assert (state[1].last_sequence, state[1].offset_delta) == (0, 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:5],
        lambda data: data[:-1] + b"\x01",
        lambda data: b"\x00\x02" + data[2:],
        lambda data: data + bytes(46),
    ],
)
def test_a_damaged_producer_snapshot_is_refused(damage):
    entry = ProducerEntry(1, 0, 7, 100, 3, NOW_MS)
    with pytest.raises(CorruptSnapshotError):
        producer_snapshot.decode(damage(producer_snapshot.encode([entry])))


# --- leader epochs ------------------------------------------------------------------------------------------------


def test_a_leader_epoch_checkpoint_reads_as_kafka_writes_it():
    assert leader_epochs.encode({1: 20, 0: 5}) == b"0\n2\n0 5\n1 20\n"
    assert leader_epochs.decode(b"0\n2\n0 5\n1 20\n") == {0: 5, 1: 20}


@pytest.mark.parametrize("data", [b"", b"0\n", b"1\n0\n", b"0\n2\n0 5\n", b"0\n1\n0\n", b"0\n1\n0 x\n", b"\xff"])
def test_a_malformed_leader_epoch_checkpoint_is_refused(data):
    with pytest.raises(CorruptCheckpointError):
        leader_epochs.decode(data)

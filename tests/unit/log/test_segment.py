"""Segment files: names, the sparse index, what counts as an intact batch, and and what counts as a torn end."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.log.segment import (
    CorruptSegmentError,
    SparseIndex,
    base_offset_of,
    file_name,
    intact_batches,
    recover_tail,
    require_whole_batch,
    whole_batch_size,
)
from diskless_core.log.torn_write import SECTOR_BYTES
from diskless_core.protocol.record_batch import CorruptBatchError, RecordData, build, patch_base_offset


def batch_at(offset: int, *values: bytes) -> bytes:
    batch = bytearray(build([RecordData(None, value) for value in values], timestamp_ms=0))
    patch_base_offset(batch, 0, offset)
    return bytes(batch)


BATCHES = [batch_at(10, b"a", b"b"), batch_at(12, b"c"), batch_at(13, b"d" * 100, b"e", b"f"), batch_at(16, b"g")]
SEGMENT = b"".join(BATCHES)
STARTS = [0, len(BATCHES[0]), len(BATCHES[0] + BATCHES[1]), len(BATCHES[0] + BATCHES[1] + BATCHES[2])]


def damaged(position: int, with_bytes: bytes = b"\xff") -> bytes:
    return SEGMENT[:position] + with_bytes + SEGMENT[position + len(with_bytes) :]


def test_a_segment_is_named_after_its_base_offset_in_20_digits() -> None:
    assert file_name(1234) == "00000000000000001234.log"
    assert base_offset_of("00000000000000001234.log") == 1234


@pytest.mark.parametrize("name", ["1234.log", "00000000000000001234.index", "0000000000000000-234.log", ".lock", ""])
def test_other_files_are_no_segments(name: str) -> None:
    assert base_offset_of(name) is None


def test_the_sparse_index_finds_the_last_noted_batch_not_behind_an_offset() -> None:
    index = SparseIndex(interval_bytes=100)
    for offset, position in [(10, 0), (12, 60), (20, 120), (25, 200), (30, 230)]:
        index.add(offset, position)
    assert index.floor(9) is None
    assert [index.floor(offset) for offset in (10, 19, 20, 29, 1000)] == [
        (10, 0),
        (10, 0),
        (20, 120),
        (20, 120),
        (30, 230),
    ]


def test_a_whole_batch_is_accepted_and_its_header_returned() -> None:
    assert require_whole_batch(BATCHES[2]).record_count == 3


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(BATCHES[0][:-1], id="truncated"),
        pytest.param(BATCHES[0] + b"\x00", id="a byte too many"),
        pytest.param(BATCHES[0][:16] + b"\x01" + BATCHES[0][17:], id="magic 1"),
        pytest.param(BATCHES[0][:-1] + b"\xff", id="wrong CRC"),
        pytest.param(b"", id="empty"),
    ],
)
def test_what_is_not_one_intact_batch_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        require_whole_batch(data)


def test_a_batch_whose_record_count_and_last_delta_differ_is_refused() -> None:
    batch = bytearray(BATCHES[0])
    struct.pack_into(">i", batch, 23, 5)
    with pytest.raises(CorruptBatchError, match="last offset delta of 5"):
        require_whole_batch(batch)


def test_the_size_of_a_batch_is_known_from_its_first_12_bytes() -> None:
    assert whole_batch_size(BATCHES[2][:12], 0) == len(BATCHES[2])
    assert whole_batch_size(BATCHES[2][:11], 0) is None


def test_batches_are_walked_with_positions_and_offsets() -> None:
    found = [(position, header.base_offset) for position, header in intact_batches(SEGMENT, 0, 10, gapless=True)]
    assert found == list(zip(STARTS, [10, 12, 13, 16], strict=True))


def test_gaps_are_allowed_unless_the_log_is_gapless_and_offsets_never_go_back() -> None:
    with_gap = batch_at(0, b"a") + batch_at(5, b"b")
    assert len(list(intact_batches(with_gap, 0, 0))) == 2
    assert len(list(intact_batches(with_gap, 0, 0, gapless=True))) == 1
    going_back = batch_at(5, b"a") + batch_at(5, b"b")
    assert len(list(intact_batches(going_back, 0, 5))) == 1


def test_an_intact_segment_is_kept_whole() -> None:
    recovered = recover_tail(SEGMENT, 10)
    assert (recovered.valid_bytes, recovered.next_offset) == (len(SEGMENT), 17)
    assert recovered.index.floor(16) == (10, 0)


def test_an_empty_segment_begins_at_its_base_offset() -> None:
    recovered = recover_tail(b"", 10)
    assert (recovered.valid_bytes, recovered.next_offset) == (0, 10)


@pytest.mark.parametrize("cut", range(len(SEGMENT)))
def test_a_segment_torn_at_any_byte_keeps_the_batches_before(cut: int) -> None:
    recovered = recover_tail(SEGMENT[:cut], 10)
    whole = sum(1 for start, batch in zip(STARTS, BATCHES, strict=True) if start + len(batch) <= cut)
    assert recovered.valid_bytes == [*STARTS, len(SEGMENT)][whole]
    assert recovered.next_offset == [10, 12, 13, 16, 17][whole]


@given(zeros=st.integers(0, 5000))
@settings(max_examples=50)
def test_zeros_after_the_last_batch_are_cut(zeros: int) -> None:
    recovered = recover_tail(SEGMENT + bytes(zeros), 10)
    assert (recovered.valid_bytes, recovered.next_offset) == (len(SEGMENT), 17)


@given(garbage=st.binary(min_size=1, max_size=300).filter(any), zeros=st.integers(0, 5000))
@settings(max_examples=50)
def test_bytes_that_no_write_put_there_are_damage(garbage: bytes, zeros: int) -> None:
    with pytest.raises(CorruptSegmentError):
        recover_tail(SEGMENT + b"\xff" + garbage + bytes(zeros), 10)


@pytest.mark.parametrize("at", [3, 7, 9, 11, 16, 17, 30, 60, 68])
def test_a_bad_batch_before_an_intact_one_is_no_torn_write(at: int) -> None:
    with pytest.raises(CorruptSegmentError) as caught:
        recover_tail(damaged(STARTS[1] + at), 10)
    assert caught.value.position == STARTS[1]
    assert caught.value.expected_offset == 12


@pytest.mark.parametrize("leader_epoch", [0, 7_000, -1])
def test_damage_is_found_whatever_the_leader_epoch_of_the_batch_after_it(leader_epoch: int) -> None:
    following = bytearray(BATCHES[2])
    patch_base_offset(following, 0, 13, leader_epoch)
    hole = bytes(len(BATCHES[1]))
    with pytest.raises(CorruptSegmentError, match="before the intact batch of offset 13"):
        recover_tail(BATCHES[0] + hole + bytes(following), 10)


def test_a_missing_batch_between_intact_ones_is_corruption_of_a_gapless_log() -> None:
    with pytest.raises(CorruptSegmentError):
        recover_tail(BATCHES[0] + BATCHES[2], 10)


def test_a_segment_that_lacks_what_was_durable_is_damaged() -> None:
    assert recover_tail(SEGMENT[: STARTS[3]], 10, synced_offset=16).next_offset == 16
    for cut in (STARTS[3], STARTS[3] + 30, len(SEGMENT) - 1):
        with pytest.raises(CorruptSegmentError, match="everything below offset 17 was durable"):
            recover_tail(SEGMENT[:cut], 10, synced_offset=17)


# -- writes that were interrupted, and damage -------------------------------------------------------------------------


VALUES = st.one_of(
    st.binary(max_size=700), st.integers(0, 2000).map(bytes), st.integers(0, 2000).map(lambda size: b"\x07" * size)
)
WRITES = st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=4)
"""What each of some writes appends, a batch for each value. Values of zeros, and of none, are among them."""


class Log:
    """The segment that some writes make: its bytes, where its batches end, and where its last write begins."""

    def __init__(self, base_offset: int, writes: list[list[bytes]]) -> None:
        self.base_offset, self.data, self.ends = base_offset, b"", [0]
        for values in writes:
            self.last_write = len(self.data)
            for value in values:
                batch = bytearray(build([RecordData(None, value)], timestamp_ms=0))
                patch_base_offset(batch, 0, base_offset, len(self.data) - self.last_write)
                self.data, base_offset = self.data + bytes(batch), base_offset + 1
                self.ends.append(len(self.data))


@given(base_offset=st.integers(0, 2**40), writes=WRITES, content=st.data())
def test_a_flipped_bit_is_never_cut_off_as_a_torn_write(
    base_offset: int, writes: list[list[bytes]], content: st.DataObject
) -> None:
    log = Log(base_offset, writes)
    bit = content.draw(st.integers(0, 8 * len(log.data) - 1))
    flipped = bytearray(log.data)
    flipped[bit // 8] ^= 1 << bit % 8
    begins = max(end for end in log.ends if end <= bit // 8)
    if 12 <= bit // 8 - begins < 16:  # the leader epoch
        assert recover_tail(bytes(flipped), base_offset).valid_bytes == len(log.data)
    else:
        with pytest.raises(CorruptSegmentError) as caught:
            recover_tail(bytes(flipped), base_offset)
        assert caught.value.position == begins
        assert caught.value.flipped == (bit // 8, 1 << bit % 8)


@given(base_offset=st.integers(0, 2**40), writes=WRITES, content=st.data())
def test_a_last_write_of_which_sectors_or_bytes_are_missing_is_cut_to_whole_batches(
    base_offset: int, writes: list[list[bytes]], content: st.DataObject
) -> None:
    log = Log(base_offset, writes)
    size = content.draw(st.integers(log.last_write, len(log.data)))
    torn = bytearray(log.data[:size])
    for sector in range(log.last_write // SECTOR_BYTES, -(-size // SECTOR_BYTES)):
        if content.draw(st.booleans()):
            first, end = max(log.last_write, sector * SECTOR_BYTES), min(size, (sector + 1) * SECTOR_BYTES)
            torn[first:end] = bytes(end - first)
    same = next((at for at, (was, now) in enumerate(zip(log.data, torn, strict=False)) if was != now), size)
    whole = max(end for end in log.ends if end <= same)
    recovered = recover_tail(bytes(torn), base_offset)
    assert recovered.valid_bytes == whole
    assert recovered.next_offset == base_offset + log.ends.index(whole)


@given(base_offset=st.integers(0, 2**40), writes=WRITES, content=st.data())
def test_sectors_that_vanish_from_an_earlier_write_are_damage(
    base_offset: int, writes: list[list[bytes]], content: st.DataObject
) -> None:
    log = Log(base_offset, [*writes, [b"the last one"]])
    sector = content.draw(st.integers(0, (log.last_write - 1) // SECTOR_BYTES)) * SECTOR_BYTES
    end = min(log.last_write, sector + SECTOR_BYTES)
    holed = log.data[:sector] + bytes(end - sector) + log.data[end:]
    if holed == log.data:  # it had only zeros
        assert recover_tail(holed, base_offset).valid_bytes == len(log.data)
    else:
        with pytest.raises(CorruptSegmentError):
            recover_tail(holed, base_offset)

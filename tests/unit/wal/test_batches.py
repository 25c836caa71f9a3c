"""Batches as consumers get them: what is taken for damage, and what is not."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import RecordData
from diskless_core.wal.batches import damage, prepare
from diskless_core.wal.runs import Run, make_run

CREATE_TIME, LOG_APPEND_TIME = 0, 1
CRC_AT, MAX_TIMESTAMP_AT = 17, 35


def batch_of(time: int) -> bytearray:
    """A batch whose header has this latest time, whatever its record has, as a producer may send it."""
    batch = bytearray(record_batch.build([RecordData(key=None, value=b"v")], timestamp_ms=0))
    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, time)
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[CRC_AT + 4 :])))
    return batch


def run_of(times: list[int], timestamp_type: int = CREATE_TIME) -> tuple[bytearray, Run]:
    """A run of one batch for each of these times."""
    data = bytearray(b"".join(map(batch_of, times)))
    run = make_run(
        base_offset=10,
        last_offset=10 + len(times) - 1,
        object_key="key",
        byte_offset=0,
        byte_size=len(data),
        append_time=1_000,
        max_timestamp=max(times),
        timestamp_type=timestamp_type,
        bytes_before=0,
    )
    return data, run


@pytest.mark.parametrize("times", [[5], [-1], [-2], [-(2**63)], [-3, -7], [-7, -3], [-5, 4, -9]])
def test_times_before_the_epoch_are_no_damage(times: list[int]) -> None:
    data, run = run_of(times)
    prepared = prepare(data, run)
    assert prepared.problem is None
    assert (prepared.size_bytes, prepared.next_offset) == (len(data), 10 + len(times))


@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, LOG_APPEND_TIME])
def test_whichever_bit_is_another_one_it_is_told_or_makes_no_difference_to_who_reads(timestamp_type: int) -> None:
    sent, run = run_of([5, 7], timestamp_type)
    expected = bytearray(sent)
    assert prepare(expected, run).problem is None
    for bit in range(8 * len(sent)):
        data = bytearray(sent)
        data[bit // 8] ^= 1 << bit % 8
        prepared = prepare(data, run)
        assert data[: prepared.size_bytes] == expected[: prepared.size_bytes], f"byte {bit // 8}"
        assert (prepared.problem is None) == (prepared.size_bytes == len(sent)), f"byte {bit // 8}"


@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, LOG_APPEND_TIME])
def test_whichever_bit_is_another_one_only_the_batch_that_follows_the_damaged_one_is_taken_for_it(
    timestamp_type: int,
) -> None:
    sent, run = run_of([5, 7, 9], timestamp_type)
    expected = bytearray(sent)
    assert prepare(expected, run).problem is None
    size = len(sent) // 3
    told = 0
    for bit in range(8 * size, 16 * size):  # of the second one
        data = bytearray(sent)
        data[bit // 8] ^= 1 << bit % 8
        prepared = prepare(data, run)
        if prepared.problem is None:
            continue
        found = damage(data, run, prepared)
        assert found.damaged.base_offset == prepared.next_offset
        assert found.damaged.byte_offset == prepared.size_bytes
        if found.rest is None:
            assert found.damaged.last_offset == run.last_offset
            assert not found.is_batch
            continue
        told += 1
        assert (found.damaged.last_offset, found.damaged.byte_size) == (11, size)
        rest = memoryview(data)[found.rest.byte_offset : found.rest.byte_offset + found.rest.byte_size]
        assert prepare(rest, found.rest).problem is None
        assert rest == expected[2 * size :]
    assert told > 4 * size

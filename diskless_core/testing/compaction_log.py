"""Says what is wrong with the log of a segment, in the words of the promise that was broken. Pure."""

from __future__ import annotations

from collections import Counter

from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import BatchHeader, CorruptBatchError


def assert_same_log(found: bytes, expected: bytes) -> None:
    """A segment's log is what consumers get of its batches.

    Raises:
        AssertionError: it is not; the message says in what they differ.
    """
    if found == expected:
        return
    wanted = _batches(expected)
    try:
        there = _batches(found)
    except CorruptBatchError as error:
        raise AssertionError(f"the log has whole batches only: {error}") from error
    _assert_same_batches([header for header, _ in there], [header for header, _ in wanted])
    for (header, batch), (wanted_header, wanted_batch) in zip(there, wanted, strict=True):
        at = f"in the batch at offset {wanted_header.base_offset}"
        _assert_same_header(header, wanted_header, at)
        assert batch == wanted_batch, f"records are copied as they are: they differ {at}"


def _assert_same_batches(found: list[BatchHeader], expected: list[BatchHeader]) -> None:
    offsets, wanted = [one.base_offset for one in found], [one.base_offset for one in expected]
    lost, added = sorted(set(wanted) - set(offsets)), sorted(set(offsets) - set(wanted))
    is_moved = bool(lost) and len(offsets) == len(wanted)
    assert not is_moved, f"batches have their offsets in the topic: {offsets} and not {wanted}"
    doubled = sorted(offset for offset, times in Counter(offsets).items() if times > 1)
    assert not doubled, f"each batch is in the log once: more often there are those at {doubled}"
    assert not lost, f"all batches of the plan are in the log: those at {lost} are not"
    assert not added, f"only batches of the plan are in the log: those at {added} are not of it"
    assert offsets == wanted, f"batches are in order of their offsets, and not as {offsets}"


def _assert_same_header(found: BatchHeader, expected: BatchHeader, at: str) -> None:
    epochs = found.partition_leader_epoch, expected.partition_leader_epoch
    assert epochs[0] == epochs[1], f"the leader epoch is {epochs[1]} and not {epochs[0]} {at}"
    times = [(one.base_timestamp, one.max_timestamp, one.attributes) for one in (found, expected)]
    assert times[0] == times[1], f"timestamps and their type are as consumers get them: {times} {at}"


def _batches(log: bytes) -> list[tuple[BatchHeader, bytes]]:
    return [(header, log[position : position + header.size]) for position, header in record_batch.walk(log)]

"""What `consume --skip-damaged` makes of the batches of a Fetch answer, and how it passes what a broker cannot read."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pytest

from diskless_core.cli.client.cluster import ClusterError
from diskless_core.cli.client.past_damage import (
    AbortedRecords,
    Answer,
    PastDamage,
    Reached,
    ReadRecord,
    Skipped,
    read_batches,
)
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import RecordData, build
from tests.support.batches import batch_of, with_header

PLACE = ("t", 3)
TRANSACTIONAL, CONTROL = 0x10, 0x20


def at(base_offset: int, *values: bytes, **header: int) -> bytes:
    return with_header(batch_of(*values), base_offset=base_offset, **header)


def marker(base_offset: int, producer_id: int, *, commits: bool) -> bytes:
    batch = build([RecordData(struct.pack(">hh", 0, int(commits)), bytes(6))], timestamp_ms=3)
    attributes = TRANSACTIONAL | CONTROL
    return with_header(batch, base_offset=base_offset, attributes=attributes, producer_id=producer_id)


def read(data: bytes, position: int = 0, *aborted: tuple[int, int]) -> list[tuple[Any, ...]]:
    transactions = [Answer.AbortedTransaction(producer_id=one, first_offset=first) for one, first in aborted]
    found = list[tuple[Any, ...]]()
    for one in read_batches(PLACE, data, position, AbortedRecords(transactions)):
        match one:
            case ReadRecord():
                found.append((one.offset(), one.value()))
            case Skipped():
                found.append(("skipped", one.first_offset, one.last_offset))
            case Reached():
                found.append(("reached", one.offset))
    return found


def test_damaged_batches_are_named_and_all_others_are_read() -> None:
    data = at(5, b"a", b"b") + at(7, b"c", b"d", record_count=9) + at(9, b"e", crc=1) + at(10, b"f")
    assert read(data, 6) == [
        (6, b"b"),
        ("reached", 7),
        ("skipped", 7, 8),
        ("reached", 9),
        ("skipped", 9, 9),
        ("reached", 10),
        (10, b"f"),
        ("reached", 11),
    ]


def test_headers_that_are_no_utf8_are_damage_too() -> None:
    batch = bytearray(build([RecordData(b"k", b"v", (("name", b"x"),))], timestamp_ms=3))
    batch[batch.index(b"name")] = 0xFF
    assert read(with_header(bytes(batch))) == [("skipped", 0, 0), ("reached", 1)]


def test_a_batch_that_the_answer_cuts_off_is_left_for_the_next_one() -> None:
    data = at(0, b"a") + at(1, b"b")
    assert read(data[:-1]) == [(0, b"a"), ("reached", 1)]


def test_records_of_aborted_transactions_and_markers_are_passed_over() -> None:
    first = {"attributes": TRANSACTIONAL, "producer_id": 7}
    data = (
        at(0, b"aborted", **first)
        + at(1, b"other", attributes=TRANSACTIONAL, producer_id=8)
        + marker(2, 7, commits=False)
        + at(3, b"committed", **first)
        + marker(4, 7, commits=True)
        + at(5, b"plain", producer_id=7)
    )
    values = [one for one in read(data, 0, (7, 0)) if one[0] != "reached"]
    assert values == [(1, b"other"), (3, b"committed"), (5, b"plain")]


class Log(PastDamage):
    """A partition of batches of one record, some of which the broker cannot read."""

    def __init__(self, damaged: set[int], end: int) -> None:
        super().__init__(topic="t", leaders=dict, end_of=lambda _: end, committed=False)
        object.__setattr__(self, "log", (damaged, end))

    def _fetched(self, positions: Mapping[int, int], *, wait_ms: int) -> list[Answer]:
        [(partition, offset)] = positions.items()
        damaged, end = self.log  # type: ignore[attr-defined]
        if offset in damaged:
            return [Answer(partition_index=partition, error_code=ErrorCode.CORRUPT_MESSAGE, high_watermark=-1)]
        data = b"" if offset >= end else at(offset, b"%d" % offset)
        return [Answer(partition_index=partition, high_watermark=end, records=data)]


@pytest.mark.parametrize("damaged", [{0}, {4}, {2, 3, 4, 5, 6, 7, 8, 9, 10}, set(range(13, 20)), set(range(20))])
def test_what_the_broker_cannot_read_is_passed_over_up_to_the_next_offset_that_it_can(damaged: set[int]) -> None:
    found, skipped = list[int](), list[range]()
    for one in Log(damaged, 20).read({3: 0}, lambda _: True):
        match one:
            case ReadRecord():
                found.append(one.offset())
            case Skipped():
                skipped.append(range(one.first_offset, one.last_offset + 1))
            case Reached(_, 20):
                break
    assert found == [offset for offset in range(20) if offset not in damaged]
    assert [set(one) for one in skipped] == [damaged]


def test_another_error_than_damage_ends_it() -> None:
    class Failing(Log):
        def _fetched(self, positions: Mapping[int, int], *, wait_ms: int) -> list[Answer]:
            return [Answer(partition_index=3, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]

    with pytest.raises(ClusterError, match="t-3 cannot be read at offset 5: TOPIC_AUTHORIZATION_FAILED"):
        next(Failing(set(), 20).read({3: 5}, lambda _: True))

"""What the walk of records accepts, a strict reader reads; what clients build, it accepts; nothing else comes out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import HEADER_BYTES, RecordData
from tests.support.record_walks import WAYS, record_walk

TEXTS = st.none() | st.binary(max_size=80)
RECORDS = st.lists(
    st.builds(
        RecordData,
        TEXTS,
        TEXTS,
        st.lists(st.tuples(st.text(max_size=5), TEXTS), max_size=3).map(tuple),
        st.integers(0, 2**50),
    ),
    min_size=1,
    max_size=12,
)
PIECES = st.sampled_from([1, 2, 5, 30, 1 << 16])


def pieces(body: bytes, size: int) -> Iterator[bytes]:
    return (body[at : at + size] for at in range(0, len(body), size))


def walked(way: str, body: bytes, count: int, size: int) -> Any:
    """What the walk answers; None where it refuses."""
    module = record_walk(way)
    try:
        return module.walk(pieces(body, size), count)
    except module.MalformedRecordsError:
        return None


@pytest.mark.parametrize("way", WAYS)
@given(records=RECORDS, size=PIECES)
def test_every_batch_that_is_built_passes(way: str, records: list[RecordData], size: int) -> None:
    batch = record_batch.build(records, timestamp_ms=5)
    header = record_batch.read_header(batch)
    found = walked(way, batch[HEADER_BYTES:], len(records), size)
    times = [record.timestamp or 0 for record in records]
    assert found == (min(times) - header.base_timestamp, max(times) - header.base_timestamp, True)
    module = record_walk(way)
    body = batch[HEADER_BYTES:]
    module.check_beginning(body[: module.MAX_HEAD_BYTES], len(records), len(body))


@given(records=RECORDS, size=PIECES, seed=st.integers(0, 2**32), count_off_by=st.sampled_from([0, 0, 0, 1, -1]))
def test_what_was_changed_passes_if_and_only_if_a_strict_reader_can_read_it(
    records: list[RecordData], size: int, seed: int, count_off_by: int
) -> None:
    batch = record_batch.build(records, timestamp_ms=5)
    count = max(1, len(records) + count_off_by)
    body = mutated(batch[HEADER_BYTES:], random.Random(seed))
    expected = strictly_read(body, count)
    for way in WAYS:
        assert walked(way, body, count, size) == expected
        assert walked(way, body, count, 1 << 16) == expected


class StrictReader:
    """Reads field by field, as the Java client does, and asserts whatever that checks."""

    def __init__(self, body: bytes) -> None:
        self.rest = body

    def take(self, size: int) -> bytes:
        assert size <= len(self.rest)
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def number(self, bits: int) -> int:
        unsigned = 0
        for place in range(5 if bits == 32 else 10):
            [byte] = self.take(1)
            unsigned |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                break
        else:
            pytest.fail("too long")
        unsigned %= 2**bits
        return unsigned // 2 if unsigned % 2 == 0 else -(unsigned // 2) - 1

    def text(self) -> bytes | None:
        size = self.number(32)
        return self.take(size) if size >= 0 else None

    def record(self) -> tuple[int, int]:
        """Timestamp delta and offset delta."""
        one = StrictReader(self.take(max(0, self.number(32))))
        one.take(1)
        deltas = one.number(64), one.number(32)
        one.text()
        one.text()
        headers = one.number(32)
        assert headers >= 0
        for _ in range(headers):
            assert one.text() is not None
            one.text()
        assert not one.rest
        return deltas


def strictly_read(body: bytes, count: int) -> tuple[int, int, bool] | None:
    """The same as the walk answers."""
    reader = StrictReader(body)
    try:
        deltas = [reader.record() for _ in range(count)]
        assert not reader.rest
    except (AssertionError, ValueError, pytest.fail.Exception):
        return None
    times = [timestamp for timestamp, _ in deltas]
    return min(times), max(times), [offset for _, offset in deltas] == list(range(count))


def mutated(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0:
                del changed[at : at + chance.choice((1, 1, 8))]
            case 1:
                changed[at:at] = chance.randbytes(chance.choice((1, 1, 8)))
            case 2 if at < len(changed):
                changed[at] = chance.randrange(256)
            case 3 if at < len(changed):
                changed[at] = (changed[at] + chance.choice((1, 2, 255, 254))) % 256
            case 4:
                del changed[at:]
    return bytes(changed)


@given(body=st.binary(max_size=200), count=st.integers(1, 2**31 - 1), size=PIECES)
def test_noise_is_refused_with_the_one_error_or_taken(body: bytes, count: int, size: int) -> None:
    assert walked("compiled", body, count, size) == walked("from source", body, count, size)
    for way in WAYS:
        module = record_walk(way)
        try:
            module.check_beginning(body[: module.MAX_HEAD_BYTES], count, len(body))
        except module.MalformedRecordsError:
            assert walked(way, body, count, size) is None

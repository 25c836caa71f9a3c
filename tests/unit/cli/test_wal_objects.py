"""What the tools read of a WAL object: no more than they need, and no damage goes unnoticed."""

from __future__ import annotations

from itertools import groupby

import pytest

from diskless_core.cli import stored_batches
from diskless_core.cli.wal_objects import TAIL_BYTES, WINDOW_BYTES, find_object, read_headers, read_index
from diskless_core.clock import SystemClock
from diskless_core.plugin.wal_object_store import ObjectNotFoundError
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.wal import format as wal_format
from diskless_core.wal.format import IndexEntry, WalFormatError
from tests.support.batches import batch_of, with_header

KEY = "wal/ab/0000000000005-x"
TOPIC = b"T" * 16
RECORDS_AT = 61


class CountingStore(MemoryWalObjectStore):
    """Remembers which bytes were read."""

    def __init__(self):
        super().__init__(SystemClock())
        self.ranges = []

    async def get(self, key, start, end):
        self.ranges.append((start, end))
        return await super().get(key, start, end)

    @property
    def bytes_read(self):
        size = len(self.objects[KEY])
        return sum(min(end, size) - start for start, end in self.ranges)


def wal_object(*batches):
    """An object of (partition, bytes, records), in order."""
    body, index = wal_format.HEADER, []
    for partition, members in groupby(batches, key=lambda one: one[0]):
        at, found = len(body), list(members)
        body += b"".join(data for _, data, _ in found)
        index.append(IndexEntry(TOPIC, partition, at, len(body) - at, len(found), sum(count for *_, count in found)))
    return body + wal_format.encode_footer(index, len(body))


@pytest.fixture
def store():
    return CountingStore()


async def index_of(store, data):
    store.objects[KEY] = data
    return await read_index(store, await find_object(store, KEY))


async def headers_of(store, data, *, verify=False):
    return [
        (position, header.record_count)
        for entry in await index_of(store, data)
        async for position, header in read_headers(store, KEY, entry, verify=verify)
    ]


SMALL, PAIR = batch_of(b"a"), batch_of(b"b", b"c")
LARGE = batch_of(b"x" * 300_000)


async def test_an_object_is_found_by_its_whole_key_only(store):
    store.objects[f"{KEY}-longer"] = b""

    with pytest.raises(ObjectNotFoundError):
        await find_object(store, KEY)


async def test_the_index_is_read_from_the_end_without_the_batches(store):
    index = await index_of(store, wal_object((0, LARGE, 1), (3, PAIR, 2)))

    assert [(entry.partition, entry.record_count) for entry in index] == [(0, 1), (3, 2)]
    assert store.bytes_read <= TAIL_BYTES + wal_format.HEADER_BYTES


async def test_an_index_larger_than_what_is_read_at_first_is_read_whole(store):
    data = wal_object(*((partition, SMALL, 1) for partition in range(2_000)))

    index = await index_of(store, data)

    assert [entry.partition for entry in index] == list(range(2_000))
    assert len(store.ranges) == 3


@pytest.mark.parametrize("verify", [False, True])
async def test_each_batch_is_found_where_it_is(store, verify):
    data = wal_object((0, SMALL, 1), (0, PAIR, 2), (0, LARGE, 1), (0, SMALL, 1), (1, PAIR, 2))

    found = await headers_of(store, data, verify=verify)

    assert [count for _, count in found] == [1, 2, 1, 1, 2]
    assert [position for position, _ in found][:3] == [16, 16 + len(SMALL), 16 + len(SMALL) + len(PAIR)]


async def test_many_small_batches_are_read_together_and_large_ones_only_in_part(store):
    await headers_of(store, wal_object(*[(0, SMALL, 1)] * 500, *[(1, LARGE, 1)] * 3))

    assert len(store.ranges) < 12
    assert store.bytes_read < TAIL_BYTES + 5 * WINDOW_BYTES


GOOD = wal_object((0, SMALL, 1), (0, PAIR, 2))


def flipped(data, position):
    damaged = bytearray(data)
    damaged[position] ^= 1
    return bytes(damaged)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes are too few"),
        (GOOD[:-1], "does not end with the magic"),
        (GOOD[:40] + GOOD[60:], "does not fit"),
        (flipped(GOOD, 0), "does not begin with the magic"),
        (flipped(GOOD, len(GOOD) - wal_format.TRAILER_BYTES - 1), "checksum is wrong"),
        (wal_format.HEADER + wal_format.encode_footer([IndexEntry(TOPIC, 0, 16, 9, 1, 1)], 16), "where no batches"),
        (wal_format.HEADER + wal_format.encode_footer([IndexEntry(TOPIC, 0, 16, -9, 1, 1)], 16), "where no batches"),
        (flipped(GOOD, wal_format.HEADER_BYTES + 8), "no batch at byte 16"),
        (flipped(GOOD, wal_format.HEADER_BYTES + 16), "no batch at byte 16"),
        (wal_object((0, SMALL, 2)), "has 1 batches with 1 records, but the index says 1 with 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "object",  # bytes differ with the time, names must not
)
async def test_damage_is_told(store, data, message):
    with pytest.raises(WalFormatError, match=message):
        await headers_of(store, data)


async def test_damaged_records_are_found_when_they_are_read(store):
    data = flipped(GOOD, wal_format.HEADER_BYTES + len(SMALL) + RECORDS_AT)

    assert len(await headers_of(store, data)) == 2
    with pytest.raises(WalFormatError, match=f"the batch at byte {16 + len(SMALL)} is damaged"):
        await headers_of(store, data, verify=True)


async def test_a_batch_that_claims_more_than_its_partition_has_is_no_batch(store):
    data = wal_object((0, with_header(SMALL, batch_length=5_000), 1), (1, LARGE, 1))

    with pytest.raises(WalFormatError, match="no batch at byte 16"):
        await headers_of(store, data, verify=True)


async def checked(store, data):
    """Position, size, and whether it can be read, of each batch."""
    store.objects[KEY] = data
    found = [one async for _, one in stored_batches.in_object(store, await find_object(store, KEY))]
    return [(one.byte_offset, one.size, one.problem is None) for one in found]


@pytest.mark.parametrize("read_bytes", [61, 300, 1 << 20])
async def test_all_records_are_read_whatever_is_read_of_an_object_at_once(store, monkeypatch, read_bytes):
    monkeypatch.setattr(stored_batches, "READ_BYTES", read_bytes)
    lying = with_header(PAIR, record_count=3)
    at = wal_format.HEADER_BYTES
    data = wal_object((0, SMALL, 1), (0, lying, 2), (0, LARGE, 1), (1, PAIR, 2))
    behind_large = at + len(SMALL) + len(PAIR) + len(LARGE)
    assert await checked(store, data) == [
        (at, len(SMALL), True),
        (at + len(SMALL), len(PAIR), False),
        (at + len(SMALL) + len(PAIR), len(LARGE), True),
        (behind_large, len(PAIR), True),
    ]


async def test_where_a_batch_does_not_say_where_it_ends_the_rest_of_its_partition_is_damaged(store):
    endless = with_header(PAIR, batch_length=2**30)
    data = wal_object((0, SMALL, 1), (0, endless, 2), (0, SMALL, 1), (1, PAIR, 2))
    at = wal_format.HEADER_BYTES
    behind = at + 2 * len(SMALL) + len(PAIR)
    expected = [(at, len(SMALL), True), (at + len(SMALL), len(PAIR) + len(SMALL), False), (behind, len(PAIR), True)]
    assert await checked(store, data) == expected

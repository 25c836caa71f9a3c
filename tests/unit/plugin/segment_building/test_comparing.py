"""A copy is compared with what its storage was given: any byte that differs is found, in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData, RemoteStorageError
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.segment_building import comparing
from diskless_core.plugin.segment_building.backends import RetryingRemoteStorage
from diskless_core.plugin.segment_building.comparing import (
    READ_BYTES,
    READS_AT_ONCE,
    CopyDiffersError,
    CopyMissingError,
    NotingRemoteStorage,
    compare,
)
from diskless_core.plugin.segment_compaction import WrittenCopy, WrittenFile
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage, Operation, StoredSegment
from diskless_core.testing.remote_storage_tools import Segment, copied, make_segment

SIZE = 3 * READ_BYTES + 777

Damage = Callable[[StoredSegment], None]


async def written_to(storage: MemoryRemoteStorage, segment: Segment) -> tuple[Segment, WrittenCopy]:
    noting = NotingRemoteStorage(storage)
    known = await copied(noting, segment)
    written = noting.take_written(segment.metadata.segment_id)
    assert written is not None
    assert noting.take_written(segment.metadata.segment_id) is None, "it is kept for ever"
    return known, written


async def test_what_was_written_is_noted_as_it_was_handed_over() -> None:
    """Also of a storage that uses the memory of each piece again."""
    segment = make_segment(SIZE)
    _, written = await written_to(MemoryRemoteStorage(), segment)
    assert written == WrittenCopy(
        log=WrittenFile.of(segment.log),
        indexes={index: WrittenFile.of(content) for index, content in segment.indexes.items()},
    )


@pytest.mark.parametrize("size", [1, READ_BYTES - 1, READ_BYTES, READ_BYTES + 1, SIZE])
async def test_a_copy_that_is_as_it_was_written_is_found_the_same(size: int) -> None:
    storage = MemoryRemoteStorage(custom_metadata=b"custom")
    known, written = await written_to(storage, make_segment(size))
    await compare(storage, known.metadata, written)
    await compare(storage, known.metadata, written, with_log=False)


def flipped(at: int) -> Damage:
    def damage(stored: StoredSegment) -> None:
        log = bytearray(stored.log)
        log[at] ^= 1
        stored.log = bytes(log)

    return damage


def shorter(stored: StoredSegment) -> None:
    stored.log = stored.log[:-1]


def longer(stored: StoredSegment) -> None:
    stored.log += b"x"


def parts_swapped(stored: StoredSegment) -> None:
    first, second = stored.log[:READ_BYTES], stored.log[READ_BYTES : 2 * READ_BYTES]
    stored.log = second + first + stored.log[2 * READ_BYTES :]


def without_index(stored: StoredSegment) -> None:
    del stored.indexes[IndexType.PRODUCER_SNAPSHOT]


def index_flipped(stored: StoredSegment) -> None:
    index = bytearray(stored.indexes[IndexType.TIMESTAMP])
    index[3] ^= 1
    stored.indexes[IndexType.TIMESTAMP] = bytes(index)


def index_longer(stored: StoredSegment) -> None:
    stored.indexes[IndexType.OFFSET] += b"\0"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flipped(0), "its log has"),
        (flipped(READ_BYTES), "its log has"),
        (flipped(SIZE - 1), "its log has"),
        (shorter, f"its log ends at byte {SIZE - 1}"),
        (longer, "its log goes on behind"),
        (parts_swapped, "its log has"),
        (without_index, r"it has no \.snapshot"),
        (index_flipped, r"its \.timeindex has"),
        (index_longer, r"its \.index has"),
    ],
)
async def test_any_byte_that_differs_is_found(damage: Damage, message: str) -> None:
    storage = MemoryRemoteStorage()
    known, written = await written_to(storage, make_segment(SIZE))
    damage(storage.segments[known.metadata.segment_id])
    with pytest.raises(CopyDiffersError, match=message):
        await compare(storage, known.metadata, written)


@pytest.mark.parametrize("damage", [shorter, longer, without_index, index_flipped])
async def test_of_a_log_that_was_read_elsewhere_the_size_and_the_indexes_are_compared(damage: Damage) -> None:
    storage = MemoryRemoteStorage()
    known, written = await written_to(storage, make_segment(SIZE))
    damage(storage.segments[known.metadata.segment_id])
    calls = storage.calls[Operation.FETCH]
    with pytest.raises(CopyDiffersError):
        await compare(storage, known.metadata, written, with_log=False)
    assert storage.calls[Operation.FETCH] - calls == 2, "once, and once more to be sure"


async def test_a_copy_that_is_not_there_is_missing() -> None:
    storage = MemoryRemoteStorage()
    known, written = await written_to(storage, make_segment())
    storage.segments.clear()
    for with_log in (True, False):
        with pytest.raises(CopyMissingError, match="is not in remote storage"):
            await compare(storage, known.metadata, written, with_log=with_log)


async def test_a_copy_of_another_size_than_was_planned_differs() -> None:
    storage = MemoryRemoteStorage()
    known, written = await written_to(storage, make_segment())
    metadata = replace(known.metadata, segment_size_bytes=known.metadata.segment_size_bytes - 1)
    with pytest.raises(CopyDiffersError, match="bytes, and 9999 were planned"):
        await compare(storage, metadata, written)


async def test_a_read_that_is_damaged_once_does_not_condemn_a_sound_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryRemoteStorage()
    known, written = await written_to(storage, make_segment(SIZE))
    fetch, damaged = storage.fetch, 0

    async def once(*arguments: Any) -> Any:
        nonlocal damaged
        found = bytearray(await fetch(*arguments))
        if not damaged:
            damaged += 1
            found[5] ^= 1
        return found

    monkeypatch.setattr(storage, "fetch", once)
    await compare(storage, known.metadata, written)
    assert damaged


async def test_a_copy_that_cannot_be_read_is_an_error_of_the_storage_and_leaves_no_read_behind() -> None:
    storage = MemoryRemoteStorage()
    known, written = await written_to(storage, make_segment(SIZE))
    before = asyncio.all_tasks()
    with storage.failing(Operation.FETCH), pytest.raises(RemoteStorageError, match="503"):
        await compare(storage, known.metadata, written)
    assert asyncio.all_tasks() == before


async def test_a_log_of_any_size_is_read_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "READ_BYTES", 1000)
    storage = MemoryRemoteStorage()
    known, written = await written_to(storage, make_segment(50_001))
    fetch, under_way, most, largest = storage.fetch, 0, 0, 0

    async def watched(*arguments: Any) -> Any:
        nonlocal under_way, most, largest
        under_way += 1
        most = max(most, under_way)
        found = await fetch(*arguments)
        await asyncio.sleep(0)
        under_way -= 1
        largest = max(largest, len(found))
        return found

    monkeypatch.setattr(storage, "fetch", watched)
    await compare(storage, known.metadata, written)
    assert (most, largest) == (READS_AT_ONCE, 1000)


async def test_the_last_try_of_a_repeated_copy_is_noted() -> None:
    storage = MemoryRemoteStorage()
    storage.fail_next(Operation.COPY)
    retrying = Retrying(Backoff(attempts=3, first_ms=1, max_ms=1), SystemClock())
    noting = NotingRemoteStorage(RetryingRemoteStorage(storage, retrying))
    segment = make_segment(SIZE)
    await noting.copy(segment.metadata, segment.data())
    assert storage.calls[Operation.COPY] == 2
    written = noting.take_written(segment.metadata.segment_id)
    assert written is not None
    await compare(storage, segment.metadata, written)


async def test_an_index_that_was_replaced_is_compared_as_it_was_put() -> None:
    storage = MemoryRemoteStorage()
    noting, segment = NotingRemoteStorage(storage), make_segment()
    await noting.copy(segment.metadata, segment.data())
    await noting.replace_index(segment.metadata, IndexType.PRODUCER_SNAPSHOT, b"another one")
    written = noting.take_written(segment.metadata.segment_id)
    assert written is not None
    await compare(storage, segment.metadata, written)
    storage.segments[segment.metadata.segment_id].indexes[IndexType.PRODUCER_SNAPSHOT] = b"the one before"
    with pytest.raises(CopyDiffersError, match=r"its \.snapshot has"):
        await compare(storage, segment.metadata, written)


class TakesHalf(MemoryRemoteStorage):
    """Says that a segment is copied when it has seen a part of its log."""

    async def copy(self, metadata: Any, data: LogSegmentData) -> bytes | None:
        async for _ in data.log():
            break
        data.indexes()
        return None


async def test_a_storage_that_does_not_take_all_of_a_log_has_not_copied_it() -> None:
    segment = make_segment(SIZE)
    with pytest.raises(RemoteStorageError, match="has not read all of its data") as caught:
        await NotingRemoteStorage(TakesHalf()).copy(segment.metadata, segment.data())
    assert not caught.value.retriable

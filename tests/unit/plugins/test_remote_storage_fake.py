"""The fake of a remote storage misbehaves exactly as it is told to."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from diskless_core.plugin.remote_storage import IndexType, RemoteStorageError
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage, Operation, access_denied
from diskless_core.testing.remote_storage_tools import BrokenLogError, assert_stored, copied, make_segment


@pytest.fixture
def storage() -> MemoryRemoteStorage:
    return MemoryRemoteStorage()


async def test_the_next_copies_fail_retriably_and_leave_a_part(storage: MemoryRemoteStorage) -> None:
    segment = make_segment()
    storage.fail_next(Operation.COPY, 2)
    for _ in range(2):
        with pytest.raises(RemoteStorageError, match="503") as caught:
            await copied(storage, segment)
        assert caught.value.retriable
        assert not storage.segments[segment.metadata.segment_id].is_complete
    await assert_stored(storage, await copied(storage, segment))
    assert storage.calls[Operation.COPY] == 3


async def test_a_lost_answer_leaves_the_segment_in_place(storage: MemoryRemoteStorage) -> None:
    segment = make_segment()
    storage.fail_next(Operation.COPY, takes_effect=True)
    with pytest.raises(RemoteStorageError):
        await copied(storage, segment)
    await assert_stored(storage, segment)


async def test_an_outage_ends_with_its_context(storage: MemoryRemoteStorage) -> None:
    segment = await copied(storage, make_segment())
    with storage.failing(Operation.FETCH, error=access_denied), storage.failing(Operation.FETCH_INDEX):
        with pytest.raises(RemoteStorageError, match="AccessDenied") as caught:
            await storage.fetch(segment.metadata, 0, 1)
        assert not caught.value.retriable
        with pytest.raises(RemoteStorageError, match="503"):
            await storage.fetch_index(segment.metadata, IndexType.OFFSET)
    await assert_stored(storage, segment)


async def test_a_deletion_fails_too(storage: MemoryRemoteStorage) -> None:
    segment = await copied(storage, make_segment())
    storage.fail_next(Operation.DELETE)
    with pytest.raises(RemoteStorageError):
        await storage.delete(segment.metadata)
    await assert_stored(storage, segment)


async def test_held_copies_are_not_to_be_seen_until_they_are_released(storage: MemoryRemoteStorage) -> None:
    with storage.hold(Operation.COPY) as hold:
        copies = [asyncio.create_task(copied(storage, make_segment(number=number))) for number in range(3)]
        await hold.reached(3)
        assert storage.segments == {}
        hold.release()
        await assert_stored(storage, *await asyncio.gather(*copies))


async def test_a_log_that_breaks_off_leaves_what_had_gone_by(storage: MemoryRemoteStorage) -> None:
    segment = make_segment()
    with pytest.raises(BrokenLogError):
        await storage.copy(segment.metadata, segment.broken_data(100))
    assert storage.segments[segment.metadata.segment_id].log == segment.log[:100]


async def test_a_log_of_another_size_than_its_metadata_say_is_reported(storage: MemoryRemoteStorage) -> None:
    segment = make_segment(1000)
    with pytest.raises(AssertionError, match="1000 bytes"):
        await storage.copy(replace(segment.metadata, segment_size_bytes=999), segment.data())


async def test_a_caller_that_forgets_custom_metadata_is_reported() -> None:
    storage = MemoryRemoteStorage(custom_metadata=b"where")
    segment = make_segment()
    await assert_stored(storage, await copied(storage, segment))
    with pytest.raises(AssertionError, match="without what its copy returned"):
        await storage.fetch(segment.metadata, 0, 1)
    with pytest.raises(AssertionError, match="without what its copy returned"):
        await storage.replace_index(segment.metadata, IndexType.TRANSACTION, b"another one")


@pytest.mark.parametrize("fails", [False, True])
async def test_an_index_that_is_added_while_the_same_is_copied_again_stays(
    storage: MemoryRemoteStorage, fails: bool
) -> None:
    segment = await copied(storage, make_segment(absent=(IndexType.TRANSACTION,)))
    with storage.hold(Operation.COPY) as hold:
        if fails:
            storage.fail_next(Operation.COPY)
        again = asyncio.create_task(copied(storage, segment))
        await hold.reached()
        await storage.replace_index(segment.metadata, IndexType.TRANSACTION, b"added")
    [outcome] = await asyncio.gather(again, return_exceptions=True)
    assert isinstance(outcome, RemoteStorageError) == fails
    await assert_stored(storage, replace(segment, indexes={**segment.indexes, IndexType.TRANSACTION: b"added"}))

"""The part of the `remote_storage` contract about copies that are repeated, fail or are deleted, and its fixtures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import ClassVar

import pytest
import pytest_asyncio

from diskless_core.plugin.remote_storage import IndexType, RemoteStorage
from diskless_core.testing.remote_storage_tools import (
    MEBIBYTE,
    TIMEOUT_S,
    BrokenLogError,
    Segment,
    assert_absent,
    assert_stored,
    copied,
    make_segment,
)


class SegmentLifeContract:
    """Repeated, failed and cancelled copies, and deletion; `RemoteStorageContract` includes it.

    Attributes:
        large_log_bytes: size of the logs that are to be more than a storage takes at once.
    """

    large_log_bytes: ClassVar[int] = 24 * MEBIBYTE

    @pytest.fixture
    def make_storage(self) -> Callable[[], RemoteStorage]:
        """Makes storages, not started, on one place that is empty at first, as the brokers of a cluster have them."""
        raise NotImplementedError("give this fixture in the subclass")

    @pytest_asyncio.fixture
    async def storage(self, make_storage: Callable[[], RemoteStorage]) -> AsyncIterator[RemoteStorage]:
        storage = make_storage()
        await storage.start()
        try:
            yield storage
        finally:
            await storage.stop()

    @pytest_asyncio.fixture
    async def reader(self, make_storage: Callable[[], RemoteStorage]) -> AsyncIterator[RemoteStorage]:
        """Another broker's storage on the same place, so that no method is tested with what a storage remembers."""
        reader = make_storage()
        await reader.start()
        try:
            yield reader
        finally:
            await reader.stop()

    @pytest.mark.asyncio
    async def test_a_copy_may_be_repeated(self, storage: RemoteStorage, reader: RemoteStorage) -> None:
        for _ in range(2):
            segment = await copied(storage, make_segment(70_000))
        await assert_stored(reader, segment)

    @pytest.mark.asyncio
    async def test_a_repeated_copy_replaces_log_and_indexes(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        first, other = make_segment(70_000), make_segment(60_000, 2)
        await copied(storage, first)
        second = replace(other, metadata=replace(other.metadata, segment_id=first.metadata.segment_id))
        await assert_stored(reader, await copied(storage, second))

    @pytest.mark.asyncio
    async def test_an_index_that_a_repeated_copy_has_not_stays(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        """A slow copy of what has been copied by another may end when the index has been added, which it lacks."""
        segment = make_segment(absent=())
        known = await copied(storage, segment)
        lacking = dict(segment.indexes)
        del lacking[IndexType.PRODUCER_SNAPSHOT]
        await copied(storage, replace(segment, indexes=lacking))
        await assert_stored(reader, known)

    @pytest.mark.asyncio
    async def test_another_copy_of_the_same_that_is_given_up_does_no_harm(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        """As when a job has a slow node's work done by another one, too."""
        _require_overlapping(storage)
        segment, stuck = make_segment(70_000), asyncio.Event()
        slow = asyncio.create_task(storage.copy(segment.metadata, segment.stuck_data(30_000, stuck)))
        async with asyncio.timeout(TIMEOUT_S):
            await stuck.wait()
            known = await copied(reader, segment)
            slow.cancel()
            await asyncio.wait([slow])
        await assert_stored(storage, known)

    @pytest.mark.asyncio
    async def test_copies_of_the_same_at_once_leave_it_whole(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        _require_overlapping(storage)
        segment = make_segment(70_000)
        async with asyncio.timeout(TIMEOUT_S):
            known = await asyncio.gather(*(copied(one, segment) for one in (storage, reader)))
        await assert_stored(reader, *known)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("index", [IndexType.PRODUCER_SNAPSHOT, IndexType.TRANSACTION])
    async def test_an_index_is_replaced_or_added_where_the_storage_can(
        self, storage: RemoteStorage, reader: RemoteStorage, index: IndexType
    ) -> None:
        if not storage.can_replace_index:
            pytest.skip("it says that it cannot")
        segment = await copied(storage, make_segment(absent=(IndexType.TRANSACTION,)))
        await storage.replace_index(segment.metadata, index, b"another one")
        await assert_stored(reader, replace(segment, indexes={**segment.indexes, index: b"another one"}))
        await storage.delete(segment.metadata)
        await assert_absent(reader, segment)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
    async def test_a_copy_whose_log_breaks_off_raises_what_the_log_raised_and_is_replaced_by_the_next(
        self, storage: RemoteStorage, reader: RemoteStorage, part: float
    ) -> None:
        segment = make_segment(self.large_log_bytes)
        with pytest.raises(BrokenLogError):
            await storage.copy(segment.metadata, segment.broken_data(int(part * len(segment.log))))
        await assert_stored(reader, await copied(storage, segment))

    @pytest.mark.asyncio
    @pytest.mark.parametrize("size_bytes", [10_000, None])
    async def test_what_a_failed_copy_left_is_deleted(
        self, storage: RemoteStorage, reader: RemoteStorage, size_bytes: int | None
    ) -> None:
        segment = make_segment(size_bytes or self.large_log_bytes)
        with pytest.raises(BrokenLogError):
            await storage.copy(segment.metadata, segment.broken_data(len(segment.log) - 100))
        await reader.delete(segment.metadata)
        await assert_absent(reader, segment)
        await assert_absent(storage, segment)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
    async def test_a_cancelled_copy_ends_and_is_replaced_by_the_next(
        self, storage: RemoteStorage, reader: RemoteStorage, part: float
    ) -> None:
        segment = make_segment(self.large_log_bytes)
        await self._cancel_copy(storage, segment, part)
        await assert_stored(reader, await copied(storage, segment))

    @pytest.mark.asyncio
    async def test_a_cancelled_copy_does_not_come_back_after_a_deletion(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        segment = make_segment(self.large_log_bytes)
        await self._cancel_copy(storage, segment, 0.9)
        await reader.delete(segment.metadata)
        await storage.stop()
        await assert_absent(reader, segment)

    @pytest.mark.asyncio
    async def test_a_copy_cancelled_at_any_moment_can_be_deleted(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        for turns in (1, 2, 3, 5, 10, 20):
            segment = make_segment(50_000, turns)
            copying = asyncio.create_task(storage.copy(segment.metadata, segment.data()))
            for _ in range(turns):
                await asyncio.sleep(0)
            copying.cancel()
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.wait([copying])
            await reader.delete(segment.metadata)
            await assert_absent(reader, segment)

    @pytest.mark.asyncio
    async def test_a_deleted_segment_is_gone_with_its_indexes(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        segment = await copied(storage, make_segment(absent=()))
        await storage.delete(segment.metadata)
        await assert_absent(reader, segment)
        await assert_absent(storage, segment)

    @pytest.mark.asyncio
    async def test_a_segment_may_be_deleted_twice_and_without_having_been_copied(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        segment = await copied(storage, make_segment())
        await storage.delete(segment.metadata)
        await storage.delete(segment.metadata)
        await reader.delete(segment.metadata)
        await storage.delete(make_segment(number=2).metadata)

    @pytest.mark.asyncio
    async def test_a_deleted_segment_can_be_copied_again(self, storage: RemoteStorage, reader: RemoteStorage) -> None:
        segment = await copied(storage, make_segment())
        await storage.delete(segment.metadata)
        await assert_stored(reader, await copied(storage, make_segment()))

    async def _cancel_copy(self, storage: RemoteStorage, segment: Segment, part: float) -> None:
        stuck = asyncio.Event()
        data = segment.stuck_data(int(part * len(segment.log)), stuck)
        copying = asyncio.create_task(storage.copy(segment.metadata, data))
        async with asyncio.timeout(TIMEOUT_S):
            await stuck.wait()
            copying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await copying


def _require_overlapping(storage: RemoteStorage) -> None:
    if not storage.copies_may_overlap:
        pytest.skip("it says that copies must not overlap")

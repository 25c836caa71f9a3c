"""The part of the `remote_storage` contract about copies that are repeated, fail or are deleted, and its fixtures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from itertools import chain, count
from typing import ClassVar

import pytest
import pytest_asyncio

from diskless_core.plugin.remote_storage import IndexType, RemoteStorage, RemoteStorageError
from diskless_core.testing.held_jobs import HeldJob
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

_ENDS_AT_ONCE_S = 0.02
"""A cancelled copy that waits for no thread is over by then; one that is not is taken to wait."""

_DELETES_IN_S = 2.0
"""A deletion that is not over by then waits for the held job itself, which is let go."""


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
        """One of them may be refused for the moment, and goes on trying, as the core does."""
        _require_overlapping(storage)
        segment = make_segment(70_000)

        async def copied_at_last(one: RemoteStorage) -> Segment:
            while True:
                try:
                    return await copied(one, segment)
                except RemoteStorageError as error:
                    if not error.retriable:
                        raise
                    await asyncio.sleep(0)

        async with asyncio.timeout(TIMEOUT_S):
            known = await asyncio.gather(*(copied_at_last(one) for one in (storage, reader)))
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
    async def test_a_copy_cancelled_while_it_is_published_does_not_come_back_after_a_deletion(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        """Cancelled later and later, until one gets through. What is deleted then stays deleted."""
        cancelled: list[Segment] = []
        pauses = chain(((turns, 0.0) for turns in (0, 1, 2, 4, 8)), ((0, 0.001 * 3**n) for n in count()))
        async with asyncio.timeout(TIMEOUT_S):
            for number, (turns, pause_s) in enumerate(pauses, 1):
                segment, log_gone = make_segment(200_000, number), asyncio.Event()
                copying = asyncio.create_task(storage.copy(segment.metadata, segment.announced_data(log_gone)))
                copying.add_done_callback(partial(_set, log_gone))
                await log_gone.wait()
                for _ in range(turns):
                    await asyncio.sleep(0)
                if pause_s:
                    await asyncio.wait([copying], timeout=pause_s)
                got_through = copying.done()
                copying.cancel()
                await asyncio.wait([copying])
                await reader.delete(segment.metadata)
                cancelled.append(segment)
                if got_through:
                    copying.result()
                    break
        await storage.stop()
        for segment in cancelled:
            await assert_absent(reader, segment)

    @pytest.mark.asyncio
    async def test_a_cancelled_copy_leaves_no_thread_behind_that_publishes_it_after_a_deletion(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        """One after the other of the jobs that a copy gives to threads takes long. It is cancelled meanwhile."""
        cancelled: list[Segment] = []
        is_held = True
        async with asyncio.timeout(TIMEOUT_S):
            while is_held:
                cancelled.append(segment := make_segment(50_000, len(cancelled) + 1))
                with HeldJob(len(cancelled) - 1) as job:
                    copying = asyncio.create_task(storage.copy(segment.metadata, segment.data()))
                    is_held = await job.is_held_before(copying)
                    copying.cancel()
                    await asyncio.wait([copying], timeout=_ENDS_AT_ONCE_S)
                    deleting = asyncio.create_task(_deleted_after(copying, reader, segment))
                    if copying.done():
                        await asyncio.wait([deleting], timeout=_DELETES_IN_S)
                    await job.release()
                await deleting
        await storage.stop()
        for segment in cancelled:
            await assert_absent(reader, segment)

    @pytest.mark.asyncio
    async def test_throwing_away_what_is_unfinished_leaves_complete_copies_whole(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        await storage.discard_unfinished(make_segment(number=3).metadata)
        segment, other = make_segment(self.large_log_bytes), await copied(storage, make_segment(number=2))
        with pytest.raises(BrokenLogError):
            await storage.copy(segment.metadata, segment.broken_data(len(segment.log) - 100))
        segment = await copied(storage, segment)
        for _ in range(2):
            await reader.discard_unfinished(segment.metadata)
        await assert_stored(reader, segment, other)

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


def _set(event: asyncio.Event, _ended: asyncio.Task[bytes | None]) -> None:
    event.set()


async def _deleted_after(copying: asyncio.Task[bytes | None], reader: RemoteStorage, segment: Segment) -> None:
    await asyncio.wait([copying])
    await reader.delete(segment.metadata)


def _require_overlapping(storage: RemoteStorage) -> None:
    if not storage.copies_may_overlap:
        pytest.skip("it says that copies must not overlap")

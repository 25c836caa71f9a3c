"""The part of the `remote_storage` contract about failures, what a stopped storage leaves, power cuts, and memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import ClassVar

import pytest

from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
)
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.testing.leaks import CYCLES, Held, tasks_left
from diskless_core.testing.patience import within
from diskless_core.testing.power_cut import SyncedFiles
from diskless_core.testing.remote_storage_life import SegmentLifeContract
from diskless_core.testing.remote_storage_tools import (
    MEBIBYTE,
    Segment,
    assert_absent,
    assert_not_found,
    assert_stored,
    copied,
    make_segment,
    read_log,
)

MakeStorage = Callable[[], RemoteStorage]

BreakStorage = Callable[[RemoteStorage], AbstractAsyncContextManager[None]]
"""While it lasts, the place of this started storage answers with errors, or is not there."""

METHODS = ("copy", "fetch", "fetch_index", "delete")

_TIMES_ITS_MEMORY = 3


class SegmentFailureContract(SegmentLifeContract):
    """What holds when something fails or ends; `RemoteStorageContract` includes it.

    Attributes:
        secrets: what was configured and must be in no message, such as a password.
        most_copy_memory_bytes: how much memory of Python's a copy of a log of any size may take; None skips the test.
            What a library in C takes is not seen.
    """

    secrets: ClassVar[tuple[str, ...]] = ()
    most_copy_memory_bytes: ClassVar[int | None] = None

    @pytest.fixture
    def make_unreachable_storage(self) -> MakeStorage | None:
        """Makes storages whose place is not there, with settings that have the `secrets`; None skips the test."""
        return None

    @pytest.fixture
    def break_storage(self) -> BreakStorage | None:
        """Lets the place of a storage fail for a while; None skips the tests that need it."""
        return None

    @pytest.fixture
    def synced_files(self) -> SyncedFiles | None:
        """Watches over the folder in which the storages of `make_storage` keep all; None skips the power cut."""
        return None

    @pytest.mark.asyncio
    async def test_a_place_that_cannot_be_reached_is_reported_without_secrets(
        self, make_unreachable_storage: MakeStorage | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        """By `start`, or where that connects later, by the first call."""
        if make_unreachable_storage is None:
            pytest.skip("no place is known that this storage cannot reach")
        storage, segment = make_unreachable_storage(), make_segment()

        async def use() -> None:
            async with within("a start or a call that fails ends"):
                await storage.start()
                await storage.copy(segment.metadata, segment.data())

        try:
            with pytest.raises(Exception) as failed:  # noqa: PT011 - which one it is, is looked at
                await use()
            self.assert_own_error(failed.value)
            assert str(failed.value), "the message says what to do"
            assert not any(secret in caplog.text for secret in self.secrets), "no secret is logged"
        finally:
            await storage.stop()

    @pytest.mark.asyncio
    @pytest.mark.parametrize("method", METHODS)
    async def test_a_call_that_fails_raises_the_interfaces_error_and_can_be_repeated(
        self, storage: RemoteStorage, reader: RemoteStorage, break_storage: BreakStorage | None, method: str
    ) -> None:
        """A failure is not the absence of a segment: the broker would give up records that are there."""
        if break_storage is None:
            pytest.skip("the place of this storage cannot be made to fail")
        segment = await copied(storage, make_segment())
        call = _call(storage, segment, method)
        async with break_storage(storage), within("a call that fails ends"):
            with pytest.raises(Exception) as failed:  # noqa: PT011 - which one it is, is looked at
                await call()
        self.assert_own_error(failed.value)
        assert not isinstance(failed.value, RemoteResourceNotFoundError), "a failure is not told as absence"
        async with within("a call succeeds once the place answers again"):
            await call()
        if method == "delete":
            await assert_absent(reader, segment)
        else:
            await assert_stored(reader, segment)

    @pytest.mark.asyncio
    async def test_a_deletion_that_failed_does_not_say_that_the_segment_is_gone(
        self, storage: RemoteStorage, reader: RemoteStorage, break_storage: BreakStorage | None
    ) -> None:
        """The broker forgets a segment whose deletion returned, and nobody would find it again."""
        if break_storage is None:
            pytest.skip("the place of this storage cannot be made to fail")
        segment = await copied(storage, make_segment())
        returned = False
        async with break_storage(storage), within("a deletion that fails ends"):
            try:
                await storage.delete(segment.metadata)
                returned = True
            except RemoteStorageError:
                pass
        if returned:
            await assert_absent(reader, segment)
        await reader.delete(segment.metadata)
        await assert_absent(storage, segment)

    def assert_own_error(self, error: BaseException) -> None:
        """It is one of the interface, and has no secret."""
        assert isinstance(error, RemoteStorageError), f"a RemoteStorageError is raised, and not {error!r}"
        seen: BaseException | None = error
        while seen is not None:
            for secret in self.secrets:
                assert secret not in str(seen), "a message has no secret"
            seen = seen.__cause__

    @pytest.mark.asyncio
    async def test_what_a_copy_returns_is_bytes_or_nothing(self, storage: RemoteStorage, reader: RemoteStorage) -> None:
        """It goes into the metadata, which are written to a log and read from there."""
        segment = make_segment()
        custom: object = await storage.copy(segment.metadata, segment.data())
        assert custom is None or isinstance(custom, bytes), f"bytes or nothing, and not {custom!r}"
        await assert_stored(reader, segment.known_with(custom))

    @pytest.mark.asyncio
    async def test_a_segment_is_there_when_the_storage_that_copied_it_has_stopped(
        self, make_storage: MakeStorage, reader: RemoteStorage
    ) -> None:
        storage = make_storage()
        await storage.start()
        try:
            segment = await copied(storage, make_segment())
        finally:
            await storage.stop()
        await assert_stored(reader, segment)
        later = make_storage()
        await later.start()
        try:
            await assert_stored(later, segment)
        finally:
            await later.stop()

    @pytest.mark.asyncio
    async def test_what_was_deleted_is_not_read_again_by_one_that_has_read_it(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        """A reader may remember what it has read only as long as it is there."""
        segment = await copied(storage, make_segment())
        for one in (storage, reader):
            await assert_stored(one, segment)
        await storage.delete(segment.metadata)
        for one in (storage, reader):
            await assert_not_found("it was deleted", partial(read_log, one, segment))
            await assert_absent(one, segment)

    @pytest.mark.asyncio
    async def test_a_copy_that_returned_is_there_after_a_power_cut(
        self, make_storage: MakeStorage, synced_files: SyncedFiles | None
    ) -> None:
        if synced_files is None:
            pytest.skip("no folder is known in which this storage keeps all")
        with synced_files:
            storage = make_storage()
            await storage.start()
            try:
                segments = [await copied(storage, make_segment(20_000, number)) for number in range(2)]
                if storage.can_replace_index:
                    replaced, index = segments[1], IndexType.PRODUCER_SNAPSHOT
                    await storage.replace_index(replaced.metadata, index, b"another one")
                    segments[1] = replace(replaced, indexes={**replaced.indexes, index: b"another one"})
                left = synced_files.durable()
            finally:
                await storage.stop()
            synced_files.leave(left)
        storage = make_storage()
        await storage.start()
        try:
            await assert_stored(storage, *segments)
        finally:
            await storage.stop()

    @pytest.mark.asyncio
    async def test_a_copy_takes_no_more_memory_for_a_larger_log(self, storage: RemoteStorage) -> None:
        """`most_copy_memory_bytes` at most: nothing of a segment's log has to fit into memory at once."""
        most = self.most_copy_memory_bytes
        if most is None:
            pytest.skip("it does not say how much memory a copy may take")
        segment = make_segment(1)
        pieces = most * _TIMES_ITS_MEMORY // MEBIBYTE + 1
        metadata = replace(segment.metadata, segment_size_bytes=pieces * MEBIBYTE)

        async def log() -> AsyncIterator[ObjectData]:
            for number in range(pieces):
                yield bytes([number % 251]) * MEBIBYTE

        tracemalloc.start()
        try:
            async with within("a copy ends"):
                custom = await storage.copy(metadata, LogSegmentData(log=log, indexes=lambda: segment.indexes))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await storage.delete(replace(metadata, custom_metadata=custom))
        assert peak <= most + 2 * MEBIBYTE, f"the copy of a log of {pieces} MiB took {peak} bytes of memory"

    @pytest.mark.asyncio
    async def test_a_stopped_storage_leaves_no_thread_no_task_and_no_file_open(self, make_storage: MakeStorage) -> None:
        async def use(number: int) -> None:
            storage = make_storage()
            await storage.start()
            segment = await copied(storage, make_segment(number=number))
            await assert_stored(storage, segment)
            await storage.delete(segment.metadata)
            await assert_absent(storage, segment)
            async with within("a stop ends"):
                await storage.stop()

        await use(0)
        held, tasks = Held(), asyncio.all_tasks()
        for number in range(1, 1 + CYCLES):
            await use(number)
        left = await tasks_left(tasks)
        assert not left, f"a stopped storage leaves no task: these go on: {left}"
        held.assert_no_more("a stopped storage leaves no thread and no file open")

    @pytest.mark.asyncio
    async def test_a_cancelled_read_or_deletion_holds_nobody_up(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        segment = await copied(storage, make_segment())
        for turns in range(6):
            for method in ("fetch", "fetch_index"):
                await _cancel(_call(storage, segment, method)(), turns)
            async with within("a read ends that comes after a cancelled one"):
                await assert_stored(storage, segment)
        for turns in range(6):
            await _cancel(storage.delete(segment.metadata), turns)
            async with within("a call ends that comes after a cancelled deletion"):
                await storage.delete(segment.metadata)
                await assert_absent(reader, segment)
                segment = await copied(storage, make_segment())


def _call(storage: RemoteStorage, segment: Segment, method: str) -> Callable[[], Awaitable[object]]:
    """A call of the method that can be repeated, for a segment that was copied."""
    match method:
        case "copy":
            return lambda: storage.copy(replace(segment.metadata, custom_metadata=None), segment.data())
        case "fetch":
            return lambda: storage.fetch(segment.metadata, 0, len(segment.log))
        case "fetch_index":
            return lambda: storage.fetch_index(segment.metadata, IndexType.OFFSET)
        case _:
            return lambda: storage.delete(segment.metadata)


async def _cancel(call: Awaitable[object], turns: int) -> None:
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    async with within("a call that is cancelled ends"):
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()

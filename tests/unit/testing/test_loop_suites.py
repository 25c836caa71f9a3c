"""The contract suites of object stores and remote storages find what blocks the loop or outlives a cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.remote_storage import LogSegmentData
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, WalObjectStoreError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.testing.loop_stalls import SOME_CALLS, assert_loop_goes_on
from diskless_core.testing.remote_storage import RemoteStorageContract
from diskless_core.testing.wal_object_store import WalObjectStoreContract
from tests.contract.test_wal_object_store import FakeBackDoor

BLOCKED_S = 0.05


class BlockingStore(MemoryWalObjectStore):
    """Sleeps on the loop, after it gave it a turn."""

    async def put(self, key: str, data: ObjectData) -> None:
        await _block()
        await super().put(key, data)

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        await _block()
        return await super().get(key, start, end)

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        await _block()
        async for page in super().list(prefix):
            yield page

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        await _block()
        return await super().delete(keys)


class BoastingStore(MemoryWalObjectStore):
    """Says of all objects that they are gone, whatever became of the deletion."""

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        with suppress(WalObjectStoreError):
            await super().delete(keys)
        return keys


class LeavingStorage(MemoryRemoteStorage):
    """Publishes in a thread that a cancelled copy does not wait for."""

    async def start(self) -> None:
        self.pool = ThreadPoolExecutor(1)

    async def stop(self) -> None:
        self.pool.shutdown()

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        pieces = [bytes(piece) async for piece in data.log()]

        async def log() -> AsyncIterator[ObjectData]:
            for piece in pieces:
                yield piece

        taken = LogSegmentData(log=log, indexes=data.indexes)
        publishing = asyncio.get_running_loop().run_in_executor(
            self.pool, lambda: asyncio.run(MemoryRemoteStorage.copy(self, metadata, taken))
        )
        return await self.settled(publishing)

    async def settled(self, publishing: asyncio.Future[bytes | None]) -> bytes | None:
        return await publishing


class WaitingStorage(LeavingStorage):
    """Waits for it."""

    async def settled(self, publishing: asyncio.Future[bytes | None]) -> bytes | None:
        try:
            return await asyncio.shield(publishing)
        except asyncio.CancelledError:
            await asyncio.wait([publishing])
            raise


class BlockingStorage(MemoryRemoteStorage):
    """Sleeps on the loop, after it gave it a turn."""

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        await _block()
        return await super().copy(metadata, data)

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        await _block()
        return await super().fetch(metadata, start, end)


@pytest.fixture
def on_a_quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round will do, and delays of the machine excuse nothing."""
    monkeypatch.setattr("diskless_core.testing.loop_stalls.ROUNDS", 1)
    monkeypatch.setattr("diskless_core.testing.loop_stalls.FACTOR", 0)


async def test_calls_that_sleep_on_the_loop_are_found(on_a_quiet_machine: None) -> None:
    async def sleeps() -> None:
        for _ in range(SOME_CALLS):
            await _block(0.02)

    with pytest.raises(AssertionError, match="sleeps blocks the event loop"):
        await assert_loop_goes_on("sleeps", sleeps)


async def test_a_loop_that_waits_for_a_processor_is_not_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """All the time in which nothing runs is told to have been such waiting."""

    def run_delay_s(_: int) -> float:
        return time.monotonic() - time.thread_time()

    monkeypatch.setattr("diskless_core.testing.loop_stalls.thread_run_delay_s", run_delay_s)
    await assert_loop_goes_on("a loop that is not let run", _block)


@pytest.mark.parametrize("operation", [lambda: asyncio.sleep(0.1), lambda: asyncio.to_thread(time.sleep, 0.1)])
async def test_what_waits_elsewhere_does_not_block(operation: Callable[[], Awaitable[None]]) -> None:
    await assert_loop_goes_on("waiting", operation)


async def test_work_on_the_loop_is_no_sleep() -> None:
    async def works() -> None:
        sum(range(3_000_000))

    await assert_loop_goes_on("work", works)


@pytest.mark.parametrize("method", ["put", "list"])
async def test_an_object_store_that_sleeps_on_the_loop_is_found(method: str, on_a_quiet_machine: None) -> None:
    with pytest.raises(AssertionError, match=f"{method} blocks the event loop"):
        await WalObjectStoreContract().test_the_event_loop_is_not_blocked(BlockingStore(SystemClock()), method)


async def test_a_remote_storage_that_sleeps_on_the_loop_is_found(on_a_quiet_machine: None) -> None:
    with pytest.raises(AssertionError, match="fetch blocks the event loop"):
        await RemoteStorageContract().test_the_event_loop_is_not_blocked(BlockingStorage(), "fetch")


async def test_a_deletion_that_was_refused_and_is_claimed_is_found() -> None:
    store = BoastingStore(SystemClock())
    with pytest.raises(AssertionError):
        await WalObjectStoreContract().test_what_may_not_be_deleted_is_not_said_to_be_gone(store, FakeBackDoor(store))


async def test_a_cancelled_copy_that_goes_on_is_found() -> None:
    storage = LeavingStorage()
    await storage.start()
    with pytest.raises(AssertionError, match="there is no such segment"):
        await _cancel_copies(storage)


async def test_a_cancelled_copy_that_waits_for_its_thread_passes() -> None:
    storage = WaitingStorage()
    await storage.start()
    await _cancel_copies(storage)


async def _cancel_copies(storage: MemoryRemoteStorage) -> None:
    suite = RemoteStorageContract()
    await suite.test_a_cancelled_copy_leaves_no_thread_behind_that_publishes_it_after_a_deletion(storage, storage)


async def _block(for_s: float = BLOCKED_S) -> None:
    await asyncio.sleep(0)
    _sleep(for_s)


def _sleep(for_s: float) -> None:
    time.sleep(for_s)

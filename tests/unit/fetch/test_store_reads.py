"""Whether the object store answers reads, as a broker tells the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from diskless_core.fetch.store_reads import PROBE_S, StoreReads
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStoreError
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from tests.support.virtual_time import VirtualClock, run

Scene = Callable[[MemoryWalObjectStore, StoreReads], Awaitable[None]]


def play(scene: Scene) -> None:
    async def main() -> None:
        store = MemoryWalObjectStore(VirtualClock(asyncio.get_running_loop()))
        await store.put("a", b"abc")
        await store.put("b", b"xyz")
        reads = StoreReads(store)
        probing = asyncio.create_task(reads.probe())
        try:
            await scene(store, reads)
        finally:
            probing.cancel()

    run(main)


def test_a_store_that_does_not_answer_is_tried_until_it_does_although_nobody_reads() -> None:
    async def scene(store: MemoryWalObjectStore, reads: StoreReads) -> None:
        with store.failing(Operation.GET):
            with pytest.raises(WalObjectStoreError):
                await reads.get("a", 0, 3)
            assert reads.failing is not None
            assert "SlowDown" in reads.failing
            await asyncio.sleep(10 * PROBE_S)
            assert reads.failing is not None
        await asyncio.sleep(1.1 * PROBE_S)
        assert reads.failing is None

    play(scene)


def test_a_store_that_answers_is_not_asked_for_what_nobody_wants() -> None:
    async def scene(store: MemoryWalObjectStore, reads: StoreReads) -> None:
        assert bytes(await reads.get("a", 1, 3)) == b"bc"
        with store.failing(Operation.GET), pytest.raises(WalObjectStoreError):
            await reads.get("a", 0, 3)
        await reads.get("b", 0, 3)
        assert reads.failing is None
        asked = store.calls[Operation.GET]
        await asyncio.sleep(100 * PROBE_S)
        assert store.calls[Operation.GET] == asked

    play(scene)


def test_an_object_that_is_absent_or_forbidden_is_no_failure_of_the_store() -> None:
    def forbidden() -> WalObjectStoreError:
        return WalObjectStoreError("403 Forbidden", retriable=False)

    async def scene(store: MemoryWalObjectStore, reads: StoreReads) -> None:
        with pytest.raises(ObjectNotFoundError):
            await reads.get("absent", 0, 1)
        assert reads.failing is None
        with store.failing(Operation.GET, error=forbidden), pytest.raises(WalObjectStoreError):
            await reads.get("a", 0, 3)
        assert reads.failing is None

    play(scene)


def test_a_store_counts_as_well_again_when_the_object_has_been_deleted_meanwhile() -> None:
    async def scene(store: MemoryWalObjectStore, reads: StoreReads) -> None:
        with store.failing(Operation.GET), pytest.raises(WalObjectStoreError):
            await reads.get("a", 0, 3)
        await store.delete(["a"])
        await asyncio.sleep(1.1 * PROBE_S)
        assert reads.failing is None

    play(scene)

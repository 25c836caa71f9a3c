"""The object store fake misbehaves exactly as it is told to."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation, access_denied


@pytest.fixture
def store() -> MemoryWalObjectStore:
    return MemoryWalObjectStore(SystemClock(seed=1))


async def test_the_next_calls_fail_retriably_and_later_ones_succeed(store: MemoryWalObjectStore) -> None:
    store.fail_next(Operation.PUT, 2)
    for _ in range(2):
        with pytest.raises(WalObjectStoreError, match="503") as caught:
            await store.put("a", b"x")
        assert caught.value.retriable
        assert store.objects == {}
    await store.put("a", b"x")
    assert store.objects == {"a": b"x"}
    assert store.calls[Operation.PUT] == 3


async def test_a_lost_answer_leaves_the_object_in_place(store: MemoryWalObjectStore) -> None:
    store.fail_next(Operation.PUT, takes_effect=True)
    with pytest.raises(WalObjectStoreError):
        await store.put("a", b"x")
    assert store.objects == {"a": b"x"}


async def test_an_outage_ends_with_its_context(store: MemoryWalObjectStore) -> None:
    store.objects["a"] = b"x"
    with store.failing(Operation.GET, error=access_denied):
        for _ in range(3):
            with pytest.raises(WalObjectStoreError, match="AccessDenied") as caught:
                await store.get("a", 0, 1)
            assert not caught.value.retriable
        await store.put("b", b"y")
    assert await store.get("a", 0, 1) == b"x"


async def test_listing_and_deleting_fail_too(store: MemoryWalObjectStore) -> None:
    store.fail_next(Operation.LIST)
    store.fail_next(Operation.DELETE)
    with pytest.raises(WalObjectStoreError):
        await anext(aiter(store.list()))
    with pytest.raises(WalObjectStoreError):
        await store.delete(["a"])


async def test_held_calls_have_no_effect_until_they_are_released(store: MemoryWalObjectStore) -> None:
    with store.hold(Operation.PUT) as hold:
        puts = [asyncio.create_task(store.put(key, b"x")) for key in "abc"]
        await hold.reached(3)
        assert store.objects == {}
        hold.release()
        await asyncio.gather(*puts)
    assert store.objects.keys() == {"a", "b", "c"}
    await store.put("d", b"x")


async def test_the_end_of_a_hold_releases_what_waits(store: MemoryWalObjectStore) -> None:
    with store.hold(Operation.GET) as hold:
        store.objects["a"] = b"x"
        get = asyncio.create_task(store.get("a", 0, 1))
        await hold.reached()
    assert await get == b"x"


async def test_a_cancelled_call_leaves_the_hold(store: MemoryWalObjectStore) -> None:
    with store.hold(Operation.PUT) as hold:
        put = asyncio.create_task(store.put("a", b"x"))
        await hold.reached()
        put.cancel()
        await asyncio.wait([put])
        assert hold.waiting == 0
    assert store.objects == {}


async def test_a_delay_lets_others_go_first(store: MemoryWalObjectStore) -> None:
    store.delay(Operation.PUT, 0.01)
    put = asyncio.create_task(store.put("a", b"x"))
    await store.delete(["other"])
    assert store.objects == {}
    await put
    assert store.objects == {"a": b"x"}


async def test_a_body_that_changes_while_it_is_written_is_reported(store: MemoryWalObjectStore) -> None:
    body = bytearray(b"before")
    with store.hold(Operation.PUT) as hold:
        put = asyncio.create_task(store.put("a", body))
        await hold.reached()
        body[:] = b"after."
    with pytest.raises(AssertionError, match="changed"):
        await put

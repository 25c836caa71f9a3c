"""The object store fake misbehaves exactly as it is told to."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.wal_object_store import ConditionFailedError, VersionedObject, WalObjectStoreError
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation, access_denied, timed_out


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


async def test_a_late_create_arrives_when_the_test_lets_it(store: MemoryWalObjectStore) -> None:
    store.be_late(Operation.CREATE)
    with pytest.raises(WalObjectStoreError, match="timed out"):
        await store.create("a", b"late")
    assert "a" not in store.objects
    store.late.popleft()()
    assert store.objects == {"a": b"late"}
    with pytest.raises(ConditionFailedError):
        await store.create("a", b"second")


async def test_a_late_create_loses_against_what_came_before_it(store: MemoryWalObjectStore) -> None:
    store.be_late(Operation.CREATE)
    with pytest.raises(WalObjectStoreError):
        await store.create("a", b"late")
    await store.create("a", b"first")
    store.late.popleft()()
    assert store.objects == {"a": b"first"}


async def test_a_late_replace_arrives_only_if_the_version_is_still_the_one(store: MemoryWalObjectStore) -> None:
    version = await store.create("a", b"1")
    store.be_late(Operation.REPLACE, 2)
    for data in (b"2", b"3"):
        with pytest.raises(WalObjectStoreError, match="timed out"):
            await store.replace("a", data, version)
    for arrive in store.late:
        arrive()
    assert store.objects == {"a": b"2"}


async def test_a_create_that_took_effect_can_be_answered_by_a_refusal_or_not_at_all(
    store: MemoryWalObjectStore,
) -> None:
    store.fail_next(Operation.CREATE, error=lambda: ConditionFailedError("a"), takes_effect=True)
    with pytest.raises(ConditionFailedError):
        await store.create("a", b"own")
    store.fail_next(Operation.CREATE, error=timed_out, takes_effect=True)
    with pytest.raises(WalObjectStoreError, match="timed out"):
        await store.create("b", b"own")
    assert store.objects == {"a": b"own", "b": b"own"}


async def test_a_create_that_fails_before_it_takes_effect_leaves_nothing(store: MemoryWalObjectStore) -> None:
    store.fail_next(Operation.CREATE)
    with pytest.raises(WalObjectStoreError, match="503"):
        await store.create("a", b"x")
    assert store.objects == {}
    await store.create("a", b"x")


async def test_a_version_comes_back_with_the_bytes(store: MemoryWalObjectStore) -> None:
    first = await store.create("a", b"1")
    second = await store.replace("a", b"2", first)
    assert second != first
    assert await store.replace("a", b"1", second) == first
    assert await store.get_versioned("a") == VersionedObject(b"1", first)

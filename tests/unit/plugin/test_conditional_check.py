"""A store that breaks a promise of conditional writes is found, whichever it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.conditional_check import UnsafeStoreError, check_conditional_writes
from diskless_core.plugin.wal_object_store import (
    ConditionFailedError,
    ObjectData,
    ObjectInfo,
    VersionedObject,
    WalObjectStoreError,
)
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation, access_denied, timed_out

CLOCK = SystemClock()


class CreatesAlways(MemoryWalObjectStore):
    """As a service that does not know If-None-Match."""

    async def create(self, key: str, data: ObjectData) -> str:
        await self.put(key, data)
        return (await self.get_versioned(key)).version


class LooksFirst(MemoryWalObjectStore):
    """As fsspec's own `mode="create"`."""

    async def create(self, key: str, data: ObjectData) -> str:
        if key in self.objects:
            raise ConditionFailedError(key)
        await asyncio.sleep(0)
        await self.put(key, data)
        return (await self.get_versioned(key)).version


class ReplacesAlways(MemoryWalObjectStore):
    """As a service that does not know If-Match."""

    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        await self.put(key, data)
        return (await self.get_versioned(key)).version


class ComparesFirst(MemoryWalObjectStore):
    """Compares and writes, and others come in between."""

    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        if (await self.get_versioned(key)).version != version:
            raise ConditionFailedError(key)
        await asyncio.sleep(0)
        await self.put(key, data)
        return (await self.get_versioned(key)).version


class WritesWhatItRefuses(MemoryWalObjectStore):
    """The last one's bytes stay, and the first one is told that it has won."""

    async def create(self, key: str, data: ObjectData) -> str:
        try:
            return await super().create(key, data)
        except ConditionFailedError:
            self.objects[key] = bytes(data)
            raise


class RefusesAll(MemoryWalObjectStore):
    async def create(self, key: str, data: ObjectData) -> str:
        raise ConditionFailedError(key)


class ReadsStale(MemoryWalObjectStore):
    """As with a cache in between."""

    def __init__(self, clock: SystemClock) -> None:
        super().__init__(clock)
        self.cached: dict[str, VersionedObject] = {}

    async def get_versioned(self, key: str) -> VersionedObject:
        if key not in self.cached:
            self.cached[key] = await super().get_versioned(key)
        return self.cached[key]


class ListsStale(MemoryWalObjectStore):
    """Knows an object in listings from the first one on, and not as it was changed."""

    def __init__(self, clock: SystemClock) -> None:
        super().__init__(clock)
        self.cached: dict[str, ObjectInfo] = {}

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        async for page in super().list(prefix):
            yield [self.cached.setdefault(info.key, info) for info in page]


class TellsWrongVersions(MemoryWalObjectStore):
    async def create(self, key: str, data: ObjectData) -> str:
        return f"W/{await super().create(key, data)}"


class LosesObjects(MemoryWalObjectStore):
    async def create(self, key: str, data: ObjectData) -> str:
        version = await super().create(key, data)
        del self.objects[key]
        return version


@pytest.mark.parametrize(
    ("make", "broken"),
    [
        (CreatesAlways, "told 8 writers at once that they had created an object"),
        (LooksFirst, "told 8 writers at once that they had created an object"),
        (ReplacesAlways, "told 8 writers at once that they had replaced one version"),
        (ComparesFirst, "told 8 writers at once that they had replaced one version"),
        (WritesWhatItRefuses, "gave other bytes than were stored"),
        (RefusesAll, "told all of 8 writers that they had not created an object"),
        (ReadsStale, "gave other bytes than were stored"),
        (ListsStale, "did not list the object as it was"),
        (TellsWrongVersions, "gave another version than it had told"),
        (LosesObjects, r"told . writers at once|did not find the object"),
    ],
)
async def test_a_store_that_breaks_a_promise_is_refused_by_name(
    make: Callable[[SystemClock], MemoryWalObjectStore], broken: str
) -> None:
    store = make(CLOCK)
    with pytest.raises(UnsafeStoreError, match=broken) as caught:
        await check_conditional_writes(store, "wal_object_store=vendor", "wal-log/check/", CLOCK)
    assert not caught.value.retriable
    assert str(caught.value).startswith("wal_object_store=vendor ")
    assert "use a store that" in str(caught.value)
    assert store.objects == {}


async def test_a_store_that_creates_twice_only_one_after_the_other_is_found() -> None:
    class ForgetsItsRaces(CreatesAlways):
        """Honours the condition between concurrent requests only."""

        async def create(self, key: str, data: ObjectData) -> str:
            if data == b"too late":
                return await super().create(key, data)
            return await MemoryWalObjectStore.create(self, key, data)

    with pytest.raises(UnsafeStoreError, match="created an object that was there"):
        await check_conditional_writes(ForgetsItsRaces(CLOCK), "vendor", "check/", CLOCK)


async def test_a_good_store_passes_and_nothing_is_left() -> None:
    store = MemoryWalObjectStore(CLOCK, page_objects=3)
    store.objects["wal-log/other"] = b"stays"
    await check_conditional_writes(store, "vendor", "wal-log/check/", CLOCK)
    assert store.objects == {"wal-log/other": b"stays"}
    assert store.calls[Operation.CREATE] == 20 * 9
    assert store.calls[Operation.REPLACE] == 20 * 9


async def test_what_a_client_library_or_a_lost_answer_does_is_no_broken_promise() -> None:
    store = MemoryWalObjectStore(CLOCK)
    store.fail_next(Operation.CREATE, 1, error=lambda: ConditionFailedError("own"), takes_effect=True)
    store.fail_next(Operation.REPLACE, 1, error=timed_out, takes_effect=True)
    await check_conditional_writes(store, "vendor", "check/", CLOCK, rounds=1)
    assert store.objects == {}


async def test_a_store_that_cannot_answer_is_not_called_unsafe() -> None:
    store = MemoryWalObjectStore(CLOCK)
    with (
        store.failing(Operation.CREATE),
        pytest.raises(WalObjectStoreError, match="could not be tried out: 503") as caught,
    ):
        await check_conditional_writes(store, "vendor", "check/", CLOCK)
    assert caught.value.retriable
    assert not isinstance(caught.value, UnsafeStoreError)
    assert store.calls[Operation.CREATE] <= 4 * 8
    with store.failing(Operation.REPLACE, error=access_denied), pytest.raises(WalObjectStoreError) as caught:
        await check_conditional_writes(store, "vendor", "check/", CLOCK)
    assert not caught.value.retriable
    assert store.objects == {}


async def test_a_store_that_does_not_delete_is_refused() -> None:
    class Keeps(MemoryWalObjectStore):
        async def delete(self, keys: Sequence[str]) -> Sequence[str]:
            return keys

    with pytest.raises(WalObjectStoreError, match="vendor did not delete 'check/"):
        await check_conditional_writes(Keeps(CLOCK), "vendor", "check/", CLOCK)

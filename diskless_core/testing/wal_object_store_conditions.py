"""The part of the `wal_object_store` contract that is about conditional writes, an ability that a store may have."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, ClassVar

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.conditional_check import check_conditional_writes
from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectNotFoundError,
    VersionedObject,
    WalObjectStore,
)
from diskless_core.testing.loop_stalls import SOME_CALLS, assert_loop_goes_on
from diskless_core.testing.patience import within
from diskless_core.testing.wal_object_store_tools import (
    KEY,
    MEBIBYTE,
    TIMEOUT_S,
    ObjectBackDoor,
    body,
    listed,
    read_whole,
)

ROUNDS = 10
AT_ONCE = 8

_NO_VERSION = "no-version-of-anything"

_LATE_S = 0.4
"""What was cancelled and goes on all the same has arrived by then."""


class ConditionalWritesContract:
    """Creating and replacing on condition; `WalObjectStoreContract` includes it.

    Attributes:
        writes_on_condition: whether the store is a `ConditionalObjectStore`. Without it these tests skip.
        never_a_version: a version of the right form that no object has ever had.
        shares_keys: whether one key may be written by several, and be read while it is replaced. The broker never does
            so with `put`, for its keys are unique.
    """

    writes_on_condition: ClassVar[bool] = False
    never_a_version: ClassVar[str] = _NO_VERSION
    shares_keys: ClassVar[bool] = True

    @pytest.fixture
    def conditional(self, started: WalObjectStore) -> ConditionalObjectStore:
        """The store, started."""
        if not self.writes_on_condition:
            pytest.skip("this store does not claim to write on condition (writes_on_condition)")
        assert isinstance(started, ConditionalObjectStore)
        return started

    @pytest.mark.asyncio
    async def test_a_store_says_truly_whether_it_writes_on_condition(self, started: WalObjectStore) -> None:
        assert isinstance(started, ConditionalObjectStore) == self.writes_on_condition

    @pytest.mark.asyncio
    async def test_an_object_is_created_where_there_is_none(
        self, conditional: ConditionalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        version = await conditional.create(KEY, b"first")
        assert back_door.read(KEY) == b"first"
        assert await conditional.get_versioned(KEY) == VersionedObject(b"first", version)
        assert (await listed(conditional))[KEY].size_bytes == 5

    @pytest.mark.asyncio
    async def test_what_is_there_is_not_created_again(
        self, conditional: ConditionalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        await conditional.create(KEY, b"first")
        back_door.write(f"{KEY}-2", b"from elsewhere")
        for key in (KEY, f"{KEY}-2"):
            there = back_door.read(key)
            for data in (b"second", b"first", b""):
                with pytest.raises(ConditionFailedError):
                    await conditional.create(key, data)
            assert back_door.read(key) == there

    @pytest.mark.asyncio
    async def test_of_concurrent_creates_one_wins_and_nothing_of_the_others_is_ever_seen(
        self, conditional: ConditionalObjectStore
    ) -> None:
        for number in range(ROUNDS):
            key = f"rounds/{number:03}"
            bodies = [body(1000 + 10 * writer, writer) for writer in range(AT_ONCE)]
            versions = await self.race(*(conditional.create(key, data) for data in bodies))
            won = self.only_winner(versions)
            assert await conditional.get_versioned(key) == VersionedObject(bodies[won], versions[won] or "")
            assert await read_whole(conditional, key) == bodies[won]
            there = await listed(conditional, "rounds/")
            assert there[key].size_bytes == len(bodies[won])
            assert set(there) == {f"rounds/{earlier:03}" for earlier in range(number + 1)}, "a loser left an object"

    @pytest.mark.asyncio
    async def test_of_concurrent_replaces_of_a_version_one_wins(self, conditional: ConditionalObjectStore) -> None:
        version = await conditional.create(KEY, b"first")
        for number in range(ROUNDS):
            bodies = [body(1000 + writer, AT_ONCE * number + writer) for writer in range(AT_ONCE)]
            versions = await self.race(*(conditional.replace(KEY, data, version) for data in bodies))
            won = self.only_winner(versions)
            version = versions[won] or ""
            assert await conditional.get_versioned(KEY) == VersionedObject(bodies[won], version)
            assert (await listed(conditional))[KEY].size_bytes == len(bodies[won])

    @pytest.mark.asyncio
    async def test_creates_of_different_keys_do_not_hinder_each_other(
        self, conditional: ConditionalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        keys = [f"many/{number % 3}/{number:03}" for number in range(30)]
        versions = await self.race(*(conditional.create(key, key.encode()) for key in keys))
        assert None not in versions
        assert {key: back_door.read(key) for key in keys} == {key: key.encode() for key in keys}

    @pytest.mark.asyncio
    async def test_an_object_that_was_deleted_can_be_created_again(self, conditional: ConditionalObjectStore) -> None:
        for data in (b"first", b"second", b"third"):
            version = await conditional.create(KEY, data)
            assert await conditional.get_versioned(KEY) == VersionedObject(data, version)
            assert list(await conditional.delete([KEY])) == [KEY]
            with pytest.raises(ObjectNotFoundError):
                await conditional.get_versioned(KEY)

    @pytest.mark.asyncio
    async def test_an_absent_object_is_not_replaced(
        self, conditional: ConditionalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        version = await conditional.create(KEY, b"first")
        await conditional.delete([KEY])
        for key in (KEY, "nowhere/at/all"):
            with pytest.raises(ConditionFailedError):
                await conditional.replace(key, b"second", version)
            assert back_door.read(key) is None

    @pytest.mark.asyncio
    async def test_only_the_version_that_is_there_is_replaced(
        self, conditional: ConditionalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        first = await conditional.create(KEY, b"first")
        second = await conditional.replace(KEY, b"second", first)
        for version in (first, self.never_a_version):
            with pytest.raises(ConditionFailedError):
                await conditional.replace(KEY, b"third", version)
        assert back_door.read(KEY) == b"second"
        await conditional.replace(KEY, b"third", second)
        assert back_door.read(KEY) == b"third"

    @pytest.mark.asyncio
    async def test_a_version_that_was_read_is_one_that_can_be_replaced(
        self, conditional: ConditionalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        back_door.write(KEY, b"from elsewhere")
        found = await conditional.get_versioned(KEY)
        assert found.data == b"from elsewhere"
        version = await conditional.replace(KEY, b"second", found.version)
        assert await conditional.get_versioned(KEY) == VersionedObject(b"second", version)

    @pytest.mark.asyncio
    async def test_a_change_by_other_means_is_another_version(
        self, conditional: ConditionalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        version = await conditional.create(KEY, b"first")
        assert (await conditional.get_versioned(KEY)).version == version
        back_door.write(KEY, b"other")
        with pytest.raises(ConditionFailedError):
            await conditional.replace(KEY, b"second", version)
        assert back_door.read(KEY) == b"other"
        found = await conditional.get_versioned(KEY)
        assert found.data == b"other", "what was changed by other means is read as it was before"
        assert found.version != version
        version = found.version
        await conditional.put(KEY, b"again")
        with pytest.raises(ConditionFailedError):
            await conditional.replace(KEY, b"second", version)
        assert back_door.read(KEY) == b"again"

    @pytest.mark.asyncio
    async def test_versions_differ_with_every_change(self, conditional: ConditionalObjectStore) -> None:
        version = await conditional.create(KEY, b"0000")
        seen = {version}
        for number in range(1, 20):
            version = await conditional.replace(KEY, b"%04d" % number, version)
            seen.add(version)
        assert len(seen) == 20

    @pytest.mark.asyncio
    async def test_every_write_is_read_and_listed_at_once(self, conditional: ConditionalObjectStore) -> None:
        for number in range(20):
            key = f"seen/{number}"
            with pytest.raises(ObjectNotFoundError):
                await conditional.get_versioned(key)
            version = await conditional.create(key, b"x" * number)
            assert await conditional.get_versioned(key) == VersionedObject(b"x" * number, version)
            version = await conditional.replace(key, b"y" * (number + 1), version)
            assert await conditional.get_versioned(key) == VersionedObject(b"y" * (number + 1), version)
            assert (await listed(conditional, "seen/"))[key].size_bytes == number + 1

    @pytest.mark.asyncio
    @pytest.mark.parametrize("size_bytes", [0, 1, 4095, 65_537, 4 * MEBIBYTE])
    async def test_objects_of_all_sizes_are_written_whole(
        self, conditional: ConditionalObjectStore, back_door: ObjectBackDoor, size_bytes: int
    ) -> None:
        version = await conditional.create(KEY, body(size_bytes))
        assert back_door.read(KEY) == body(size_bytes)
        assert await conditional.get_versioned(KEY) == VersionedObject(body(size_bytes), version)
        version = await conditional.replace(KEY, memoryview(body(size_bytes, 1)), version)
        assert back_door.read(KEY) == body(size_bytes, 1)
        assert await conditional.get_versioned(KEY) == VersionedObject(body(size_bytes, 1), version)

    @pytest.mark.asyncio
    async def test_what_is_given_to_a_conditional_write_is_the_callers_again_at_return(
        self, conditional: ConditionalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        data = bytearray(body(70_000))
        version = await conditional.create(KEY, data)
        data[:] = bytes(len(data))
        assert back_door.read(KEY) == body(70_000), "a created object changes with the memory that was given"
        assert await conditional.get_versioned(KEY) == VersionedObject(body(70_000), version)
        data[:] = body(70_000, 1)
        version = await conditional.replace(KEY, data, version)
        data[:] = bytes(len(data))
        assert back_door.read(KEY) == body(70_000, 1), "a replaced object changes with the memory that was given"
        assert await conditional.get_versioned(KEY) == VersionedObject(body(70_000, 1), version)

    @pytest.mark.asyncio
    async def test_an_object_is_read_with_the_version_that_it_has(self, conditional: ConditionalObjectStore) -> None:
        self.require_shared_keys()
        bodies = [body(20_000, seed) for seed in range(20)]
        written: dict[str, bytes] = {}
        seen: list[VersionedObject] = []

        async def write() -> None:
            version = await conditional.create(KEY, bodies[0])
            written[version] = bodies[0]
            seen.append(await conditional.get_versioned(KEY))
            for data in bodies[1:]:
                version = await conditional.replace(KEY, data, version)
                written[version] = data

        async with within("an object is replaced and read"):
            writing = asyncio.create_task(write())
            while not writing.done():
                await asyncio.sleep(0)
                with suppress(ObjectNotFoundError):
                    seen.append(await conditional.get_versioned(KEY))
            await writing
        for found in seen:
            assert written.get(found.version) == found.data, "an object was read with the version of other bytes"

    @pytest.mark.asyncio
    async def test_a_create_that_is_cancelled_takes_place_wholly_or_not_at_all(
        self, conditional: ConditionalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        first, second = body(MEBIBYTE, 1), body(MEBIBYTE, 2)
        there: dict[str, bytes] = {}
        for turns in range(12):
            key = f"cancelled/{turns}"
            creating = asyncio.create_task(conditional.create(key, first))
            for _ in range(turns):
                await asyncio.sleep(0)
            creating.cancel()
            await asyncio.wait([creating])
            try:
                await conditional.create(key, second)
            except ConditionFailedError:
                there[key] = first
            else:
                assert creating.cancelled()
                there[key] = second
            assert back_door.read(key) == there[key]
        assert set(await listed(conditional)) == {*there}, (
            "a create that was cancelled leaves an object of another name"
        )
        await asyncio.sleep(_LATE_S)
        for key, data in there.items():
            assert back_door.read(key) == data, "of two creates both have taken effect: one came late, it was cancelled"

    @pytest.mark.asyncio
    @pytest.mark.parametrize("method", ["create", "replace", "get_versioned"])
    async def test_the_event_loop_is_not_blocked_by_conditional_writes(
        self, conditional: ConditionalObjectStore, method: str
    ) -> None:
        data = body(MEBIBYTE)
        number = 0
        version = await conditional.create(KEY, data)

        async def use() -> None:
            nonlocal number, version
            for _ in range(SOME_CALLS):
                number += 1
                match method:
                    case "create":
                        await conditional.create(f"create/{number}", data)
                    case "replace":
                        version = await conditional.replace(KEY, data[number:], version)
                    case _:
                        await conditional.get_versioned(KEY)

        async with asyncio.timeout(TIMEOUT_S):
            await assert_loop_goes_on(method, use)

    @pytest.mark.asyncio
    async def test_the_trial_of_conditional_writes_passes_and_leaves_nothing(
        self, conditional: ConditionalObjectStore
    ) -> None:
        async with within("what the store was asked for ends"):
            await check_conditional_writes(conditional, "the store", "trial/", SystemClock())
        assert await listed(conditional) == {}

    async def race(self, *writes: Coroutine[Any, Any, str]) -> list[str | None]:
        """The version that each write has made, None where it was refused."""
        async with within("what the store was asked for ends"):
            results = await asyncio.gather(*writes, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, ConditionFailedError):
                raise result
        return [result if isinstance(result, str) else None for result in results]

    def only_winner(self, versions: list[str | None]) -> int:
        """Who of all has written."""
        winners = [number for number, version in enumerate(versions) if version is not None]
        assert len(winners) == 1
        return winners[0]

    def require_shared_keys(self) -> None:
        """Skip a test of what happens to one key in several hands."""
        if not self.shares_keys:
            pytest.skip("this store does not claim that one key may be used by several at once (shares_keys)")

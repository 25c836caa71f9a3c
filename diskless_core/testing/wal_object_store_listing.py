"""The part of the `wal_object_store` contract that is about listing and deleting, and the fixtures of all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import ClassVar

import pytest
import pytest_asyncio

from diskless_core.clock import SystemClock
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore, WalObjectStoreError
from diskless_core.testing.wal_object_store_tools import (
    KEY,
    ObjectBackDoor,
    body,
    listed,
    pages,
    read_whole,
)

_MODIFIED_TOLERANCE_MS = 10_000


class ObjectListingContract:
    """Listing and deleting; `WalObjectStoreContract` includes it.

    Attributes:
        page_objects: how many objects the store lists in one page; some more than these are written to see several.
            0 skips the tests that need several pages.
    """

    page_objects: ClassVar[int] = 1000

    @pytest.fixture
    def store(self) -> WalObjectStore:
        """A store on an empty place, not started."""
        raise NotImplementedError("give this fixture in the subclass")

    @pytest.fixture
    def back_door(self) -> ObjectBackDoor:
        """Another way to the place behind `store`."""
        raise NotImplementedError("give this fixture in the subclass")

    @pytest_asyncio.fixture
    async def started(self, store: WalObjectStore) -> AsyncIterator[WalObjectStore]:
        await store.start()
        try:
            yield store
        finally:
            await store.stop()

    @pytest.mark.asyncio
    async def test_a_new_place_lists_nothing(self, started: WalObjectStore) -> None:
        assert await listed(started) == {}
        assert await listed(started, "prefix/") == {}

    @pytest.mark.asyncio
    async def test_a_listing_tells_key_size_and_time(self, started: WalObjectStore, back_door: ObjectBackDoor) -> None:
        now_ms = SystemClock().now_ms()
        back_door.write("one", body(1))
        back_door.write("a/b/two", body(2000))
        found = await listed(started)
        assert {info.key: info.size_bytes for info in found.values()} == {"one": 1, "a/b/two": 2000}
        assert all(abs(info.modified_ms - now_ms) < _MODIFIED_TOLERANCE_MS for info in found.values())

    @pytest.mark.asyncio
    async def test_the_time_of_an_object_that_does_not_change_stays(self, started: WalObjectStore) -> None:
        await started.put(KEY, b"x")
        first = (await listed(started))[KEY]
        for _ in range(3):
            await asyncio.sleep(0.02)
            await started.get(KEY, 0, 1)
            assert (await listed(started))[KEY] == first, "an object that nobody has changed has another time"

    @pytest.mark.asyncio
    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("", {"a", "ab/c", "ab/cd/e", "ab/ce", "b"}),
            ("ab", {"ab/c", "ab/cd/e", "ab/ce"}),
            ("ab/", {"ab/c", "ab/cd/e", "ab/ce"}),
            ("ab/c", {"ab/c", "ab/cd/e", "ab/ce"}),
            ("ab/cd", {"ab/cd/e"}),
            ("ab/cd/", {"ab/cd/e"}),
            ("ab/cd/e", {"ab/cd/e"}),
            ("ab/cd/e/", set()),
            ("a", {"a", "ab/c", "ab/cd/e", "ab/ce"}),
            ("b/", set()),
            ("zz/top", set()),
        ],
    )
    async def test_a_listing_finds_what_starts_with_the_prefix_and_nothing_else(
        self, started: WalObjectStore, back_door: ObjectBackDoor, prefix: str, expected: set[str]
    ) -> None:
        for key in ("a", "ab/c", "ab/cd/e", "ab/ce", "b"):
            back_door.write(key, b"x")
        assert set(await listed(started, prefix)) == expected

    @pytest.mark.asyncio
    async def test_a_long_listing_comes_in_pages_and_is_complete(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        keys = self.more_than_a_page(back_door)
        found: list[str] = []
        pages = 0
        async for page in started.list("paged/"):
            pages += 1
            found += [info.key for info in page]
        assert pages > 1
        assert set(found) == keys

    @pytest.mark.asyncio
    async def test_deletes_during_a_listing_hide_nothing_that_stays(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        keys = self.more_than_a_page(back_door)
        doomed = {key for number, key in enumerate(sorted(keys)) if number % 3 == 0}
        found: set[str] = set()
        async for page in started.list("paged/"):
            if not found:
                await started.delete(sorted(doomed))
            found |= {info.key for info in page}
        assert found >= keys - doomed
        assert set(await listed(started, "paged/")) == keys - doomed

    @pytest.mark.asyncio
    async def test_writes_during_a_listing_hide_nothing_that_was_there(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        keys = self.more_than_a_page(back_door)
        new = {f"paged/{number % 5}/{prefix}{number}" for number in range(10) for prefix in ("!", "new-")}
        found: set[str] = set()
        async for page in started.list("paged/"):
            if not found:
                await asyncio.gather(*(started.put(key, b"new") for key in new))
            found |= {info.key for info in page}
        assert keys <= found <= keys | new
        assert set(await listed(started, "paged/")) == keys | new

    @pytest.mark.asyncio
    async def test_a_listing_may_be_left_early_and_begun_again(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        keys = self.more_than_a_page(back_door)
        async with aclosing(pages(started, "paged/")) as listing:
            assert await anext(listing)
        assert set(await listed(started, "paged/")) == keys

    @pytest.mark.asyncio
    async def test_a_delete_removes_the_objects_named_and_no_others(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        for key in ("d/a", "d/ab", "d/a-", "e"):
            back_door.write(key, b"x")
        assert set(await started.delete(["d/a", "e"])) == {"d/a", "e"}
        assert [back_door.read(key) for key in ("d/a", "d/ab", "d/a-", "e")] == [None, b"x", b"x", None]
        with pytest.raises(ObjectNotFoundError):
            await started.get("d/a", 0, 1)

    @pytest.mark.asyncio
    async def test_an_absent_object_counts_as_deleted(self, started: WalObjectStore, back_door: ObjectBackDoor) -> None:
        back_door.write("d/a", b"x")
        keys = ["absent", "d/a", "no/such/folder"]
        assert set(await started.delete(keys)) == set(keys)
        assert set(await started.delete(keys)) == set(keys)
        assert back_door.read("d/a") is None

    @pytest.mark.asyncio
    async def test_what_may_not_be_deleted_is_not_said_to_be_gone(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        """It may raise an error, or return the others."""
        keys = ["kept/a", "kept/b", "kept/c"]
        for key in keys:
            back_door.write(key, b"x")
        back_door.protect("kept/b")
        with suppress(WalObjectStoreError):
            gone = set(await started.delete(keys))
            assert gone <= {"kept/a", "kept/c"}
            assert all(back_door.read(key) is None for key in gone)
        assert back_door.read("kept/b") == b"x"

    @pytest.mark.asyncio
    async def test_deleting_nothing_deletes_nothing(self, started: WalObjectStore, back_door: ObjectBackDoor) -> None:
        back_door.write(KEY, b"x")
        assert list(await started.delete([])) == []
        assert back_door.read(KEY) == b"x"

    @pytest.mark.asyncio
    async def test_more_objects_than_a_page_are_deleted_in_one_call(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        keys = self.more_than_a_page(back_door)
        assert set(await started.delete(sorted(keys))) == keys
        assert await listed(started) == {}

    @pytest.mark.asyncio
    async def test_a_deleted_key_can_be_written_again(self, started: WalObjectStore, back_door: ObjectBackDoor) -> None:
        for data in (b"first", b"second", b"third"):
            await started.put(KEY, data)
            assert back_door.read(KEY) == data
            assert await read_whole(started, KEY) == data
            assert list(await listed(started)) == [KEY]
            await started.delete([KEY])
            assert back_door.read(KEY) is None, "delete says of an object that it is gone, and it is there"
            assert await listed(started) == {}, "what was deleted is listed"
            for end in (10, 2**40):
                with pytest.raises(ObjectNotFoundError):
                    await started.get(KEY, 0, end)

    def more_than_a_page(self, back_door: ObjectBackDoor) -> set[str]:
        """Write some more objects than a page holds, below `paged/`, or skip."""
        if not self.page_objects:
            pytest.skip("this store does not say how many objects make a page (page_objects)")
        keys = {f"paged/{number % 5}/{number:05}" for number in range(self.page_objects + 5)}
        for key in keys:
            back_door.write(key, b"x")
        return keys

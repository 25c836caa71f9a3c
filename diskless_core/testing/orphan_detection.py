"""Contract suite of the noun `orphan_detection`: what every detector has to pass.

Subclass `OrphanDetectionContract` in a test module and give it the fixture `detection`; needs pytest and
pytest-asyncio.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanDetectionError, OrphanSearch
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation, access_denied
from diskless_core.wal.format import object_key

PREFIX = "wal/"
THRESHOLD_MS = 1_700_000_000_000
PAGE_OBJECTS = 3


def keys_created_at(times_ms: Iterable[int], prefix: str = PREFIX) -> list[str]:
    """Keys of WAL objects, one for each of the times."""
    return [object_key(prefix.rstrip("/"), time_ms, uuid.UUID(int=index)) for index, time_ms in enumerate(times_ms)]


def search_of(objects: MemoryWalObjectStore) -> OrphanSearch:
    """A search in this process; without snapshots, so that coordinators know nothing."""
    return OrphanSearch(
        prefix=PREFIX,
        threshold_ms=THRESHOLD_MS,
        list_objects=objects.list,
        objects=lambda: objects,
        snapshot_prefix="wal-snapshots",
        note_listed=lambda _: None,
    )


async def found_by(detection: OrphanDetection, search: OrphanSearch) -> list[str]:
    """All keys of all pages."""
    return [key async for page in detection.find(search) for key in page]


class OrphanDetectionContract:
    """A detector passes if a subclass with `detection` overridden does.

    The core asks the coordinators for all that a detector yields, so that no test knows of a committed object.
    """

    @pytest.fixture
    def detection(self) -> OrphanDetection:
        """The detector, as its factory makes it."""
        raise NotImplementedError("give this fixture in the subclass")

    @pytest.fixture
    def objects(self) -> MemoryWalObjectStore:
        """The WAL object store behind `search`. Its pages are small, so that a few objects make several."""
        return MemoryWalObjectStore(SystemClock(), page_objects=PAGE_OBJECTS)

    @pytest.fixture
    def search(self, objects: MemoryWalObjectStore) -> OrphanSearch:
        """What the detector is given."""
        return search_of(objects)

    @pytest.mark.asyncio
    async def test_an_empty_store_has_no_orphans(self, detection: OrphanDetection, search: OrphanSearch) -> None:
        assert await found_by(detection, search) == []

    @pytest.mark.asyncio
    async def test_every_object_from_before_the_threshold_is_found_on_however_many_pages(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        old = keys_created_at([0, 1, THRESHOLD_MS - 1, *range(THRESHOLD_MS - 50, THRESHOLD_MS - 40)])
        objects.objects = dict.fromkeys(old, b"")
        assert set(old) <= set(await found_by(detection, search))

    @pytest.mark.asyncio
    async def test_what_is_no_candidate_hides_none(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        old = keys_created_at([THRESHOLD_MS - 1] * 5)
        young = keys_created_at(range(THRESHOLD_MS, THRESHOLD_MS + 3 * PAGE_OBJECTS))
        strangers = [*keys_created_at([1] * PAGE_OBJECTS, "other/"), "wal/readme.txt", "wal/00/", "wal-1/00/1-x", "x"]
        objects.objects = dict.fromkeys([*young, *strangers, *old], b"")
        assert {key for key in await found_by(detection, search) if search.is_candidate(key)} == set(old)

    @pytest.mark.asyncio
    async def test_a_later_search_finds_what_is_still_there_and_what_has_come(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        first, second = keys_created_at([1, 2])
        objects.objects[first] = b""
        assert first in await found_by(detection, search)
        objects.objects[second] = b""
        assert {first, second} <= set(await found_by(detection, search))

    @pytest.mark.asyncio
    async def test_a_search_goes_by_its_own_threshold(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        early, late = keys_created_at([1_000, 2_000])
        objects.objects = dict.fromkeys([early, late], b"")
        for threshold_ms, candidates in ((1_500, {early}), (2_500, {early, late}), (500, set[str]())):
            assert candidates <= set(await found_by(detection, replace(search, threshold_ms=threshold_ms)))

    @pytest.mark.asyncio
    async def test_what_is_deleted_while_it_looks_hides_nothing(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        old = keys_created_at(range(1, 5 * PAGE_OBJECTS))
        objects.objects = dict.fromkeys(old, b"")
        found: set[str] = set()
        async for page in detection.find(search):
            found.update(page)
            await objects.delete(page)
        assert found >= set(old)

    @pytest.mark.asyncio
    async def test_a_search_that_was_given_up_does_not_spoil_the_next(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        old = keys_created_at(range(1, 5 * PAGE_OBJECTS))
        objects.objects = dict.fromkeys(old, b"")
        async for page in detection.find(search):
            assert page
            break
        assert set(old) <= set(await found_by(detection, search))

    @pytest.mark.asyncio
    async def test_two_searches_at_once_find_everything_each(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        old = keys_created_at(range(1, 3 * PAGE_OBJECTS))
        objects.objects = dict.fromkeys(old, b"")
        one, other = detection.find(search), detection.find(search)
        found_by_one = set(await anext(one))
        found_by_other = {key async for page in other for key in page}
        found_by_one.update([key async for page in one for key in page])
        assert found_by_one >= set(old)
        assert found_by_other >= set(old)

    @pytest.mark.asyncio
    async def test_a_store_that_does_not_list_is_an_error_and_not_an_empty_answer(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        objects.objects = dict.fromkeys(keys_created_at([1]), b"")
        objects.fail_next(Operation.LIST, error=access_denied)
        with pytest.raises((WalObjectStoreError, OrphanDetectionError)):
            await found_by(detection, search)
        assert await found_by(detection, search), "it has to look again the next time"

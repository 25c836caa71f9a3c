"""The orphan detection that comes with Diskless keeps the contract, and the suite finds out those that do not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanSearch
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.orphan_detection import PAGE_OBJECTS, OrphanDetectionContract, search_of
from tests.support.detection import listing_detection


class TestListing(OrphanDetectionContract):
    @pytest.fixture
    def detection(self) -> OrphanDetection:
        return listing_detection()


class FindsEverything(OrphanDetection):
    """It leaves all thinking to the core, which it may."""

    async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
        async for page in search.list_objects(""):
            yield [found.key for found in page]


class TestOneThatFindsEverything(OrphanDetectionContract):
    @pytest.fixture
    def detection(self) -> OrphanDetection:
        return FindsEverything()


class FindsNothing(OrphanDetection):
    async def find(self, search):
        async for _ in search.list_objects(search.prefix):
            pass
        for nothing in ():
            yield nothing


class FirstPageOnly(FindsEverything):
    async def find(self, search):
        async for page in super().find(search):
            yield page
            return


class OncePerObject(FindsEverything):
    """Wrong: what the core passed over, because it was committed or it crashed, has to come again."""

    def __init__(self):
        self.seen = set()

    async def find(self, search):
        async for page in super().find(search):
            fresh = [key for key in page if key not in self.seen]
            self.seen.update(page)
            if fresh:
                yield fresh


class RemembersItsFirstThreshold(FindsEverything):
    threshold_ms = None

    async def find(self, search):
        if self.threshold_ms is None:
            self.threshold_ms = search.threshold_ms
        first = replace(search, threshold_ms=self.threshold_ms)
        async for page in super().find(search):
            yield [key for key in page if first.is_candidate(key)]


class StopsAtTheFirstStranger(FindsEverything):
    async def find(self, search):
        async for page in super().find(search):
            if not any(search.is_candidate(key) for key in page):
                return
            yield page


class HidesFailures(FindsEverything):
    async def find(self, search):
        with suppress(WalObjectStoreError):
            async for page in super().find(search):
                yield page


class OneAtATime(FindsEverything):
    """Wrong: a scan by hand may come while the broker's own is under way."""

    def __init__(self):
        self.page = []

    async def find(self, search):
        self.page = [key async for page in super().find(search) for key in page]
        while self.page:
            page, self.page = self.page[:PAGE_OBJECTS], self.page[PAGE_OBJECTS:]
            yield page


ALL = "test_every_object_from_before_the_threshold_is_found_on_however_many_pages"
HIDDEN = "test_what_is_no_candidate_hides_none"
LATER = "test_a_later_search_finds_what_is_still_there_and_what_has_come"
THRESHOLD = "test_a_search_goes_by_its_own_threshold"
DELETED = "test_what_is_deleted_while_it_looks_hides_nothing"
GIVEN_UP = "test_a_search_that_was_given_up_does_not_spoil_the_next"
AT_ONCE = "test_two_searches_at_once_find_everything_each"
FAILURE = "test_a_store_that_does_not_list_is_an_error_and_not_an_empty_answer"


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (FindsNothing, ALL),
        (FirstPageOnly, ALL),
        (FirstPageOnly, DELETED),
        (OncePerObject, LATER),
        (OncePerObject, GIVEN_UP),
        (RemembersItsFirstThreshold, THRESHOLD),
        (StopsAtTheFirstStranger, HIDDEN),
        (HidesFailures, FAILURE),
        (OneAtATime, AT_ONCE),
    ],
)
async def test_the_suite_fails_for_a_broken_detector(broken: type[OrphanDetection], test: str) -> None:
    objects = MemoryWalObjectStore(SystemClock(), page_objects=PAGE_OBJECTS)
    search = search_of(objects)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await getattr(OrphanDetectionContract(), test)(broken(), search, objects)

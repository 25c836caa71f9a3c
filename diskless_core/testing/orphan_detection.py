"""Contract suite of the noun `orphan_detection`: what every detector has to pass.

Subclass `OrphanDetectionContract` in a test module and give it the fixture `detection`; needs pytest and
pytest-asyncio.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanDetectionError, OrphanSearch
from diskless_core.plugin.wal_object_store import ObjectInfo, WalObjectStoreError
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation, access_denied
from diskless_core.testing.leaks import CYCLES, Held, tasks_left
from diskless_core.testing.loop_stalls import SOME_CALLS, assert_loop_goes_on
from diskless_core.testing.orphan_detection_tools import (
    BreaksAfterAPage,
    Counted,
    HoldsAfterAPage,
    ObjectsSource,
    backwards,
    listing_as,
    modified_at,
)
from diskless_core.testing.patience import within
from diskless_core.wal.format import object_key

PREFIX = "wal/"
THRESHOLD_MS = 1_700_000_000_000
PAGE_OBJECTS = 3

_SPREADS = 256
_MANY_PAGES = 100
_PAGE_S = 0.001
_PAUSES = 20


def keys_created_at(times_ms: Iterable[int], prefix: str = PREFIX) -> list[str]:
    """Keys of WAL objects, one for each of the times."""
    return [object_key(prefix.rstrip("/"), time_ms, uuid.UUID(int=index)) for index, time_ms in enumerate(times_ms)]


def keys_in_all_spreads(created_ms: int) -> list[str]:
    """Keys of WAL objects of one time, one for each two characters that may follow the prefix."""
    ids = [uuid.UUID(int=spread << 120 | created_ms % 1000) for spread in range(_SPREADS)]
    return [object_key(PREFIX.rstrip("/"), created_ms, object_id) for object_id in ids]


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
    found: list[str] = []
    async for page in detection.find(search):
        assert not isinstance(page, str), f"keys are yielded in pages, and not one by one as {page!r}"
        strangers = [key for key in page if type(key) is not str]
        assert not strangers, f"a page has keys, and not {strangers[:3]}"
        found.extend(page)
    return found


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
        return replace(search_of(objects), objects=ObjectsSource(objects))

    # --- what is found ---------------------------------------------------------------------------------------------

    @pytest.mark.asyncio
    async def test_an_empty_store_has_no_orphans(self, detection: OrphanDetection, search: OrphanSearch) -> None:
        found = await found_by(detection, search)
        assert found == [], f"nothing is named where there is nothing, and not {found}"

    @pytest.mark.asyncio
    async def test_every_object_from_before_the_threshold_is_found_on_however_many_pages(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        old = keys_created_at([0, 1, THRESHOLD_MS - 1, *range(THRESHOLD_MS - 50, THRESHOLD_MS - 40)])
        objects.objects = dict.fromkeys(old, b"")
        found = set(await found_by(detection, search))
        _require_all(old, found, "an object from before the threshold")
        invented = found.difference(old)
        assert not invented, f"only what is in the store is named: the core would count {sorted(invented)} as orphans"

    @pytest.mark.asyncio
    async def test_what_is_no_candidate_hides_none(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        late_ids = [uuid.UUID(int=0x80 << 120 | number) for number in range(5)]  # behind whole pages of others
        old = [object_key(PREFIX.rstrip("/"), THRESHOLD_MS - 1, object_id) for object_id in late_ids]
        young = keys_created_at(range(THRESHOLD_MS, THRESHOLD_MS + 3 * PAGE_OBJECTS))
        strangers = [*keys_created_at([1] * PAGE_OBJECTS, "other/"), "wal/readme.txt", "wal/00/", "wal-1/00/1-x", "x"]
        objects.objects = dict.fromkeys([*young, *strangers, *old], b"")
        found = {key for key in await found_by(detection, search) if search.is_candidate(key)}
        _require_all(old, found, "an object among others that are no candidates")
        assert found == set(old)

    @pytest.mark.asyncio
    async def test_objects_are_found_whatever_their_id_begins_with(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        old, young = keys_in_all_spreads(THRESHOLD_MS - 1), keys_in_all_spreads(THRESHOLD_MS)
        objects.objects = dict.fromkeys([*old, *young], b"")
        _require_all(old, await found_by(detection, search), "an object from before the threshold")

    @pytest.mark.asyncio
    async def test_pages_of_a_listing_have_any_size_and_order(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        old = keys_created_at(range(THRESHOLD_MS - 10, THRESHOLD_MS))
        young = keys_created_at(range(THRESHOLD_MS, THRESHOLD_MS + 2 * PAGE_OBJECTS))  # one page has both
        objects.objects = dict.fromkeys([*old, *young], b"")
        found = await found_by(detection, listing_as(backwards(PAGE_OBJECTS), search, objects))
        _require_all(old, found, "an object that is listed late")

    @pytest.mark.asyncio
    @pytest.mark.parametrize("modified_ms", [0, THRESHOLD_MS + 1_000_000])
    async def test_an_object_is_as_old_as_its_key_says_whatever_time_the_store_has(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore, modified_ms: int
    ) -> None:
        old = keys_created_at([1, THRESHOLD_MS - 1])
        objects.objects = dict.fromkeys(old, b"")
        found = await found_by(detection, listing_as(modified_at(modified_ms), search, objects))
        _require_all(old, found, "an object from before the threshold, by its key,")

    @pytest.mark.asyncio
    async def test_a_later_search_finds_what_is_still_there_and_what_has_come(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        first, second = keys_created_at([1, 2])
        objects.objects[first] = b""
        _require_all([first], await found_by(detection, search), "an object from before the threshold")
        objects.objects[second] = b""
        _require_all([first, second], await found_by(detection, search), "an object that is still there or has come")

    @pytest.mark.asyncio
    async def test_a_later_search_does_not_name_what_is_gone(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        gone, there = keys_created_at([1, 2])
        objects.objects = dict.fromkeys([gone, there], b"")
        await found_by(detection, search)
        await objects.delete([gone])
        found = await found_by(detection, search)
        assert gone not in found, "an object that is gone is not named again: the core would count it as an orphan"
        _require_all([there], found, "an object that is still there")

    @pytest.mark.asyncio
    async def test_a_search_goes_by_its_own_threshold(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        now_ms = SystemClock().now_ms()
        early, late, latest = keys_created_at([1_000, 2_000, now_ms - 1])
        objects.objects = dict.fromkeys([early, late, latest], b"")
        for threshold_ms, candidates in (
            (1_500, {early}),
            (2_500, {early, late}),
            (500, set[str]()),
            (now_ms, {early, late, latest}),
        ):
            found = await found_by(detection, replace(search, threshold_ms=threshold_ms))
            _require_all(candidates, found, f"an object from before the threshold {threshold_ms}")

    @pytest.mark.asyncio
    async def test_a_search_goes_by_its_own_prefix(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        for prefix in ("w/", "clusters/two/wal/"):
            old = keys_created_at([1, 2], prefix)
            objects.objects = dict.fromkeys([*keys_created_at([1, 2]), *old], b"")
            found = await found_by(detection, replace(search, prefix=prefix))
            _require_all(old, found, f"an object whose key begins with {prefix}")

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
        _require_all(old, found, "an object that was there when the search began")

    # --- one search and another ------------------------------------------------------------------------------------

    @pytest.mark.asyncio
    async def test_a_search_that_was_given_up_does_not_spoil_the_next(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        old = keys_created_at(range(1, 5 * PAGE_OBJECTS))
        objects.objects = dict.fromkeys(old, b"")
        async for page in detection.find(search):
            assert page
            break
        _require_all(old, await found_by(detection, search), "an object, after a search that was given up,")

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
        _require_all(old, found_by_one, "an object, by the first of two searches at once,")
        _require_all(old, found_by_other, "an object, by the second of two searches at once,")

    @pytest.mark.asyncio
    async def test_a_search_changes_nothing_in_the_store(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        objects.objects = dict.fromkeys([*keys_created_at([1, 2, THRESHOLD_MS]), "wal/readme.txt"], b"data")
        before = dict(objects.objects)
        await found_by(detection, search)
        gone, new = sorted(before.keys() - objects.objects.keys()), sorted(objects.objects.keys() - before.keys())
        assert objects.objects == before, f"a detector only reads: it deleted {gone} and wrote {new}"

    @pytest.mark.asyncio
    async def test_what_is_looked_at_is_counted_once(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        old = keys_created_at(range(1, 3 * PAGE_OBJECTS))
        objects.objects = dict.fromkeys(old, b"")
        listed, listed_by_core, noted = Counted(), Counted(), list[int]()
        watched = listing_as(listed, search, objects)

        async def list_objects(prefix: str) -> AsyncIterator[Sequence[ObjectInfo]]:
            async for page in listed_by_core(watched.list_objects(prefix)):
                yield page

        await found_by(detection, replace(watched, list_objects=list_objects, note_listed=noted.append))
        counted = listed_by_core.objects + sum(noted)
        assert counted >= len(old), f"all that is looked at is counted: {counted} of {len(old)} objects were noted"
        others = listed.objects - listed_by_core.objects
        assert sum(noted) <= others, f"what list_objects lists is counted already, and {sum(noted)} were noted again"

    @pytest.mark.asyncio
    async def test_a_store_that_it_makes_is_started_before_and_stopped_after(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        source = search.objects
        if not isinstance(source, ObjectsSource):
            pytest.skip("another test tells how these stores are used")
        objects.objects = dict.fromkeys(keys_created_at(range(1, 5 * PAGE_OBJECTS)), b"")
        await found_by(detection, search)
        await _give_up_after_a_page(detection, search)
        if not source.made:
            pytest.skip("it makes no store")
        assert source.started == 0, f"a store that a detector makes is stopped: {source.started} are not"

    # --- failures and an end before the end ------------------------------------------------------------------------

    @pytest.mark.asyncio
    async def test_a_store_that_does_not_list_is_an_error_and_not_an_empty_answer(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        objects.objects = dict.fromkeys(keys_created_at([1]), b"")
        with objects.failing(Operation.LIST, error=access_denied):
            await _require_failure(detection, search)
        assert await found_by(detection, search), "it has to look again the next time"

    @pytest.mark.asyncio
    async def test_a_listing_that_fails_halfway_is_an_error_and_not_the_end(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        objects.objects = dict.fromkeys(keys_created_at(range(1, 5 * PAGE_OBJECTS)), b"")
        await _require_failure(detection, listing_as(BreaksAfterAPage(access_denied), search, objects))

    @pytest.mark.asyncio
    async def test_a_cancelled_search_ends_and_leaves_nothing_at_work(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        objects.objects = dict.fromkeys(keys_created_at(range(1, 5 * PAGE_OBJECTS)), b"")
        held, tasks = HoldsAfterAPage(), asyncio.all_tasks()
        searching = asyncio.create_task(found_by(detection, listing_as(held, search, objects)))
        try:
            async with within("a search lists, or ends"):
                await held.reached(searching)
            if searching.done():
                pytest.skip("it lists nothing while it searches")
            searching.cancel()
            async with within("a cancelled search ends"):
                await asyncio.wait({searching})
            assert searching.cancelled(), "a cancelled search ends with the CancelledError, and with nothing else"
            left = await tasks_left(tasks)
            assert not left, f"a cancelled search leaves nothing at work: these go on: {left}"
        finally:
            held.is_released = True
            searching.cancel()

    @pytest.mark.asyncio
    async def test_a_search_that_is_given_up_stops_to_list(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        objects.objects = dict.fromkeys(keys_created_at(range(_MANY_PAGES * PAGE_OBJECTS)), b"")
        listed = Counted(_PAGE_S)
        await _give_up_after_a_page(detection, listing_as(listed, search, objects))
        until_then = listed.objects
        for _ in range(_PAUSES):  # one long pause can be one turn of a busy loop: too few to tell
            await asyncio.sleep(_PAGE_S)
        more = listed.objects - until_then
        assert not more, f"a search that is given up stops to list: {more} more objects were listed"

    @pytest.mark.asyncio
    async def test_searches_leave_no_task_no_thread_and_no_file_open(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        objects.objects = dict.fromkeys(keys_created_at([1, 2]), b"")
        await found_by(detection, search)
        held, tasks = Held(), asyncio.all_tasks()
        for _ in range(CYCLES):
            await found_by(detection, search)
        left = await tasks_left(tasks)
        assert not left, f"a search leaves no task: these go on: {left}"
        held.assert_no_more("a search leaves no thread and no file open")

    @pytest.mark.asyncio
    async def test_a_search_does_not_block_the_event_loop(
        self, detection: OrphanDetection, search: OrphanSearch, objects: MemoryWalObjectStore
    ) -> None:
        objects.objects = dict.fromkeys(keys_created_at(range(SOME_CALLS * PAGE_OBJECTS)), b"")
        await found_by(detection, search)  # what is only loaded once does not count
        await assert_loop_goes_on("a search", lambda: found_by(detection, search))


def _require_all(old: Iterable[str], found: Iterable[str], what: str) -> None:
    missing = sorted(set(old).difference(found))
    assert not missing, f"{what} is found: {len(missing)} are missing, {missing[:3]} among them"


async def _require_failure(detection: OrphanDetection, search: OrphanSearch) -> None:
    try:
        async with within("a search that cannot be finished ends"):
            await found_by(detection, search)
    except (WalObjectStoreError, OrphanDetectionError):
        return
    except Exception as error:
        if isinstance(error, AssertionError):
            raise
        expected = "a WalObjectStoreError or an OrphanDetectionError is raised"
        raise AssertionError(f"{expected} where a store does not list, and not {error!r}") from error
    raise AssertionError("a search that could not list everything ended without an error: orphans stay hidden")


async def _give_up_after_a_page(detection: OrphanDetection, search: OrphanSearch) -> None:
    pages = detection.find(search)
    await anext(pages)
    close = getattr(pages, "aclose", None)  # what is not a generator has nothing to close
    if close is not None:
        async with within("a search that is given up ends"):
            await close()

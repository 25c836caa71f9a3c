"""Detectors that miss objects, hide failures, touch what they only should read, or never end."""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanDetectionError, OrphanSearch
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError
from diskless_core.testing.loop_stalls import SOME_CALLS
from diskless_core.testing.orphan_detection import OrphanDetectionContract
from diskless_core.testing.orphan_detection_tools import ObjectsSource
from diskless_core.wal.format import is_older
from tests.kit.fault import Correct, Fault, MakeSuite, Unfound

NOUN = "orphan_detection"
HOUR_MS = 3_600_000
BLOCKED_S = 0.5


class Listing(OrphanDetection):
    """Lists the prefix, and names what is old enough."""

    async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
        async for page in search.list_objects(search.prefix):
            candidates = [info.key for info in page if self.is_wanted(search, info)]
            if candidates:
                yield candidates

    def is_wanted(self, search, info):
        return search.is_candidate(info.key)


class ListingOfItsOwn(OrphanDetection):
    """Lists with a store that it makes, each spread by itself."""

    async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
        store = search.objects()
        try:
            await store.start()
            for spread in self.spreads():
                async for page in store.list(f"{search.prefix}{spread}"):
                    self.note(search, len(page))
                    yield [info.key for info in page if search.is_candidate(info.key)]
        finally:
            await self.done_with(store)

    def spreads(self):
        return [f"{spread:02x}/" for spread in range(256)]

    def note(self, search, objects):
        search.note_listed(objects)

    async def done_with(self, store):
        await store.stop()


class NamesEverything(OrphanDetection):
    """Leaves all thinking to the core, which it may, and names some objects twice."""

    async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
        async for page in search.list_objects(""):
            yield [info.key for info in page for _ in range(2)]


# --- what is missed --------------------------------------------------------------------------------------------------


class FirstPageOnly(Listing):
    """Only the first page of the listing is looked at."""

    async def find(self, search):
        async for page in super().find(search):
            yield page
            return


class LastPageIsLost(Listing):
    """Pages are named when the next one comes: the last one never is."""

    async def find(self, search):
        waiting = None
        async for page in super().find(search):
            if waiting is not None:
                yield waiting
            waiting = page


class StopsAtAnEmptyPage(Listing):
    """An empty page is taken for the end."""

    async def find(self, search):
        async for page in search.list_objects(search.prefix):
            if not page:
                return
            yield [info.key for info in page if search.is_candidate(info.key)]


class StopsAtASmallPage(Listing):
    """A page that is smaller than the one before is taken for the last."""

    async def find(self, search):
        largest = 0
        async for page in search.list_objects(search.prefix):
            yield [info.key for info in page if search.is_candidate(info.key)]
            if 0 < len(page) < 3:
                return
            largest = max(largest, len(page))


class StopsAtTheFirstYoungObject(Listing):
    """Keys have the time: it takes them for sorted by it, though they begin with two characters of the id."""

    async def find(self, search):
        async for page in search.list_objects(search.prefix):
            old = [info.key for info in page if search.is_candidate(info.key)]
            if old:
                yield old
            if any(info.key.startswith(search.prefix) and not is_older(info.key, search.threshold_ms) for info in page):
                return


class BisectsPages(Listing):
    """It takes each page for sorted, and looks for the threshold in the middle."""

    async def find(self, search):
        async for page in search.list_objects(search.prefix):
            keys = [info.key for info in page]
            yield keys[: bisect_left(keys, True, key=lambda key: not search.is_candidate(key))]


class StopsAtAStranger(Listing):
    """A page without candidates is taken for the end."""

    async def find(self, search):
        async for page in search.list_objects(search.prefix):
            old = [info.key for info in page if search.is_candidate(info.key)]
            if not old:
                return
            yield old


class OneMillisecondOff(Listing):
    """The threshold is off by a millisecond: the youngest candidate is left out."""

    def is_wanted(self, search, info):
        return is_older(info.key, search.threshold_ms - 1)


class YoungInsteadOfOld(Listing):
    """The wrong end of the threshold: what is younger is named."""

    def is_wanted(self, search, info):
        return not search.is_candidate(info.key)


class ByTheStoresTime(Listing):
    """An object is as old as the store says: copying a bucket makes all young."""

    def is_wanted(self, search, info):
        return search.is_candidate(info.key) and info.modified_ms < search.threshold_ms


class ByItsOwnClock(Listing):
    """An object has to be an hour old by the detector's clock, whatever the threshold."""

    def is_wanted(self, search, info):
        return search.is_candidate(info.key) and is_older(info.key, SystemClock().now_ms() - HOUR_MS)


class RemembersItsFirstThreshold(Listing):
    """The threshold of the first search is used for all."""

    threshold_ms = None

    def is_wanted(self, search, info):
        if self.threshold_ms is None:
            self.threshold_ms = search.threshold_ms
        return replace(search, threshold_ms=self.threshold_ms).is_candidate(info.key)


class KnowsThePrefix(Listing):
    """It looks below the default prefix, whatever the cluster's is."""

    async def find(self, search):
        async for page in search.list_objects("wal/"):
            yield [info.key for info in page if search.is_candidate(info.key)]


class TakesThePrefixForOnePart(Listing):
    """Of a prefix of several parts only the first is used for the keys."""

    def is_wanted(self, search, info):
        part = search.prefix.split("/", 1)[0]
        return replace(search, prefix=f"{part}/").is_candidate(info.key)


class SpreadsWithoutZeros(ListingOfItsOwn):
    """Spreads below 16 are listed without their zero, and nothing is found in these."""

    def spreads(self):
        return [f"{spread:x}/" if spread < 16 else f"{spread:02x}/" for spread in range(256)]


class SpreadsAreDigits(ListingOfItsOwn):
    """Spreads are taken for decimal numbers, so that most of them are never listed."""

    def spreads(self):
        return [f"{spread:02}/" for spread in range(100)]


class CountsItsWay(Listing):
    """It lists again after each page, and goes on where it was by number: what was deleted shifts the rest."""

    async def find(self, search):
        done = 0
        while True:
            found = [info.key async for page in search.list_objects(search.prefix) for info in page]
            page = [key for key in found[done : done + 3] if search.is_candidate(key)]
            if done >= len(found):
                return
            done += 3
            if page:
                yield page


class OncePerObject(Listing):
    """What was named once is not named again, though the core may not have come to it."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    async def find(self, search):
        async for page in super().find(search):
            fresh = [key for key in page if key not in self.seen]
            self.seen.update(page)
            if fresh:
                yield fresh


class GoesOnWhereItStopped(Listing):
    """A search begins behind the last key that the one before named."""

    last = ""

    async def find(self, search):
        async for page in super().find(search):
            fresh = [key for key in page if key > self.last]
            if fresh:
                self.last = max(fresh)
                yield fresh


class NeedsToBeFinished(Listing):
    """A search that was given up blocks all later ones, which find nothing."""

    is_busy = False

    async def find(self, search):
        if self.is_busy:
            return
        self.is_busy = True
        async for page in super().find(search):
            yield page
        self.is_busy = False


class OneListForAllSearches(Listing):
    """Searches at the same time take pages from one list."""

    def __init__(self) -> None:
        self.found: list[str] = []

    async def find(self, search):
        self.found = [key async for page in super().find(search) for key in page]
        while self.found:
            page, self.found = self.found[:3], self.found[3:]
            yield page


# --- what is named that is not there ---------------------------------------------------------------------------------


class ListsOnce(Listing):
    """The list of the first search is used for ever."""

    def __init__(self) -> None:
        self.known: list[str] = []

    async def find(self, search):
        async for page in super().find(search):
            self.known += [key for key in page if key not in self.known]
        if self.known:
            yield list(self.known)


class KeysBeginWithASlash(Listing):
    """Keys are named as paths, with a slash before them."""

    async def find(self, search):
        async for page in super().find(search):
            yield [f"/{key}" for key in page]


class InventsNeighbours(Listing):
    """For each object it names the index that it thinks to be beside it."""

    async def find(self, search):
        async for page in super().find(search):
            yield [name for key in page for name in (key, f"{key}.index")]


class NamesOneByOne(Listing):
    """Keys are yielded themselves, not in pages."""

    async def find(self, search):
        async for page in super().find(search):
            for key in page:
                yield key


class NamesWhatItListed(Listing):
    """Pages have the listing's entries, not their keys."""

    async def find(self, search):
        async for page in search.list_objects(search.prefix):
            yield page


# --- what it does to the store ---------------------------------------------------------------------------------------


class DeletesByItself(Listing):
    """It deletes what it finds, and asks no coordinator."""

    async def find(self, search):
        store = search.objects()
        await store.start()
        async for page in super().find(search):
            await store.delete(page)
            yield page
        await store.stop()


class LeavesAMark(Listing):
    """It notes in the store how far it came."""

    async def find(self, search):
        store = search.objects()
        await store.start()
        async for page in super().find(search):
            await store.put(f"{search.prefix}checkpoint", page[-1].encode())
            yield page
        await store.stop()


class UsesAStoreThatIsNotStarted(ListingOfItsOwn):
    """The store that it makes is never started."""

    async def find(self, search):
        store = search.objects()
        async for page in store.list(search.prefix):
            search.note_listed(len(page))
            yield [info.key for info in page if search.is_candidate(info.key)]


class LeavesAStore(ListingOfItsOwn):
    """The store that it makes is never stopped."""

    async def done_with(self, store: WalObjectStore) -> None:
        del store


class LeavesAStoreWhenGivenUp(OrphanDetection):
    """The store that it makes is stopped at the end of a search, but not when that is given up."""

    async def find(self, search):
        store = search.objects()
        await store.start()
        async for page in store.list(search.prefix):
            search.note_listed(len(page))
            yield [info.key for info in page if search.is_candidate(info.key)]
        await store.stop()


class NotesNothing(ListingOfItsOwn):
    """What it lists with a store of its own is not counted."""

    def note(self, search, objects):
        del search, objects


class CountsTwice(Listing):
    """What it lists with `list_objects` it counts once more."""

    def is_wanted(self, search, info):
        search.note_listed(1)
        return super().is_wanted(search, info)


# --- failures, and an end before the end -----------------------------------------------------------------------------


class HidesFailures(Listing):
    """A listing that fails is an empty one."""

    async def find(self, search):
        with suppress(WalObjectStoreError):
            async for page in super().find(search):
                yield page


class HidesLateFailures(Listing):
    """A listing that fails after something was found has ended."""

    async def find(self, search):
        found = 0
        try:
            async for page in super().find(search):
                found += len(page)
                yield page
        except WalObjectStoreError:
            if not found:
                raise


class FailsInItsOwnWords(Listing):
    """A listing that fails is a RuntimeError."""

    async def find(self, search):
        try:
            async for page in super().find(search):
                yield page
        except WalObjectStoreError as error:
            raise RuntimeError("no listing") from error


class FailsForEver(Listing):
    """After one failure every later search fails too."""

    has_failed = False

    async def find(self, search):
        if self.has_failed:
            raise OrphanDetectionError("it failed before")
        try:
            async for page in super().find(search):
                yield page
        except WalObjectStoreError:
            self.has_failed = True
            raise


class TriesForEver(Listing):
    """A listing that fails is begun again, as often as it fails."""

    async def find(self, search):
        while True:
            with suppress(WalObjectStoreError):
                async for page in super().find(search):
                    yield page
                return
            await asyncio.sleep(0.01)


class CannotBeCancelled(Listing):
    """A cancellation is taken for the end of the listing."""

    async def find(self, search):
        with suppress(asyncio.CancelledError):
            async for page in super().find(search):
                yield page


class CancelledIsAnError(Listing):
    """A cancellation becomes an OrphanDetectionError, as if the store had failed."""

    async def find(self, search):
        try:
            async for page in super().find(search):
                yield page
        except BaseException as error:
            if isinstance(error, GeneratorExit):
                raise
            raise OrphanDetectionError(f"the search ended: {error!r}") from error


class _Pumped(Listing):
    """A task lists ahead, into a queue."""

    async def find(self, search):
        queue: asyncio.Queue[Sequence[str] | None] = asyncio.Queue()

        async def pump():
            try:
                async for page in Listing.find(self, search):
                    await queue.put(page)
            finally:
                await queue.put(None)

        pumping = asyncio.create_task(pump())
        try:
            while (page := await queue.get()) is not None:
                yield page
            await pumping
        except asyncio.CancelledError:
            self.on_cancel(pumping)
            raise
        except GeneratorExit:
            self.on_close(pumping)
            raise

    def on_cancel(self, pumping):
        pumping.cancel()

    def on_close(self, pumping):
        pumping.cancel()


class WorkOutlivesCancellation(_Pumped):
    """A task that lists ahead goes on when the search is cancelled."""

    def on_cancel(self, pumping):
        del pumping


class WorkOutlivesTheSearch(_Pumped):
    """A task that lists ahead goes on when the search is given up."""

    def on_close(self, pumping):
        del pumping


class WaitsForItsWork(Listing):
    """A search that is cancelled lists to the end first."""

    async def find(self, search):
        listing = asyncio.ensure_future(self._all(search))
        try:
            yield await asyncio.shield(listing)
        except asyncio.CancelledError:
            await listing
            raise

    async def _all(self, search):
        return [key async for page in super().find(search) for key in page]


class LeavesATask(Listing):
    """Each search leaves a task that waits for the next."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Task[object]] = []

    async def find(self, search):
        self.waiting.append(asyncio.create_task(asyncio.sleep(600)))
        async with aclosing(super().find(search)) as pages:
            async for page in pages:
                yield page


class LeavesAThread(Listing):
    """Each search starts a thread that stays."""

    async def find(self, search):
        threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()
        async for page in super().find(search):
            yield page


class LeavesAFile(Listing):
    """Each search opens a file and does not close it."""

    def __init__(self) -> None:
        self.files: list[object] = []

    async def find(self, search):
        self.files.append(Path(__file__).open("rb"))  # noqa: SIM115, ASYNC230 - that is the fault
        async for page in super().find(search):
            yield page


class SleepsWhileItLists(Listing):
    """It pauses after some pages, with all that runs on the event loop."""

    async def find(self, search):
        pages = 0
        async for page in super().find(search):
            pages += 1
            time.sleep(BLOCKED_S if pages == SOME_CALLS else 0)  # noqa: ASYNC251 - that is the fault
            yield page


def _suite(backend: type[OrphanDetection]) -> MakeSuite:
    class Suite(OrphanDetectionContract):
        @pytest.fixture
        def detection(self) -> OrphanDetection:
            return backend()

    return lambda: Suite


def _free_suite(backend: type[OrphanDetection]) -> MakeSuite:
    """The suite of an author whose stores let themselves be written: what was done shows in the store."""

    class Suite(OrphanDetectionContract):
        @pytest.fixture
        def detection(self) -> OrphanDetection:
            return backend()

        @pytest.fixture
        def search(self, search: OrphanSearch) -> OrphanSearch:
            source = search.objects
            assert isinstance(source, ObjectsSource)
            return replace(search, objects=lambda: source.objects)

    return lambda: Suite


def _fault(name: str, backend: type[OrphanDetection], promise: str, make_suite=_suite) -> Fault:
    return Fault(noun=NOUN, name=name, says=(backend.__doc__ or "").strip(), promise=promise, suite=make_suite(backend))


_ALL = "every object from before the threshold is found on however many pages"
_PAGES = "pages of a listing have any size and order"
_SPREADS = "objects are found whatever their id begins with"
_THRESHOLD = "a search goes by its own threshold"
_PREFIX = "a search goes by its own prefix"
_CHANGES = "a search changes nothing in the store"
_READS = "a detector only reads"
_STORE = "a store that it makes is started before and stopped after"
_CANCELLED = "a cancelled search ends and leaves nothing at work"
_LEAVES = "searches leave no task no thread and no file open"

FAULTS = (
    _fault("the-first-page-only", FirstPageOnly, _ALL),
    _fault("the-last-page-is-lost", LastPageIsLost, _ALL),
    _fault("an-empty-page-is-the-end", StopsAtAnEmptyPage, _PAGES),
    _fault("a-small-page-is-the-last", StopsAtASmallPage, _PAGES),
    _fault("keys-are-taken-for-sorted-by-time", StopsAtTheFirstYoungObject, _SPREADS),
    _fault("pages-are-taken-for-sorted", BisectsPages, _PAGES),
    _fault("strangers-are-the-end", StopsAtAStranger, "what is no candidate hides none"),
    _fault("a-millisecond-off", OneMillisecondOff, _ALL),
    _fault("young-instead-of-old", YoungInsteadOfOld, _ALL),
    _fault("by-the-time-of-the-store", ByTheStoresTime, "as old as its key says whatever time the store has"),
    _fault("by-its-own-clock", ByItsOwnClock, _THRESHOLD),
    _fault("the-first-threshold-stays", RemembersItsFirstThreshold, _THRESHOLD),
    _fault("the-prefix-is-built-in", KnowsThePrefix, _PREFIX),
    _fault("the-prefix-has-one-part", TakesThePrefixForOnePart, _PREFIX),
    _fault("spreads-without-zeros", SpreadsWithoutZeros, _SPREADS),
    _fault("spreads-are-decimal", SpreadsAreDigits, _SPREADS),
    _fault("it-counts-its-way", CountsItsWay, "what is deleted while it looks hides nothing"),
    _fault("named-once", OncePerObject, "finds what is still there"),
    _fault("it-goes-on-where-it-stopped", GoesOnWhereItStopped, "finds what is still there"),
    _fault("given-up-means-busy", NeedsToBeFinished, "given up does not spoil the next"),
    _fault("one-list-for-all-searches", OneListForAllSearches, "two searches at once find everything each"),
    _fault("the-list-is-never-renewed", ListsOnce, "does not name what is gone"),
    _fault("keys-begin-with-a-slash", KeysBeginWithASlash, _ALL),
    _fault("neighbours-are-invented", InventsNeighbours, "only what is in the store is named"),
    _fault("keys-one-by-one", NamesOneByOne, "keys are yielded in pages"),
    _fault("entries-instead-of-keys", NamesWhatItListed, "a page has keys"),
    _fault("it-deletes", DeletesByItself, _READS),
    _fault("it-writes", LeavesAMark, _READS),
    _fault("it-deletes-where-it-can", DeletesByItself, _CHANGES, _free_suite),
    _fault("it-writes-where-it-can", LeavesAMark, _CHANGES, _free_suite),
    _fault("its-store-is-not-started", UsesAStoreThatIsNotStarted, _STORE),
    _fault("its-store-is-not-stopped", LeavesAStore, _STORE),
    _fault("its-store-outlives-what-is-given-up", LeavesAStoreWhenGivenUp, _STORE),
    _fault("nothing-is-counted", NotesNothing, "what is looked at is counted once"),
    _fault("all-is-counted-twice", CountsTwice, "what is looked at is counted once"),
    _fault("failures-are-hidden", HidesFailures, "an error and not an empty answer"),
    _fault("late-failures-are-hidden", HidesLateFailures, "a listing that fails halfway is an error and not the end"),
    _fault("failures-are-foreign", FailsInItsOwnWords, "a WalObjectStoreError or an OrphanDetectionError is raised"),
    _fault("one-failure-is-for-ever", FailsForEver, "an error and not an empty answer"),
    _fault("it-tries-for-ever", TriesForEver, "a search that cannot be finished ends"),
    _fault("it-cannot-be-cancelled", CannotBeCancelled, _CANCELLED),
    _fault("cancelled-is-an-error", CancelledIsAnError, _CANCELLED),
    _fault("work-outlives-cancellation", WorkOutlivesCancellation, _CANCELLED),
    _fault("cancelled-lists-to-the-end", WaitsForItsWork, _CANCELLED),
    _fault("work-outlives-the-search", WorkOutlivesTheSearch, "a search that is given up stops to list"),
    _fault("a-task-stays", LeavesATask, _LEAVES),
    _fault("a-thread-stays", LeavesAThread, _LEAVES),
    _fault("a-file-stays-open", LeavesAFile, _LEAVES),
    _fault("it-blocks-the-loop", SleepsWhileItLists, "a search does not block the event loop"),
)

CORRECT = (
    Correct(noun=NOUN, name="listing", suite=_suite(Listing)),
    Correct(noun=NOUN, name="listing-of-its-own", suite=_suite(ListingOfItsOwn)),
    Correct(noun=NOUN, name="names-everything", suite=_suite(NamesEverything)),
    Correct(noun=NOUN, name="lists-ahead", suite=_suite(_Pumped)),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That it names young objects, committed ones, keys of others, or an object twice.",
        reason="It may: the core passes over what is no candidate, and asks the coordinators for the rest.",
    ),
    Unfound(
        noun=NOUN,
        says="That it has all keys in memory before it names the first.",
        reason="Pages may have any size, and a detector that compares first, as the one with Spark does, names nothing "
        "until it has seen all.",
    ),
    Unfound(
        noun=NOUN,
        says="That it lists the store more often than it has to.",
        reason="Nothing is promised of requests. `diskless orphans scan` tells how many objects were looked at.",
    ),
    Unfound(
        noun=NOUN,
        says="That an inventory is too old, or is trusted without a look into the store.",
        reason="What inventories a detector reads, only its own tests know.",
    ),
    Unfound(
        noun=NOUN,
        says="That it logs the secrets of `search.objects`.",
        reason="The stores of the suite have none.",
    ),
)

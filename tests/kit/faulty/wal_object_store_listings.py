"""Object stores that list or delete wrongly."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from diskless_core.plugin.wal_object_store import ObjectInfo, WalObjectStoreError
from diskless_core.testing.fakes.objects import Operation
from tests.kit.fault import Correct, Unfound
from tests.kit.object_backends import (
    BLOCKED_S,
    CLOCK,
    NOUN,
    PAGE_OBJECTS,
    FolderStore,
    MemoryStore,
    fault,
    memory_suite,
)


class _Relisted(MemoryStore):
    """Changes each object of a listing."""

    def changed(self, info: ObjectInfo) -> ObjectInfo:
        return info

    async def list(self, prefix=""):
        async for page in super().list(prefix):
            yield [self.changed(info) for info in page]


class Unsorted(MemoryStore):
    """Lists objects in no order, in smaller pages than others do. That is allowed."""

    async def list(self, prefix=""):
        async with self._called(Operation.LIST):
            infos = [self._info(key) for key in self.objects if key.startswith(prefix)]
        infos.sort(key=lambda info: info.key[::-1])
        for first in range(0, len(infos), 7):
            yield [info for info in infos[first : first + 7] if info.key in self.objects]
            await asyncio.sleep(0)


class FirstPageOnly(MemoryStore):
    """A listing ends with its first page."""

    async def list(self, prefix=""):
        async for page in super().list(prefix):
            yield page
            return


class PagesAreSkipped(MemoryStore):
    """Every second page is lost."""

    async def list(self, prefix=""):
        number = 0
        async for page in super().list(prefix):
            if number % 2 == 0:
                yield page
            number += 1


class LastOfAPageIsLost(MemoryStore):
    """The object at the end of a page that is not the last one is lost."""

    async def list(self, prefix=""):
        async for page in super().list(prefix):
            yield page[:-1] if len(page) == PAGE_OBJECTS else page


class UnsortedPagesAreContinued(MemoryStore):
    """A page is continued behind its last key, and keys are not sorted."""

    async def list(self, prefix=""):
        last = ""
        while True:
            keys = [key for key in self.objects if key.startswith(prefix) and key > last]
            keys.sort(key=lambda key: key[::-1])
            page = [self._info(key) for key in keys[:PAGE_OBJECTS]]
            if not page:
                return
            yield page
            last = page[-1].key


class PagesByPosition(MemoryStore):
    """Pages are told apart by how many objects come before them, and deletes meanwhile move objects."""

    async def list(self, prefix=""):
        position = 0
        while page := list(islice(sorted(k for k in self.objects if k.startswith(prefix)), position, position + 10)):
            yield [self._info(key) for key in page]
            position += len(page)
            await asyncio.sleep(0)


class ListsWhatIsDeletedMeanwhile(MemoryStore):
    """A listing during which something is deleted ends with an error."""

    async def list(self, prefix=""):
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        for first in range(0, len(keys), PAGE_OBJECTS):
            yield [self._info(key) for key in keys[first : first + PAGE_OBJECTS]]
            await asyncio.sleep(0)


class OneListingAtATime(MemoryStore):
    """A listing goes on where one that was left early has ended."""

    left = None

    async def list(self, prefix=""):
        keys = self.left if self.left is not None else sorted(key for key in self.objects if key.startswith(prefix))
        while keys:
            page, keys = keys[:PAGE_OBJECTS], keys[PAGE_OBJECTS:]
            self.left = keys
            yield [self._info(key) for key in page]
        self.left = None


class PrefixIsAFolder(MemoryStore):
    """A prefix has to be a whole folder."""

    async def list(self, prefix=""):
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        async for page in super().list(folder):
            yield page


class PrefixLosesItsSlash(MemoryStore):
    """The slash at the end of a prefix is dropped."""

    async def list(self, prefix=""):
        async for page in super().list(prefix.rstrip("/")):
            yield page


class PrefixIsIgnored(MemoryStore):
    """A listing has all objects, whatever the prefix is."""

    async def list(self, prefix=""):
        async for page in super().list(""):
            yield page


class PrefixIsAnywhere(MemoryStore):
    """A listing has all objects in whose key the prefix is anywhere."""

    async def list(self, prefix=""):
        async for page in super().list(""):
            yield [info for info in page if prefix in info.key]


class PrefixIsAPattern(MemoryStore):
    """The listing stops at the next slash, as a folder's does."""

    async def list(self, prefix=""):
        async for page in super().list(prefix):
            yield [info for info in page if "/" not in info.key[len(prefix) :].removeprefix("/")]


class ItselfIsNotBelow(MemoryStore):
    """The object whose key is the prefix is not listed."""

    async def list(self, prefix=""):
        async for page in super().list(prefix):
            yield [info for info in page if info.key != prefix]


class KeysAreRelative(MemoryStore):
    """Keys are listed without the prefix."""

    async def list(self, prefix=""):
        async for page in super().list(prefix):
            yield [replace(info, key=info.key[len(prefix) :]) for info in page]


class KeysBeginWithASlash(_Relisted):
    """Keys are listed with a slash before them."""

    def changed(self, info):
        return replace(info, key=f"/{info.key}")


class FoldersAreListed(MemoryStore):
    """The folders of objects are listed as objects without content."""

    async def list(self, prefix=""):
        async for page in super().list(prefix):
            folders = {info.key.rpartition("/")[0] for info in page}
            yield [*page, *(ObjectInfo(f"{name}/", 0, CLOCK.now_ms()) for name in folders if name.startswith(prefix))]


class SizesAreInBlocks(_Relisted):
    """The size of an object is told as what it takes on the disk."""

    def changed(self, info):
        return replace(info, size_bytes=-(-info.size_bytes // 512) * 512)


class SizesAreNotKnown(_Relisted):
    """The size of every object is told as 0."""

    def changed(self, info):
        return replace(info, size_bytes=0)


class SizesStay(MemoryStore):
    """The size of an object is told as it was when it was first listed."""

    def __init__(self):
        super().__init__()
        self.sizes = {}

    async def list(self, prefix=""):
        async for page in super().list(prefix):
            yield [replace(info, size_bytes=self.sizes.setdefault(info.key, info.size_bytes)) for info in page]


class TimesAreInSeconds(_Relisted):
    """The time of an object is told in seconds."""

    def changed(self, info):
        return replace(info, modified_ms=info.modified_ms // 1000)


class TimesAreLocal(_Relisted):
    """The time of an object is told in the time zone of the machine."""

    def changed(self, info):
        return replace(info, modified_ms=info.modified_ms + 3_600_000)


class TimesAreOfTheListing(_Relisted):
    """The time of an object is that of the listing."""

    def changed(self, info):
        return replace(info, modified_ms=CLOCK.now_ms())


class TimesAreOfTheLastRead(MemoryStore):
    """The time of an object is that of the last access to it."""

    async def get(self, key, start, end):
        if key in self.objects:
            self._modified_ms[key] = CLOCK.now_ms()
        return await super().get(key, start, end)


class ListingsAreStale(MemoryStore):
    """A listing is answered from a cache for a second."""

    def __init__(self):
        super().__init__()
        self.cache = {}

    async def list(self, prefix=""):
        at_s, pages = self.cache.get(prefix, (0.0, []))
        if CLOCK.monotonic() - at_s > 1.0:
            pages = [page async for page in super().list(prefix)]
            self.cache[prefix] = (CLOCK.monotonic(), pages)
        for page in pages:
            yield page


class ListingsLagBehindDeletes(MemoryStore):
    """What was deleted is listed a while longer."""

    def __init__(self):
        super().__init__()
        self.gone = {}

    async def delete(self, keys):
        self.gone |= {key: self._info(key) for key in keys if key in self.objects}
        return await super().delete(keys)

    async def list(self, prefix=""):
        async for page in super().list(prefix):
            yield page
        yield [info for info in self.gone.values() if info.key.startswith(prefix) and info.key not in self.objects]


class HalfWrittenIsListed(FolderStore):
    """Files that grow are among the objects."""

    def walk(self):
        self.incoming, kept = "", self.incoming
        try:
            return super().walk()
        finally:
            self.incoming = kept

    def write(self, path, data):
        growing = self.root / self.incoming / CLOCK.new_uuid().hex
        growing.write_bytes(data)
        time.sleep(0.2)
        growing.unlink()
        super().write(path, data)


class ListsBlock(MemoryStore):
    """A listing waits for its answer on the event loop's thread."""

    async def list(self, prefix=""):
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        async for page in super().list(prefix):
            yield page


class DeleteLies(MemoryStore):
    """A delete says that objects are gone, and does nothing."""

    async def delete(self, keys):
        return list(keys)


class DeleteIsDoneLater(MemoryStore):
    """A delete returns before it is done."""

    async def delete(self, keys):
        later = asyncio.ensure_future(super().delete(list(keys)))
        later.add_done_callback(lambda _: None)
        return list(keys)


class RefusalIsTakenForDone(MemoryStore):
    """Objects that may not be deleted are said to be gone."""

    async def delete(self, keys):
        for key in keys:
            with suppress(WalObjectStoreError):
                await super().delete([key])
        return list(keys)


class StopsAtTheFirstFailure(MemoryStore):
    """A delete ends at the first object that cannot be deleted, and says that all are gone."""

    async def delete(self, keys):
        with suppress(WalObjectStoreError):
            await super().delete(keys)
        return list(keys)


class StopsAtTheFirstAbsent(MemoryStore):
    """A delete ends at the first object that is absent."""

    async def delete(self, keys):
        there = []
        for key in keys:
            if key not in self.objects:
                break
            there.append(key)
        return await super().delete(there)


class AbsentCannotBeDeleted(MemoryStore):
    """To delete an absent object is an error."""

    async def delete(self, keys):
        for key in keys:
            if key not in self.objects:
                raise WalObjectStoreError(f"404 {key}", retriable=False)
        return await super().delete(keys)


class AbsentIsNotGone(MemoryStore):
    """An absent object is not among those that are gone."""

    async def delete(self, keys):
        return await super().delete([key for key in keys if key in self.objects])


class DeletesAPage(MemoryStore):
    """Of more objects than a page has the others are not deleted."""

    async def delete(self, keys):
        await super().delete(keys[:PAGE_OBJECTS])
        return list(keys)


class DeletesWhatBeginsSo(MemoryStore):
    """What begins with the key of a deleted object is deleted too."""

    async def delete(self, keys):
        await super().delete([known for known in self.objects if any(known.startswith(key) for key in keys)])
        return list(keys)


class NothingIsEverything(MemoryStore):
    """To delete no object deletes all of them."""

    async def delete(self, keys):
        return await super().delete(keys or list(self.objects))


class GoneHaveAnotherName(MemoryStore):
    """The objects that are gone are named as the service names them."""

    async def delete(self, keys):
        return [f"bucket/{key}" for key in await super().delete(keys)]


class OnlyTheFirstIsDeleted(MemoryStore):
    """Of several objects only the first one is deleted."""

    async def delete(self, keys):
        await super().delete(keys[:1])
        return list(keys)


class DeletedForGood(MemoryStore):
    """What was deleted cannot be written again: a marker hides it."""

    def __init__(self):
        super().__init__()
        self.markers = set()

    async def delete(self, keys):
        self.markers |= {*keys}
        return await super().delete(keys)

    async def put(self, key, data):
        if key not in self.markers:
            await super().put(key, data)


class DeletesBlock(MemoryStore):
    """A delete waits for its answer on the event loop's thread."""

    async def delete(self, keys):
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        return await super().delete(keys)


class DeletedIsNotSynced(FolderStore):
    """The folder is not synced when a file is removed from it."""

    def remove(self, path):
        path.unlink(missing_ok=True)
        return True


_PAGES = "a long listing comes in pages and is complete"
_PREFIX = "a listing finds what starts with the prefix and nothing else"
_TOLD = "a listing tells key size and time"
_NAMED = "a delete removes the objects named and no others"
_ABSENT = "an absent object counts as deleted"

CORRECT = (Correct(noun=NOUN, name="objects-in-no-order", suite=memory_suite(Unsorted)),)

FAULTS = (
    fault("listings-have-one-page", FirstPageOnly, _PAGES),
    fault("pages-are-skipped", PagesAreSkipped, _PAGES),
    fault("the-last-of-a-page-is-lost", LastOfAPageIsLost, _PAGES),
    fault("unsorted-pages-are-continued-behind-their-last-key", UnsortedPagesAreContinued, _PAGES),
    fault("pages-are-told-apart-by-position", PagesByPosition, "deletes during a listing hide nothing that stays"),
    fault("deletes-end-a-listing", ListsWhatIsDeletedMeanwhile, "deletes during a listing hide nothing that stays"),
    fault("one-listing-at-a-time", OneListingAtATime, "a listing may be left early and begun again"),
    fault("a-prefix-is-a-folder", PrefixIsAFolder, _PREFIX),
    fault("a-prefix-loses-its-slash", PrefixLosesItsSlash, _PREFIX),
    fault("a-prefix-is-ignored", PrefixIsIgnored, _PREFIX),
    fault("a-prefix-is-anywhere", PrefixIsAnywhere, _PREFIX),
    fault("listings-do-not-go-down", PrefixIsAPattern, _PREFIX),
    fault("what-is-the-prefix-is-not-listed", ItselfIsNotBelow, _PREFIX),
    fault("keys-are-relative-to-the-prefix", KeysAreRelative, _PREFIX),
    fault("keys-begin-with-a-slash", KeysBeginWithASlash, _TOLD),
    fault("folders-are-listed", FoldersAreListed, _PREFIX),
    fault("sizes-are-in-blocks", SizesAreInBlocks, _TOLD),
    fault("sizes-are-not-known", SizesAreNotKnown, _TOLD),
    fault("sizes-stay", SizesStay, "putting a key again replaces the object"),
    fault("times-are-in-seconds", TimesAreInSeconds, _TOLD),
    fault("times-are-local", TimesAreLocal, _TOLD),
    fault("times-are-of-the-listing", TimesAreOfTheListing, "the time of an object that does not change stays"),
    fault("times-are-of-the-last-read", TimesAreOfTheLastRead, "the time of an object that does not change stays"),
    fault("listings-are-stale", ListingsAreStale, "a put that returned is seen by every reader at once"),
    fault("listings-lag-behind-deletes", ListingsLagBehindDeletes, "a deleted key can be written again"),
    fault("what-is-half-written-is-listed", HalfWrittenIsListed, "nobody sees a part of an object"),
    fault("lists-block", ListsBlock, "the event loop is not blocked"),
    fault("a-delete-lies", DeleteLies, _NAMED),
    fault("a-delete-is-done-later", DeleteIsDoneLater, _NAMED),
    fault("a-refusal-is-taken-for-done", RefusalIsTakenForDone, "what may not be deleted is not said to be gone"),
    fault(
        "deletes-stop-at-the-first-failure", StopsAtTheFirstFailure, "what may not be deleted is not said to be gone"
    ),
    fault("deletes-stop-at-the-first-absent-object", StopsAtTheFirstAbsent, _ABSENT),
    fault("an-absent-object-cannot-be-deleted", AbsentCannotBeDeleted, _ABSENT),
    fault("an-absent-object-is-not-gone", AbsentIsNotGone, _ABSENT),
    fault("one-page-of-objects-is-deleted", DeletesAPage, "more objects than a page are deleted in one call"),
    fault("what-begins-so-is-deleted", DeletesWhatBeginsSo, _NAMED),
    fault("to-delete-nothing-deletes-everything", NothingIsEverything, "deleting nothing deletes nothing"),
    fault("what-is-gone-has-another-name", GoneHaveAnotherName, _NAMED),
    fault("only-the-first-is-deleted", OnlyTheFirstIsDeleted, _NAMED),
    fault("what-was-deleted-is-deleted-for-good", DeletedForGood, "a deleted key can be written again"),
    fault("deletes-block", DeletesBlock, "the event loop is not blocked"),
    fault("deletes-are-not-synced", DeletedIsNotSynced, "what was deleted does not come back after a power cut"),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That a delete of many ends at the first failure, and says truly which are gone.",
        reason="That is allowed: the core deletes the others later.",
    ),
    Unfound(
        noun=NOUN,
        says="That listings lag behind writes on a service for some seconds, now and then.",
        reason="A suite lists what it has written at once, some hundred times. A lag that is rarer is not met.",
    ),
)

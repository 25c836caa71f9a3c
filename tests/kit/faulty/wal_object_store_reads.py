"""Object stores that read wrongly: ranges, absent objects, keys, caches, the memory that they answer with."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import unquote

from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStoreError
from tests.kit.fault import Correct, Unfound
from tests.kit.object_backends import BLOCKED_S, NOUN, FolderStore, MemoryStore, fault, folder_suite, memory_suite


class StartsLate(MemoryStore):
    """A range begins one byte too late."""

    async def get(self, key, start, end):
        return await super().get(key, start + 1, end)


class StartsEarly(MemoryStore):
    """A range that does not begin at 0 begins one byte too early."""

    async def get(self, key, start, end):
        return await super().get(key, max(start - 1, 0) if start < end else start, end)


class EndIsInclusive(MemoryStore):
    """The byte at the end of a range is in it, as in HTTP."""

    async def get(self, key, start, end):
        return await super().get(key, start, end + 1 if start < end else end)


class EndsEarly(MemoryStore):
    """The last byte of a range is missing."""

    async def get(self, key, start, end):
        return await super().get(key, start, end - 1)


class EndBeyondIsAnError(MemoryStore):
    """A range that ends beyond the object is refused."""

    async def get(self, key, start, end):
        if key in self.objects and start < len(self.objects[key]) < end < 2**40:
            raise WalObjectStoreError("416 InvalidRange", retriable=False)
        return await super().get(key, start, end)


class StartBeyondIsAnError(MemoryStore):
    """A range that begins beyond the object is refused, as HTTP services do."""

    async def get(self, key, start, end):
        if key in self.objects and len(self.objects[key]) <= start < end:
            raise WalObjectStoreError("416 InvalidRange", retriable=False)
        return await super().get(key, start, end)


class StartBeyondIsAbsence(MemoryStore):
    """Of an object that a range begins behind it is said that there is none."""

    async def get(self, key, start, end):
        if key in self.objects and len(self.objects[key]) < start < end:
            raise ObjectNotFoundError(key)
        return await super().get(key, start, end)


class EmptyRangeIsEverything(MemoryStore):
    """An empty range makes a header that the service ignores: it answers with the whole object."""

    async def get(self, key, start, end):
        return await super().get(key, *((0, 2**40) if start == end else (start, end)))


class EmptyRangeIsNotAsked(MemoryStore):
    """An empty range is answered without a look at whether the object is there."""

    async def get(self, key, start, end):
        return b"" if start >= end else await super().get(key, start, end)


class BeyondIsPadded(MemoryStore):
    """What a range has beyond the end is filled with zeros."""

    async def get(self, key, start, end):
        found = await super().get(key, start, end)
        return found + bytes(end - start - len(found)) if end < 2**30 else found


class LargeReadsAreShort(MemoryStore):
    """A read gives at most 64 KiB, as a socket does."""

    async def get(self, key, start, end):
        return await super().get(key, start, min(end, start + 65_536))


class AbsentIsEmpty(MemoryStore):
    """An absent object is read as an empty one."""

    async def get(self, key, start, end):
        return await super().get(key, start, end) if key in self.objects else b""


class AbsentIsAFailure(MemoryStore):
    """That an object is absent is told as a failure that may pass."""

    async def get(self, key, start, end):
        if key not in self.objects:
            raise WalObjectStoreError(f"404 {key}")
        return await super().get(key, start, end)


class AbsentIsForeign(MemoryStore):
    """That an object is absent is told with an error of Python's."""

    async def get(self, key, start, end):
        return self.objects[key][start:end]


class AbsentHasAnotherName(MemoryStore):
    """The error names the object as the service does, with what comes before its key."""

    async def get(self, key, start, end):
        if key not in self.objects:
            raise ObjectNotFoundError(f"bucket/{key}")
        return await super().get(key, start, end)


class FolderIsAFailure(FolderStore):
    """To read a key that is the folder of others is a failure."""

    async def get(self, key, start, end):
        if (self.root / key).is_dir():
            raise WalObjectStoreError("Is a directory")
        return await super().get(key, start, end)


class ReadsAreCached(MemoryStore):
    """What was read once is read from a cache ever after."""

    def __init__(self):
        super().__init__()
        self.cache = {}

    async def get(self, key, start, end):
        if (key, start, end) not in self.cache:
            self.cache[key, start, end] = await super().get(key, start, end)
        return self.cache[key, start, end]


class DeletedIsCached(ReadsAreCached):
    """A cache of what was read learns of puts, and not of deletes."""

    async def put(self, key, data):
        await super().put(key, data)
        self.cache.clear()


class AbsenceIsCached(MemoryStore):
    """What was not there once is not looked for again for a while."""

    def __init__(self):
        super().__init__()
        self.absent = set()

    async def get(self, key, start, end):
        if key in self.absent:
            raise ObjectNotFoundError(key)
        try:
            return await super().get(key, start, end)
        except ObjectNotFoundError:
            self.absent.add(key)
            raise


class AnswersWithItsOwnMemory(MemoryStore):
    """What is read is the memory of the object itself, and can be written to."""

    def _store(self, key, data):
        super()._store(key, bytearray(data))

    async def get(self, key, start, end):
        if key not in self.objects:
            raise ObjectNotFoundError(key)
        return memoryview(self.objects[key])[start:end]


class UsesItsBufferAgain(MemoryStore):
    """All reads are into one buffer."""

    def __init__(self):
        super().__init__()
        self.buffer = bytearray(8 << 20)

    async def get(self, key, start, end):
        found = await super().get(key, start, end)
        self.buffer[: len(found)] = found
        return memoryview(self.buffer)[: len(found)].toreadonly()


class SharesAPosition(MemoryStore):
    """Reads of one object at once move one position."""

    position = 0

    async def get(self, key, start, end):
        self.position = start
        await asyncio.sleep(0)
        return await super().get(key, self.position, self.position + end - start)


class ReadsMixUpKeys(MemoryStore):
    """Answers of requests under way are told apart by their ranges, and not by their keys."""

    def __init__(self):
        super().__init__()
        self.under_way = {}

    async def get(self, key, start, end):
        if (start, end) not in self.under_way:
            self.under_way[start, end] = asyncio.ensure_future(super().get(key, start, end))
        try:
            return await asyncio.shield(self.under_way[start, end])
        finally:
            self.under_way.pop((start, end), None)


class KeysIgnoreCase(MemoryStore):
    """Keys that differ in case are one."""

    async def put(self, key, data):
        same = next((known for known in self.objects if known.lower() == key.lower()), key)
        await super().put(same, data)


class KeysAreDecoded(MemoryStore):
    """What is a percent sign in a key is decoded on its way."""

    async def put(self, key, data):
        await super().put(unquote(key), data)

    async def get(self, key, start, end):
        return await super().get(unquote(key), start, end)


class LongKeysAreCut(MemoryStore):
    """What is beyond 128 characters of a key is cut off."""

    async def put(self, key, data):
        await super().put(key[:128], data)

    async def get(self, key, start, end):
        return await super().get(key[:128], start, end)


class DotsAreHidden(MemoryStore):
    """A key whose last part begins with a dot is not listed."""

    async def list(self, prefix=""):
        async for page in super().list(prefix):
            yield [info for info in page if "/." not in info.key]


class GetsBlock(MemoryStore):
    """A read waits for its answer on the event loop's thread."""

    async def get(self, key, start, end):
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        return await super().get(key, start, end)


_RANGE = "a read gives the range from start inclusive to end exclusive"
_BEYOND = "a read beyond the end gives what there is"
_EMPTY = "an empty range is empty"
_ABSENT = "reading an absent object says that there is none"
_CALLERS = "what was read is the callers and stays as it is"
_ALIKE = "keys that look alike are those of different objects"

CORRECT = (
    Correct(noun=NOUN, name="objects-in-memory", suite=memory_suite(MemoryStore)),
    Correct(noun=NOUN, name="objects-on-a-folder", suite=folder_suite(FolderStore)),
)

FAULTS = (
    fault("ranges-start-one-late", StartsLate, _RANGE),
    fault("ranges-start-one-early", StartsEarly, _RANGE),
    fault("the-end-of-a-range-is-inclusive", EndIsInclusive, _RANGE),
    fault("ranges-end-one-early", EndsEarly, _RANGE),
    fault("an-end-beyond-the-object-is-an-error", EndBeyondIsAnError, _BEYOND),
    fault("a-start-beyond-the-object-is-an-error", StartBeyondIsAnError, _BEYOND),
    fault("a-start-beyond-the-object-is-absence", StartBeyondIsAbsence, _BEYOND),
    fault("what-is-beyond-the-end-is-padded", BeyondIsPadded, _BEYOND),
    fault("an-empty-range-is-everything", EmptyRangeIsEverything, _EMPTY),
    fault("an-empty-range-is-not-asked-for", EmptyRangeIsNotAsked, _ABSENT),
    fault("large-reads-are-short", LargeReadsAreShort, "any part of it read"),
    fault("an-absent-object-is-empty", AbsentIsEmpty, _ABSENT),
    fault("an-absent-object-is-a-failure", AbsentIsAFailure, _ABSENT),
    fault("an-absent-object-is-a-foreign-error", AbsentIsForeign, _ABSENT),
    fault("an-absent-object-has-another-name", AbsentHasAnotherName, _ABSENT),
    fault("reading-a-folder-is-a-failure", FolderIsAFailure, _ABSENT),
    fault("what-was-read-is-cached", ReadsAreCached, "putting a key again replaces the object"),
    fault("what-was-deleted-is-cached", DeletedIsCached, "a deleted key can be written again"),
    fault("absence-is-cached", AbsenceIsCached, "a put that returned is seen by every reader at once"),
    fault("answers-with-its-own-memory", AnswersWithItsOwnMemory, "writing into what was read changes no object"),
    fault("uses-its-buffer-again", UsesItsBufferAgain, _CALLERS),
    fault("reads-at-once-share-a-position", SharesAPosition, "ranges of one object are read at once"),
    fault("reads-at-once-mix-up-keys", ReadsMixUpKeys, "many objects are written and read at once"),
    fault("keys-ignore-case", KeysIgnoreCase, _ALIKE),
    fault("keys-are-decoded", KeysAreDecoded, "keys are taken as they are"),
    fault("long-keys-are-cut", LongKeysAreCut, "keys are taken as they are"),
    fault("keys-with-a-dot-are-hidden", DotsAreHidden, "keys are taken as they are"),
    fault("gets-block", GetsBlock, "the event loop is not blocked"),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That a service loses an object a long time after it was stored.",
        reason="A suite takes minutes. It sees what is there then.",
    ),
    Unfound(
        noun=NOUN,
        says="That a cache of an hour's age is read on another machine.",
        reason="The suite's stores are in one process. A back door on another way to the place finds it, where one is.",
    ),
)

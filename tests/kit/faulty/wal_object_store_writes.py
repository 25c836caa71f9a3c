"""Object stores that write wrongly: content, half of it, memory that is not theirs, power cuts, and on condition."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time

from diskless_core.plugin.folders import make_folder, sync_folder
from diskless_core.plugin.wal_object_store import (
    ConditionFailedError,
    ObjectNotFoundError,
    VersionedObject,
    WalObjectStoreError,
)
from diskless_core.testing.fakes.objects import Operation, _version
from tests.kit.fault import Unfound
from tests.kit.object_backends import BLOCKED_S, CLOCK, NOUN, FolderStore, MemoryStore, fault


class KeepsTheMemory(MemoryStore):
    """What is put is kept as it is given, and not copied."""

    async def put(self, key, data):
        async with self._called(Operation.PUT):
            self._store(key, data)


class CreatesKeepTheMemory(MemoryStore):
    """What is created is kept as it is given, and not copied."""

    async def create(self, key, data):
        version = await super().create(key, data)
        self._store(key, data)
        return version


class CopiesLater(MemoryStore):
    """A put returns before what it was given is copied."""

    async def put(self, key, data):
        self.copying = asyncio.get_running_loop().call_later(0.01, lambda: self._store(key, bytes(data)))


class ReleasesTheMemory(MemoryStore):
    """A put releases the view that it was given."""

    async def put(self, key, data):
        await super().put(key, data)
        if isinstance(data, memoryview):
            data.release()


class WritesIntoTheMemory(MemoryStore):
    """A put scrambles what it was given in place."""

    async def put(self, key, data):
        await super().put(key, data)
        if isinstance(data, bytearray):
            data.reverse()


class TakesOnlyBytes(MemoryStore):
    """What is put has to be bytes."""

    async def put(self, key, data):
        if not isinstance(data, bytes):
            raise WalObjectStoreError(f"bytes are needed, and not {type(data).__name__}", retriable=False)
        await super().put(key, data)


class ViewsAreWrittenWhole(MemoryStore):
    """Of a part of a memory the whole of it is written."""

    async def put(self, key, data):
        await super().put(key, data.obj if isinstance(data, memoryview) and len(data) else data)


class ViewsAreText(MemoryStore):
    """A view of memory is written as Python shows it."""

    async def put(self, key, data):
        await super().put(key, str(data).encode() if isinstance(data, memoryview) else data)


class LineEndsChange(MemoryStore):
    """Ends of lines are translated."""

    async def put(self, key, data):
        await super().put(key, bytes(data).replace(b"\r\n", b"\n"))


class ZerosAtTheEndAreLost(MemoryStore):
    """Zeros at the end of an object are lost."""

    async def put(self, key, data):
        await super().put(key, bytes(data).rstrip(b"\x00"))


class EndsAtABoundary(MemoryStore):
    """What looks like the boundary of a form ends the object."""

    async def put(self, key, data):
        await super().put(key, bytes(data).partition(b"\n--==0==--")[0])


class ObjectsArePadded(MemoryStore):
    """Objects are padded to whole blocks."""

    async def put(self, key, data):
        await super().put(key, bytes(data) + bytes(-len(data) % 512))


class EmptyIsNotStored(MemoryStore):
    """An empty object is not stored."""

    async def put(self, key, data):
        if len(data):
            await super().put(key, data)


class EmptyIsRefused(MemoryStore):
    """An empty object is refused."""

    async def put(self, key, data):
        if not len(data):
            raise WalObjectStoreError("nothing to store", retriable=False)
        await super().put(key, data)


class LargeIsCut(MemoryStore):
    """Of a large object what is beyond a part of it is lost."""

    async def put(self, key, data):
        await super().put(key, bytes(data)[: 1 << 20])


class PutsAreKept(MemoryStore):
    """A put of a key that is there does nothing."""

    async def put(self, key, data):
        if key not in self.objects:
            await super().put(key, data)


class PutsOverwriteInPlace(MemoryStore):
    """A put of less than is there leaves the rest of it."""

    async def put(self, key, data):
        await super().put(key, bytes(data) + self.objects.get(key, b"")[len(data) :])


class PutsAreDoneLater(MemoryStore):
    """A put returns before the object is there."""

    async def put(self, key, data):
        kept = bytes(data)
        asyncio.get_running_loop().call_later(0.01, lambda: self._store(key, kept))


class GrowsInPlace(MemoryStore):
    """An object is seen while it grows."""

    async def put(self, key, data):
        kept = bytes(data)
        for end in range(0, len(kept), 1 << 18):
            self._store(key, kept[:end])
            await asyncio.sleep(0)
        await super().put(key, kept)


class ReplacedInTwoSteps(MemoryStore):
    """An object that is replaced is gone for a moment."""

    async def put(self, key, data):
        kept = bytes(data)
        self.objects.pop(key, None)
        await asyncio.sleep(0)
        await super().put(key, kept)


class HalvesAreMixed(MemoryStore):
    """While an object is replaced the beginning of the new one is before the end of the old one."""

    async def put(self, key, data):
        kept, old = bytes(data), self.objects.get(key)
        if old is not None:
            self._store(key, kept[: len(kept) // 2] + old[len(kept) // 2 :])
            for _ in range(4):
                await asyncio.sleep(0)
        await super().put(key, kept)


class GrowsUnderAnotherName(MemoryStore):
    """An object grows as one of another name, which is listed."""

    async def put(self, key, data):
        kept = bytes(data)
        self._store(f"{key}.part", kept)
        for _ in range(4):
            await asyncio.sleep(0)
        self.objects.pop(f"{key}.part")
        await super().put(key, kept)


class CancelledLeavesAPart(MemoryStore):
    """A put that is cancelled leaves what it has written so far."""

    async def put(self, key, data):
        kept = bytes(data)
        try:
            for _ in range(4):
                await asyncio.sleep(0)
            await super().put(key, kept)
        except asyncio.CancelledError:
            self._store(key, kept[: len(kept) // 2])
            raise


class CancelledLeavesItsFile(MemoryStore):
    """A put that is cancelled leaves what it has written so far, as an object of another name."""

    async def put(self, key, data):
        try:
            await super().put(key, data)
        except asyncio.CancelledError:
            self._store(f"{key}.tmp", bytes(data[:1000]))
            raise


class CancelledGoesOn(MemoryStore):
    """A put that is cancelled goes on, and is not done when the store has stopped."""

    async def put(self, key, data):
        kept = bytes(data)
        try:
            await super().put(key, kept)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(0.6, lambda: self._store(key, kept))
            raise


class CancelledDeletesGoOn(MemoryStore):
    """A delete that is cancelled goes on, and is not done when the store has stopped."""

    async def delete(self, keys):
        try:
            return await super().delete(keys)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(0.6, lambda: [self.objects.pop(key, None) for key in keys])
            raise


class PutsShareAFile(FolderStore):
    """All puts write to one file before it is renamed."""

    def write(self, path, data):
        growing = self.root / self.incoming / "new"
        make_folder(path.parent)
        growing.write_bytes(data)
        time.sleep(0.001)
        if growing.exists():
            growing.replace(path)


class WritesInPlace(FolderStore):
    """A put writes the file in its place."""

    def write(self, path, data):
        make_folder(path.parent)
        with path.open("wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())
        sync_folder(path.parent)


class NeverSyncs(FolderStore):
    """A put is written and never synced."""

    def write(self, path, data):
        growing = self.root / self.incoming / CLOCK.new_uuid().hex
        make_folder(path.parent)
        growing.write_bytes(data)
        growing.replace(path)
        sync_folder(path.parent)


class NeverSyncsTheFolder(FolderStore):
    """The content of an object is synced, and its name never is."""

    def write(self, path, data):
        growing = self.root / self.incoming / CLOCK.new_uuid().hex
        make_folder(path.parent)
        with growing.open("wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())
        growing.replace(path)


class NeverSyncsNewFolders(FolderStore):
    """An object is synced, and the new folder that it is in never is."""

    def write(self, path, data):
        growing = self.root / self.incoming / CLOCK.new_uuid().hex
        path.parent.mkdir(parents=True, exist_ok=True)
        with growing.open("wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())
        growing.replace(path)
        sync_folder(path.parent)


class SyncsAfterTheRename(FolderStore):
    """A file is renamed, and then synced."""

    def write(self, path, data):
        growing = self.root / self.incoming / CLOCK.new_uuid().hex
        make_folder(path.parent)
        growing.touch()
        growing.replace(path)
        sync_folder(path.parent)
        with path.open("wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())


class PutsBlock(MemoryStore):
    """A put waits for its answer on the event loop's thread."""

    async def put(self, key, data):
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        await super().put(key, data)


class LargePutsGiveNoTurns(MemoryStore):
    """A put and a read never give others a turn."""

    async def put(self, key, data):
        self._store(key, bytes(data))

    async def get(self, key, start, end):
        if key not in self.objects:
            raise ObjectNotFoundError(key)
        return self.objects[key][start:end]


# -- on condition -------------------------------------------------------------------------------------------------


class CreateIgnoresTheCondition(MemoryStore):
    """A create writes in any case, as a service does that does not know If-None-Match."""

    async def create(self, key, data):
        await super().put(key, data)
        return _version(bytes(data))


class CreateLooksFirst(MemoryStore):
    """A create looks whether there is an object, and then writes."""

    async def create(self, key, data):
        if key in self.objects:
            raise ConditionFailedError(key)
        await super().put(key, data)
        return _version(bytes(data))


class CreateTakesTheSameContent(MemoryStore):
    """A create of the bytes that are there already succeeds."""

    async def create(self, key, data):
        if self.objects.get(key) == data:
            return _version(bytes(data))
        return await super().create(key, data)


class EmptyIsCreatedAgain(MemoryStore):
    """A create with an empty body is sent without its condition."""

    async def create(self, key, data):
        if not len(data):
            await super().put(key, data)
            return _version(b"")
        return await super().create(key, data)


class ReplaceIgnoresTheCondition(MemoryStore):
    """A replace writes whatever version is there."""

    async def replace(self, key, data, version):
        if key not in self.objects:
            raise ConditionFailedError(key)
        await super().put(key, data)
        return _version(bytes(data))


class ReplaceLooksFirst(MemoryStore):
    """A replace looks at the version, and then writes."""

    async def replace(self, key, data, version):
        if key not in self.objects or _version(self.objects[key]) != version:
            raise ConditionFailedError(key)
        await super().put(key, data)
        return _version(bytes(data))


class ReplaceCreates(MemoryStore):
    """A replace of an object that is not there creates it."""

    async def replace(self, key, data, version):
        if key not in self.objects:
            return await super().create(key, data)
        return await super().replace(key, data, version)


class ReplaceOfNothingIsAbsence(MemoryStore):
    """A replace of an object that is not there says that it is absent, and not that the condition does not hold."""

    async def replace(self, key, data, version):
        if key not in self.objects:
            raise ObjectNotFoundError(key)
        return await super().replace(key, data, version)


class _Versioned(MemoryStore):
    """Has versions of its own making, and looks at them without a race."""

    def version(self, key, data) -> str:
        raise NotImplementedError

    async def create(self, key, data):
        await super().create(key, data)
        return self.version(key, data)

    async def replace(self, key, data, version):
        async with self._called(Operation.REPLACE):
            if key not in self.objects or self.version(key, self.objects[key]) != version:
                raise ConditionFailedError(key)
            self._store(key, bytes(data))
            return self.version(key, data)

    async def get_versioned(self, key):
        found = await super().get_versioned(key)
        return VersionedObject(found.data, self.version(key, found.data))


class VersionIsTheLength(_Versioned):
    """The version of an object is its length."""

    def version(self, key, data):
        return str(len(data))


class VersionIsTheTime(_Versioned):
    """The version of an object is the second in which it was written."""

    def version(self, key, data):
        return str(self._modified_ms[key] // 1000)


class VersionIsOfTheBeginning(_Versioned):
    """The version of an object is a digest of its first KiB."""

    def version(self, key, data):
        return hashlib.sha256(bytes(data)[:3]).hexdigest()


class VersionIsCountedHere(_Versioned):
    """Versions are counted by the store, which does not see what others write."""

    def __init__(self):
        super().__init__()
        self.counts = {}

    def version(self, key, data):
        return str(self.counts.setdefault(key, 1))

    async def replace(self, key, data, version):
        await super().replace(key, data, version)
        self.counts[key] += 1
        return str(self.counts[key])


class VersionIsQuoted(MemoryStore):
    """The version that a write tells has quotes that the one of a read has not."""

    async def create(self, key, data):
        return f'"{await super().create(key, data)}"'

    async def replace(self, key, data, version):
        return f'"{await super().replace(key, data, version.strip(chr(34)))}"'


class VersionChangesWithEveryRead(MemoryStore):
    """Every read of an object gives it another version."""

    async def get_versioned(self, key):
        return VersionedObject((await super().get_versioned(key)).data, CLOCK.new_uuid().hex)


class VersionIsReadFirst(MemoryStore):
    """The version and the bytes of an object are read one after the other."""

    async def get_versioned(self, key):
        version = (await super().get_versioned(key)).version
        return VersionedObject(await self.get(key, 0, 2**40), version)


class VersionsAreCached(MemoryStore):
    """An object that was read with its version is read from a cache until this store replaces it."""

    def __init__(self):
        super().__init__()
        self.cache = {}

    async def get_versioned(self, key):
        if key not in self.cache:
            self.cache[key] = await super().get_versioned(key)
        return self.cache[key]

    async def replace(self, key, data, version):
        written = await super().replace(key, data, version)
        self.cache.pop(key, None)
        return written

    async def delete(self, keys):
        self.cache.clear()
        return await super().delete(keys)


class AbsentHasAVersion(MemoryStore):
    """An absent object is read as an empty one, with a version."""

    async def get_versioned(self, key):
        return await super().get_versioned(key) if key in self.objects else VersionedObject(b"", _version(b""))


class RefusalIsAFailure(MemoryStore):
    """That a condition does not hold is told as a failure: 412."""

    async def create(self, key, data):
        try:
            return await super().create(key, data)
        except ConditionFailedError:
            raise WalObjectStoreError("412 PreconditionFailed", retriable=False) from None


class RefusalIsForeign(MemoryStore):
    """That an object exists is told with an error of Python's."""

    async def create(self, key, data):
        try:
            return await super().create(key, data)
        except ConditionFailedError:
            raise FileExistsError(key) from None


class FailureIsARefusal(MemoryStore):
    """Whatever goes wrong with a create is taken for an object that is there."""

    async def create(self, key, data):
        try:
            return await super().create(key, data)
        except WalObjectStoreError:
            raise ConditionFailedError(key) from None


class FailedReplaceIsARefusal(MemoryStore):
    """Whatever goes wrong with a replace is taken for another version."""

    async def replace(self, key, data, version):
        try:
            return await super().replace(key, data, version)
        except WalObjectStoreError:
            raise ConditionFailedError(key) from None


class LosersLeaveAFile(MemoryStore):
    """A create that is refused leaves its body as an object of another name."""

    async def create(self, key, data):
        try:
            return await super().create(key, data)
        except ConditionFailedError:
            self._store(f"{key}.lost", bytes(data))
            raise


class NobodyWins(MemoryStore):
    """Of creates at once none takes effect."""

    creating = 0

    async def create(self, key, data):
        self.creating += 1
        try:
            await asyncio.sleep(0)
            if self.creating > 1:
                raise ConditionFailedError(key)
            return await super().create(key, data)
        finally:
            await asyncio.sleep(0)
            self.creating -= 1


class CreatedOnce(MemoryStore):
    """An object that was deleted cannot be created again."""

    def __init__(self):
        super().__init__()
        self.created = set()

    async def create(self, key, data):
        if key in self.created:
            raise ConditionFailedError(key)
        version = await super().create(key, data)
        self.created.add(key)
        return version


class CancelledCreatesComeLate(MemoryStore):
    """A create that is cancelled is sent again without its condition, by whoever cleans up."""

    async def create(self, key, data):
        try:
            return await super().create(key, data)
        except asyncio.CancelledError:
            kept = bytes(data)
            asyncio.get_running_loop().call_later(0.1, lambda: self._store(key, kept))
            raise


class ConditionalWritesBlock(MemoryStore):
    """A replace waits for its answer on the event loop's thread."""

    async def replace(self, key, data, version):
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        return await super().replace(key, data, version)


_EXACTLY = "a put stores exactly the bytes given"
_AGAIN = "a bytearray is stored and is the callers again at return"
_VIEWS = "a memoryview is stored as the bytes that it shows"
_EMPTY = "an empty object can be stored read and listed"
_REPLACES = "putting a key again replaces the object"
_PART = "nobody sees a part of an object"
_OLD_OR_NEW = "readers see the old or the new one whole"
_CANCELLED = "a put that is cancelled takes place wholly or not at all"
_STOPPED = "nothing is written or deleted once the store has stopped"
_LOST = "a put that returned is there after a power cut"
_TORN = "an object that a power cut tears is there wholly or not at all"
_ONE_CREATES = "of concurrent creates one wins"
_ONE_REPLACES = "of concurrent replaces of a version one wins"
_NOT_AGAIN = "what is there is not created again"
_OTHER_VERSION = "versions differ with every change"

FAULTS = (
    fault("keeps-the-memory-that-is-put", KeepsTheMemory, _AGAIN),
    fault("keeps-the-memory-that-is-created", CreatesKeepTheMemory, "is the callers again at return"),
    fault("copies-later", CopiesLater, _AGAIN),
    fault("releases-the-memory", ReleasesTheMemory, _VIEWS),
    fault("writes-into-the-memory", WritesIntoTheMemory, "a put leaves its argument alone"),
    fault("takes-only-bytes", TakesOnlyBytes, _AGAIN),
    fault("views-are-written-whole", ViewsAreWrittenWhole, _VIEWS),
    fault("views-are-text", ViewsAreText, _VIEWS),
    fault("ends-of-lines-change", LineEndsChange, _EXACTLY),
    fault("zeros-at-the-end-are-lost", ZerosAtTheEndAreLost, _EXACTLY),
    fault("a-boundary-ends-an-object", EndsAtABoundary, "bytes that look like a protocol are only bytes"),
    fault("objects-are-padded", ObjectsArePadded, _EXACTLY),
    fault("an-empty-object-is-not-stored", EmptyIsNotStored, _EMPTY),
    fault("an-empty-object-is-refused", EmptyIsRefused, _EMPTY),
    fault("large-objects-are-cut", LargeIsCut, "objects of odd sizes come back whole"),
    fault("a-put-of-what-is-there-does-nothing", PutsAreKept, _REPLACES),
    fault("a-put-of-less-leaves-the-rest", PutsOverwriteInPlace, _REPLACES),
    fault("puts-are-done-later", PutsAreDoneLater, "a put that returned is seen by every reader at once"),
    fault("objects-are-seen-while-they-grow", GrowsInPlace, _PART),
    fault("objects-grow-under-another-name", GrowsUnderAnotherName, _PART),
    fault("replaced-objects-are-gone-for-a-moment", ReplacedInTwoSteps, _OLD_OR_NEW),
    fault("replaced-objects-are-mixed", HalvesAreMixed, _OLD_OR_NEW),
    fault("a-cancelled-put-leaves-a-part", CancelledLeavesAPart, _CANCELLED),
    fault("a-cancelled-put-leaves-its-file", CancelledLeavesItsFile, _CANCELLED),
    fault("a-cancelled-put-goes-on", CancelledGoesOn, _STOPPED),
    fault("a-cancelled-delete-goes-on", CancelledDeletesGoOn, _STOPPED),
    fault("puts-share-a-file", PutsShareAFile, "many objects are written and read at once"),
    fault("puts-write-in-place", WritesInPlace, _TORN),
    fault("puts-are-never-synced", NeverSyncs, _LOST),
    fault("the-folder-is-never-synced", NeverSyncsTheFolder, _LOST),
    fault("new-folders-are-never-synced", NeverSyncsNewFolders, _LOST),
    fault("puts-are-synced-after-the-rename", SyncsAfterTheRename, _TORN),
    fault("puts-block", PutsBlock, "the event loop is not blocked"),
    fault("puts-and-gets-give-no-turns", LargePutsGiveNoTurns, "others get their turns while large objects move"),
    fault("creates-ignore-the-condition", CreateIgnoresTheCondition, _NOT_AGAIN),
    fault("creates-look-and-then-write", CreateLooksFirst, _ONE_CREATES),
    fault("a-create-of-the-same-bytes-succeeds", CreateTakesTheSameContent, _NOT_AGAIN),
    fault("an-empty-create-has-no-condition", EmptyIsCreatedAgain, _NOT_AGAIN),
    fault("replaces-ignore-the-condition", ReplaceIgnoresTheCondition, "only the version that is there is replaced"),
    fault("replaces-look-and-then-write", ReplaceLooksFirst, _ONE_REPLACES),
    fault("replaces-create", ReplaceCreates, "an absent object is not replaced"),
    fault("a-replace-of-nothing-is-absence", ReplaceOfNothingIsAbsence, "an absent object is not replaced"),
    fault("the-version-is-the-length", VersionIsTheLength, _OTHER_VERSION),
    fault("the-version-is-the-time", VersionIsTheTime, _OTHER_VERSION),
    fault("the-version-is-that-of-the-beginning", VersionIsOfTheBeginning, _OTHER_VERSION),
    fault("the-version-is-counted-here", VersionIsCountedHere, "a change by other means is another version"),
    fault("the-version-is-quoted", VersionIsQuoted, "an object is created where there is none"),
    fault("the-version-changes-with-every-read", VersionChangesWithEveryRead, "is one that can be replaced"),
    fault("the-version-is-read-first", VersionIsReadFirst, "an object is read with the version that it has"),
    fault("versions-are-cached", VersionsAreCached, "a change by other means is another version"),
    fault("an-absent-object-has-a-version", AbsentHasAVersion, "an object that was deleted can be created again"),
    fault("a-refused-condition-is-a-failure", RefusalIsAFailure, _NOT_AGAIN),
    fault("a-refused-condition-is-a-foreign-error", RefusalIsForeign, _NOT_AGAIN),
    fault("a-failed-create-is-a-refusal", FailureIsARefusal, "create takes a failure for a refused condition"),
    fault("a-failed-replace-is-a-refusal", FailedReplaceIsARefusal, "replace takes a failure for a refused condition"),
    fault("a-refused-create-leaves-a-file", LosersLeaveAFile, "of the others is ever seen"),
    fault("of-creates-at-once-none-wins", NobodyWins, _ONE_CREATES),
    fault("what-was-created-is-created-once", CreatedOnce, "an object that was deleted can be created again"),
    fault(
        "a-cancelled-create-comes-late",
        CancelledCreatesComeLate,
        "a create that is cancelled takes place wholly or not at all",
    ),
    fault("conditional-writes-block", ConditionalWritesBlock, "is not blocked by conditional writes"),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That a library in C, or a service, acknowledges before an object is durable.",
        reason="A suite sees the syncs of Python's `os` only. It does not reach the disks of a service.",
    ),
    Unfound(
        noun=NOUN,
        says="That a condition is honoured by most machines of a service, and not by all of them.",
        reason="`check_conditional_writes` runs at each start of a log on objects, and meets more than a suite.",
    ),
)

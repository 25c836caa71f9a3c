"""Remote storages whose copies, deletions and failures are not what they say."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress

from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage, StoredSegment
from tests.kit.fault import Unfound
from tests.kit.segment_backends import (
    LOG,
    NOUN,
    PASSWORD,
    InFolder,
    InMemory,
    WithCustomMetadata,
    folder_fault,
    memory_fault,
    start_fault,
)

BLOCKED_S = 0.15


# --- copies ----------------------------------------------------------------------------------------------------------


class ReturnsBeforeTheIndexes(InMemory):
    """A copy returns when the log can be read: its indexes come a moment later."""

    async def copy(self, metadata, data):
        custom = await super().copy(metadata, data)
        stored = self.segments[metadata.segment_id]
        later, stored.indexes = stored.indexes, {}
        asyncio.get_running_loop().call_later(0.01, lambda: stored.indexes.update(later))
        return custom


class ReturnsBeforeTheLog(InMemory):
    """A copy returns before the log can be read."""

    async def copy(self, metadata, data):
        custom = await super().copy(metadata, data)
        stored = self.segments.pop(metadata.segment_id)
        asyncio.get_running_loop().call_later(0.01, self.segments.__setitem__, metadata.segment_id, stored)
        return custom


class OnlyItsOwnEyes(InMemory):
    """What one broker copied, another one does not see."""

    def __init__(self, place):
        super().__init__({})


class ForgetsWhenStopped(InMemory):
    """What was copied is gone when the storage stops."""

    async def stop(self):
        self.segments.clear()


class CopiesOnce(InMemory):
    """A copy for the same metadata is refused, also when the one before has failed."""

    async def copy(self, metadata, data):
        if metadata.segment_id in self.segments:
            raise RemoteStorageError("409 Conflict: it is there already", retriable=False)
        return await super().copy(metadata, data)


class KeepsTheFirstCopy(InMemory):
    """A copy for metadata of which there is one does nothing."""

    async def copy(self, metadata, data):
        stored = self.segments.get(metadata.segment_id)
        if stored is not None and stored.is_complete:
            return None
        return await super().copy(metadata, data)


class Appends(InMemory):
    """A copy that is repeated is written behind what the one before has left."""

    async def copy(self, metadata, data):
        before = self.segments.get(metadata.segment_id, StoredSegment(b"")).log
        await super().copy(metadata, data)
        stored = self.segments[metadata.segment_id]
        self.segments[metadata.segment_id] = StoredSegment(before + stored.log, stored.indexes, is_complete=True)


class ForgetsIndexes(InMemory):
    """A copy that is repeated removes the indexes that it does not bring."""

    async def copy(self, metadata, data):
        self.segments.pop(metadata.segment_id, None)
        return await super().copy(metadata, data)


class KeepsPieces(InMemory):
    """The pieces of a log are kept as they are, though their memory is used again."""

    async def copy(self, metadata, data):
        pieces = []

        async def kept():
            async for piece in data.log():
                pieces.append(piece)
                yield piece

        await super().copy(metadata, LogSegmentData(log=kept, indexes=data.indexes))
        stored = self.segments[metadata.segment_id]
        self.segments[metadata.segment_id] = StoredSegment(b"".join(pieces), stored.indexes, is_complete=True)


class EmptyPieceIsTheEnd(InMemory):
    """A piece that is empty is taken for the end of the log."""

    async def copy(self, metadata, data):
        async def until_empty():
            async for piece in data.log():
                if not len(piece):
                    return
                yield piece

        log = b"".join([bytes(piece) async for piece in until_empty()])
        self.segments[metadata.segment_id] = StoredSegment(log, dict(data.indexes()), is_complete=True)


class AsksForIndexesFirst(InMemory):
    """The indexes are taken before the log has gone by."""

    async def copy(self, metadata, data):
        with suppress(AssertionError):
            taken = dict(data.indexes())
            return await super().copy(metadata, LogSegmentData(log=data.log, indexes=lambda: taken))
        return await super().copy(metadata, data)


class TranslatesWhatTheLogRaises(InMemory):
    """What the log raises is raised as a failure of the storage."""

    async def copy(self, metadata, data):
        try:
            return await super().copy(metadata, data)
        except Exception as error:
            raise RemoteStorageError(f"cannot copy: {error}") from error


class BrokenLogIsComplete(InMemory):
    """When a log breaks off, what there is of it is stored and nothing is raised."""

    async def copy(self, metadata, data):
        pieces = []
        with suppress(Exception):
            async for piece in data.log():
                pieces.append(bytes(piece))  # noqa: PERF401 - what came before an error is kept
        indexes = {}
        with suppress(AssertionError):
            indexes = dict(data.indexes())
        self.segments[metadata.segment_id] = StoredSegment(b"".join(pieces), indexes, is_complete=True)


class MixesCopiesUp(InMemory):
    """Copies that are under way at the same time share a buffer."""

    async def copy(self, metadata, data):
        self.buffer = bytearray()
        async for piece in data.log():
            self.buffer += piece
            await asyncio.sleep(0)
        self.segments[metadata.segment_id] = StoredSegment(bytes(self.buffer), dict(data.indexes()), is_complete=True)


class LosesCustomMetadata(WithCustomMetadata):
    """What it wants to find in the metadata is not returned by a copy that is repeated."""

    async def copy(self, metadata, data):
        again = metadata.segment_id in self.segments
        custom = await super().copy(metadata, data)
        return None if again else custom

    def _found(self, metadata):
        if metadata.custom_metadata != self.custom:
            raise RemoteResourceNotFoundError("it is not known where that is")
        return super()._found(metadata)


class CustomMetadataIsText(InMemory):
    """A copy returns a text, and not bytes."""

    async def copy(self, metadata, data):
        await super().copy(metadata, data)
        return f"bucket/{metadata.segment_id.id}"

    def _found(self, metadata):
        return self.segments[metadata.segment_id] if metadata.custom_metadata else super()._found(metadata)


class RemembersItself(InMemory):
    """Where a segment is, it remembers itself: another broker does not find it."""

    def __init__(self, place):
        super().__init__(place)
        self.known = set()

    async def copy(self, metadata, data):
        self.known.add(metadata.segment_id)
        return await super().copy(metadata, data)

    def _found(self, metadata):
        if metadata.segment_id not in self.known:
            raise RemoteResourceNotFoundError("it is not known where that is")
        return super()._found(metadata)


# --- deletion --------------------------------------------------------------------------------------------------------


class NeverDeletes(InMemory):
    """A deletion does nothing."""

    async def delete(self, metadata):
        del metadata


class DeletionLies(InMemory):
    """A deletion that fails says nothing of it."""

    async def delete(self, metadata):
        with suppress(RemoteStorageError):
            await super().delete(metadata)


class DeletesOnce(InMemory):
    """To delete a segment that is not there is an error."""

    async def delete(self, metadata):
        if metadata.segment_id not in self.segments:
            raise RemoteResourceNotFoundError("there is no such segment")
        await super().delete(metadata)


class LeavesIndexes(InFolder):
    """A deletion removes the log, and leaves the indexes."""

    def remove(self, metadata):
        if not self.folder.is_dir():
            raise NotADirectoryError(self.folder)
        self.path(metadata, LOG).unlink(missing_ok=True)


class LeavesTheTransactionIndex(InFolder):
    """A deletion removes the log and the indexes that every segment has."""

    def remove(self, metadata):
        if not self.folder.is_dir():
            raise NotADirectoryError(self.folder)
        for suffix in (LOG, *IndexType):
            if suffix is not IndexType.TRANSACTION:
                self.path(metadata, suffix).unlink(missing_ok=True)


class DeletesWithCustomMetadataOnly(WithCustomMetadata):
    """What a failed copy left is not deleted, for its metadata do not have what a copy returns."""

    async def copy(self, metadata, data):
        try:
            return await super().copy(metadata, data)
        finally:
            if metadata.segment_id in self.segments:
                self.segments[metadata.segment_id].is_complete = True

    async def delete(self, metadata):
        if metadata.custom_metadata is not None:
            await super().delete(metadata)

    def _found(self, metadata):
        if metadata.segment_id not in self.segments:
            raise RemoteResourceNotFoundError("there is no such segment")
        return self.segments[metadata.segment_id]


class DeletesAllOfThePartition(InMemory):
    """With a segment go all those of the same offsets."""

    async def delete(self, metadata):
        await super().delete(metadata)
        for segment_id in list(self.segments):
            if segment_id.topic_id_partition == metadata.segment_id.topic_id_partition:
                del self.segments[segment_id]


class NeverCopiedAgain(InMemory):
    """A segment that was deleted stays so, though it is copied again."""

    def __init__(self, place):
        super().__init__(place)
        self.deleted = set()

    async def delete(self, metadata):
        self.deleted.add(metadata.segment_id)
        await super().delete(metadata)

    async def copy(self, metadata, data):
        custom = await super().copy(metadata, data)
        if metadata.segment_id in self.deleted:
            self.segments.pop(metadata.segment_id)
        return custom


class IgnoresReplacedIndexes(InMemory):
    """An index that is replaced stays as it was, when it was there before."""

    async def replace_index(self, metadata, index, data):
        if index not in self.segments[metadata.segment_id].indexes:
            await super().replace_index(metadata, index, data)


class DiscardsWhatIsComplete(InMemory):
    """What throws away unfinished copies throws away the log of the complete one, too."""

    async def discard_unfinished(self, metadata):
        self.segments.pop(metadata.segment_id, None)


# --- failures --------------------------------------------------------------------------------------------------------


class ForeignErrors(InMemory):
    """What the client raises reaches the broker as it is."""

    async def fetch(self, metadata, start, end):
        try:
            return await super().fetch(metadata, start, end)
        except RemoteResourceNotFoundError:
            raise
        except RemoteStorageError as error:
            raise ConnectionResetError("connection reset by peer") from error


class ForeignErrorsOfDeletion(InMemory):
    """What the client raises when something cannot be deleted reaches the broker as it is."""

    async def delete(self, metadata):
        try:
            await super().delete(metadata)
        except RemoteStorageError as error:
            raise OSError("Input/output error") from error


class NeverComesBack(InMemory):
    """After a copy that failed it refuses every other."""

    failed = False

    async def copy(self, metadata, data):
        if self.failed:
            raise RemoteStorageError("failed before")
        try:
            return await super().copy(metadata, data)
        except RemoteStorageError:
            self.failed = True
            raise


class TellsThePassword(InMemory):
    """When it cannot start it tells the address of its place, with the password in it."""

    async def start(self):
        raise RemoteStorageError(f"cannot connect to https://diskless:{PASSWORD}@127.0.0.1:1/segments")


class TellsThePasswordInTheCause(InMemory):
    """The error that its own one was raised from has the password."""

    async def start(self):
        try:
            raise OSError(f"no route to diskless:{PASSWORD}@127.0.0.1")
        except OSError as error:
            raise RemoteStorageError("cannot connect") from error


class LogsThePassword(InMemory):
    """It logs the settings that it cannot connect with."""

    async def start(self):
        logging.getLogger(__name__).warning("cannot connect with password=%s", PASSWORD)
        raise RemoteStorageError("cannot connect")


class StartFailsWithAForeignError(InMemory):
    """When it cannot start it raises what its client raised."""

    async def start(self):
        raise ConnectionRefusedError("connection refused")


# --- the event loop, cancellation, and the end -----------------------------------------------------------------------


class BlocksWhenReading(InMemory):
    """A read waits for the disk on the event loop's thread."""

    async def fetch(self, metadata, start, end):
        await asyncio.sleep(0)
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        return await super().fetch(metadata, start, end)


class BlocksWhenCopying(InMemory):
    """A copy waits for the disk on the event loop's thread."""

    async def copy(self, metadata, data):
        await asyncio.sleep(0)
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        return await super().copy(metadata, data)


class BlocksWhenDeleting(InMemory):
    """A deletion waits for the disk on the event loop's thread."""

    async def delete(self, metadata):
        await asyncio.sleep(0)
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        await super().delete(metadata)


class CancelledThreadsGoOn(InFolder):
    """A copy that is cancelled does not wait for the thread that publishes it."""

    async def settled(self, doing):
        return await doing


class CancelledCopiesGoOn(InMemory):
    """A copy that is cancelled goes on as a task of its own."""

    async def copy(self, metadata, data):
        pieces = [bytes(piece) async for piece in data.log()]

        async def log():
            for piece in pieces:
                yield piece

        taken = dict(data.indexes())

        async def publish():
            await asyncio.sleep(0.002)
            return await MemoryRemoteStorage.copy(self, metadata, LogSegmentData(log=log, indexes=lambda: taken))

        self.publishing = asyncio.create_task(publish())
        return await asyncio.shield(self.publishing)

    async def stop(self):
        with suppress(AttributeError):
            await self.publishing


class CancelledCallsKeepTheLock(InMemory):
    """A read that is cancelled at the wrong moment leaves a lock taken: all later ones wait."""

    def __init__(self, place):
        super().__init__(place)
        self.lock = asyncio.Lock()

    async def fetch(self, metadata, start, end):
        await self.lock.acquire()
        await asyncio.sleep(0)
        try:
            return await super().fetch(metadata, start, end)
        finally:
            self.lock.release()


class TakesCancellationForAnEnd(InMemory):
    """A copy that is cancelled ends as if it had been done."""

    async def copy(self, metadata, data):
        with suppress(asyncio.CancelledError):
            return await super().copy(metadata, data)


class GivenUpCopiesTakeTheWholeOneAlong(InMemory):
    """A copy that is given up removes what another one of the same has completed meanwhile."""

    async def copy(self, metadata, data):
        try:
            return await super().copy(metadata, data)
        except BaseException:
            self.segments.pop(metadata.segment_id, None)
            raise


class LeavesAThread(InMemory):
    """A thread goes on when it is stopped."""

    async def start(self):
        threading.Thread(target=threading.Event().wait, args=(60,), daemon=True, name="left").start()


class LeavesATask(InMemory):
    """A task goes on when it is stopped."""

    async def start(self):
        self.task = asyncio.create_task(asyncio.Event().wait())


class LeavesFilesOpen(InFolder):
    """A file that was read is left open."""

    opened = []  # noqa: RUF012 - all of them, on purpose

    def read(self, metadata, suffix, start, end):
        file = self.path(metadata, suffix).open("rb")
        self.opened.append(file)
        file.seek(start)
        return file.read()[: max(0, end - start)]


class StopsOnce(InMemory):
    """A second stop is an error."""

    started = False

    async def start(self):
        self.started = True

    async def stop(self):
        if not self.started:
            raise RemoteStorageError("it is not running")
        self.started = False


class NeverSyncs(InFolder):
    """A copy returns before the log is on the disk."""

    def sync(self, file):
        del file


class NeverSyncsNames(InFolder):
    """The names of files are not synced: in a power cut they are gone."""

    def sync_names(self):
        """Nothing."""


class HoldsTheWholeLog(InFolder):
    """A copy reads the whole log into memory before it writes it."""

    async def write_log(self, file, data):
        await self.run(file.write, b"".join([bytes(piece) async for piece in data.log()]))


_AT_ONCE = "a copy that returned is seen by every reader at once"
_REPEATED = "a repeated copy replaces log and indexes"
_BREAKS_OFF = "a copy whose log breaks off raises what the log raised"
_GONE = "a deleted segment is gone with its indexes"
_FAILS = "a call that fails raises the interfaces error and can be repeated"
_NO_SECRET = "a message has no secret"
_BLOCKED = "the event loop is not blocked"
_LEAVES = "a stopped storage leaves no thread no task and no file open"
_POWER_CUT = "a copy that returned is there after a power cut"

FAULTS = (
    memory_fault("returns-before-the-indexes", ReturnsBeforeTheIndexes, _AT_ONCE),
    memory_fault("returns-before-the-log", ReturnsBeforeTheLog, _AT_ONCE),
    memory_fault("seen-by-nobody-else", OnlyItsOwnEyes, "a copied segment is read by another broker"),
    memory_fault(
        "forgets-when-stopped", ForgetsWhenStopped, "a segment is there when the storage that copied it has stopped"
    ),
    memory_fault("copies-once", CopiesOnce, "a copy may be repeated"),
    memory_fault("keeps-the-first-copy", KeepsTheFirstCopy, _REPEATED),
    memory_fault("a-repeated-copy-is-appended", Appends, _REPEATED),
    memory_fault("forgets-indexes", ForgetsIndexes, "an index that a repeated copy has not stays"),
    memory_fault("keeps-memory-that-is-used-again", KeepsPieces, "the pieces in which a log comes do not matter"),
    memory_fault("an-empty-piece-is-the-end", EmptyPieceIsTheEnd, "pieces may be empty"),
    memory_fault("asks-for-indexes-first", AsksForIndexesFirst, "indexes are asked for when the log has gone by"),
    memory_fault("translates-what-the-log-raises", TranslatesWhatTheLogRaises, _BREAKS_OFF),
    memory_fault("a-broken-log-is-complete", BrokenLogIsComplete, _BREAKS_OFF),
    memory_fault("mixes-copies-up", MixesCopiesUp, "many segments are copied and read at once"),
    memory_fault("loses-custom-metadata", LosesCustomMetadata, "a copy may be repeated"),
    memory_fault("custom-metadata-are-text", CustomMetadataIsText, "what a copy returns is bytes or nothing"),
    memory_fault("remembers-where-segments-are", RemembersItself, "a copied segment is read by another broker"),
    memory_fault("never-deletes", NeverDeletes, _GONE),
    memory_fault(
        "a-failed-deletion-lies", DeletionLies, "a deletion that failed does not say that the segment is gone"
    ),
    memory_fault("deletes-once", DeletesOnce, "a segment may be deleted twice and without having been copied"),
    folder_fault("leaves-indexes", LeavesIndexes, _GONE),
    folder_fault("leaves-the-transaction-index", LeavesTheTransactionIndex, _GONE),
    memory_fault("leaves-failed-copies", DeletesWithCustomMetadataOnly, "what a failed copy left is deleted"),
    memory_fault("deletes-all-of-the-partition", DeletesAllOfThePartition, "copies of the same offsets are apart"),
    memory_fault("is-never-copied-again", NeverCopiedAgain, "a deleted segment can be copied again"),
    memory_fault("ignores-replaced-indexes", IgnoresReplacedIndexes, "an index is replaced or added"),
    memory_fault("discards-what-is-complete", DiscardsWhatIsComplete, "leaves complete copies whole"),
    memory_fault("foreign-errors", ForeignErrors, _FAILS),
    memory_fault("foreign-errors-of-deletions", ForeignErrorsOfDeletion, _FAILS),
    memory_fault("never-comes-back", NeverComesBack, _FAILS),
    start_fault("tells-the-password", TellsThePassword, _NO_SECRET),
    start_fault("tells-the-password-in-the-cause", TellsThePasswordInTheCause, _NO_SECRET),
    start_fault("logs-the-password", LogsThePassword, "no secret is logged"),
    start_fault("a-failed-start-is-a-foreign-error", StartFailsWithAForeignError, "a RemoteStorageError is raised"),
    start_fault("starts-without-a-place", InMemory, "a place that cannot be reached is reported"),
    memory_fault("reads-block", BlocksWhenReading, _BLOCKED),
    memory_fault("copies-block", BlocksWhenCopying, _BLOCKED),
    memory_fault("deletions-block", BlocksWhenDeleting, _BLOCKED),
    folder_fault("a-cancelled-copys-thread-goes-on", CancelledThreadsGoOn, "leaves no thread behind that publishes it"),
    memory_fault("a-cancelled-copy-goes-on", CancelledCopiesGoOn, "does not come back after a deletion"),
    memory_fault("a-cancelled-call-keeps-a-lock", CancelledCallsKeepTheLock, "holds nobody up"),
    memory_fault("a-cancelled-copy-says-it-is-done", TakesCancellationForAnEnd, "a cancelled copy ends"),
    memory_fault(
        "a-copy-that-is-given-up-removes-another",
        GivenUpCopiesTakeTheWholeOneAlong,
        "another copy of the same that is given up does no harm",
    ),
    memory_fault("leaves-a-thread", LeavesAThread, _LEAVES),
    memory_fault("leaves-a-task", LeavesATask, _LEAVES),
    folder_fault("leaves-files-open", LeavesFilesOpen, _LEAVES),
    memory_fault("stop-works-once", StopsOnce, "stop may be called twice and before start"),
    folder_fault("never-syncs", NeverSyncs, _POWER_CUT),
    folder_fault("never-syncs-names", NeverSyncsNames, _POWER_CUT),
    folder_fault("holds-the-whole-log", HoldsTheWholeLog, "a copy takes no more memory for a larger log"),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That `is_node_local` or `is_process_local` is false of a place that is lost with the node.",
        reason="A suite has one node, and cannot lose its disk.",
    ),
    Unfound(
        noun=NOUN,
        says="That a service loses what it has acknowledged.",
        reason="Its disks are out of reach; the power cut is of a folder, and sees syncs by Python's `os.fsync`.",
    ),
    Unfound(
        noun=NOUN,
        says="That files or parts of uploads stay when a segment is deleted.",
        reason="The interface lists nothing: only the backend's own tests know where to look.",
    ),
    Unfound(
        noun=NOUN,
        says="That a library in C takes memory for a whole log.",
        reason="Only memory of Python's is measured.",
    ),
)

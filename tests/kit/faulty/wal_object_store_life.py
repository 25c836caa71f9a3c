"""Object stores that start, stop or fail wrongly: what they tell, and what they leave behind."""

from __future__ import annotations

import asyncio
import logging
import threading

from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStoreError
from tests.kit.fault import Unfound
from tests.kit.object_backends import NOUN, PASSWORD, FolderStore, MemoryStore, fault, start_fault

logger = logging.getLogger(__name__)


class StartLeavesATrial(MemoryStore):
    """A start leaves the object with which it has tried out the place."""

    async def start(self):
        self._store("trial", b"x")


class StartClearsThePlace(MemoryStore):
    """A start removes what is there."""

    async def start(self):
        self.objects.clear()


class StartReadingWrites(MemoryStore):
    """A store that is opened for reading leaves an object."""

    async def start_reading(self):
        self._store("trial", b"x")


class CannotBeReadOnly(MemoryStore):
    """A store that is opened for reading cannot be read."""

    is_started = False

    async def start(self):
        self.is_started = True

    async def start_reading(self):
        """Nothing."""

    async def get(self, key, start, end):
        if not self.is_started:
            raise WalObjectStoreError("not started")
        return await super().get(key, start, end)


class StopsOnce(MemoryStore):
    """A second stop is an error."""

    is_stopped = False

    async def stop(self):
        if self.is_stopped:
            raise WalObjectStoreError("stopped already")
        self.is_stopped = True


class CannotStopBeforeItStarts(MemoryStore):
    """A store that was not started cannot be stopped."""

    task = None

    async def start(self):
        self.task = asyncio.current_task()

    async def stop(self):
        self.task.get_name()


class StopDeletes(FolderStore):
    """What an instance has stored goes with it, and it claims to keep it."""

    def __init__(self, root):
        super().__init__(root)
        self.own = []

    async def put(self, key, data):
        await super().put(key, data)
        self.own.append(key)

    async def stop(self):
        await super().delete(self.own)


class StoppedStoreSaysAbsent(MemoryStore):
    """Once it is stopped, it says of each object that it is absent."""

    is_stopped = False

    async def stop(self):
        self.is_stopped = True

    async def get(self, key, start, end):
        if self.is_stopped:
            raise ObjectNotFoundError(key)
        return await super().get(key, start, end)


class StoppedStoreIsForeign(MemoryStore):
    """Once it is stopped, a call raises an error of Python's."""

    is_stopped = False

    async def stop(self):
        self.is_stopped = True

    async def put(self, key, data):
        if self.is_stopped:
            raise RuntimeError("cannot schedule new futures after shutdown")
        await super().put(key, data)


class LeavesAThread(MemoryStore):
    """A thread of a stopped store goes on."""

    async def start(self):
        threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()


class LeavesATask(MemoryStore):
    """A task of a stopped store goes on."""

    async def start(self):
        self.task = asyncio.ensure_future(asyncio.sleep(60))


class LeavesAFile(FolderStore):
    """A file of a stopped store is never closed."""

    async def start(self):
        await super().start()
        path = self.root / self.incoming / "lock"
        _left_open.append(path.open("wb"))


_left_open = []


class CancelledTasksGoOn(MemoryStore):
    """A put that is cancelled is tried again in the background for ever."""

    async def put(self, key, data):
        try:
            await super().put(key, data)
        except asyncio.CancelledError:
            self.again = asyncio.ensure_future(asyncio.sleep(60))
            raise


class LeftListingsGoOn(MemoryStore):
    """A task that reads ahead goes on when a listing is left early."""

    async def list(self, prefix=""):
        ahead = asyncio.ensure_future(asyncio.Event().wait())
        self.__dict__.setdefault("ahead", []).append(ahead)
        async for page in super().list(prefix):
            yield page
        ahead.cancel()


class FailureIsAbsence(MemoryStore):
    """Whatever goes wrong with a read is taken for an absent object."""

    async def get(self, key, start, end):
        try:
            return await super().get(key, start, end)
        except WalObjectStoreError:
            raise ObjectNotFoundError(key) from None


class FailureIsAVersionedAbsence(MemoryStore):
    """Whatever goes wrong with a read of a version is taken for an absent object."""

    async def get_versioned(self, key):
        try:
            return await super().get_versioned(key)
        except WalObjectStoreError:
            raise ObjectNotFoundError(key) from None


class FailedListingIsEmpty(MemoryStore):
    """A listing that fails is an empty one."""

    async def list(self, prefix=""):
        try:
            async for page in super().list(prefix):
                yield page
        except WalObjectStoreError:
            return


class FailedPutIsDone(MemoryStore):
    """A put that fails is said to have succeeded."""

    async def put(self, key, data):
        try:
            await super().put(key, data)
        except WalObjectStoreError as error:
            logger.warning("cannot write %s: %s", key, error)


class FailedDeleteIsDone(MemoryStore):
    """A delete that fails is said to have succeeded."""

    async def delete(self, keys):
        try:
            return await super().delete(keys)
        except WalObjectStoreError:
            return list(keys)


class FailureIsForeign(MemoryStore):
    """A read that fails raises an error of Python's."""

    async def get(self, key, start, end):
        try:
            return await super().get(key, start, end)
        except ObjectNotFoundError:
            raise
        except WalObjectStoreError as error:
            raise ConnectionResetError(str(error)) from None


class FailureIsAGroup(MemoryStore):
    """A delete that fails raises the errors of all its requests in a group."""

    async def delete(self, keys):
        try:
            return await super().delete(keys)
        except WalObjectStoreError as error:
            raise ExceptionGroup("deletes", [error]) from None


class FailureTellsThePassword(MemoryStore):
    """The message of a failed write has the request's header, with the password."""

    async def put(self, key, data):
        try:
            await super().put(key, data)
        except WalObjectStoreError as error:
            raise WalObjectStoreError(f"{error} (Authorization: {PASSWORD})") from None


class CauseTellsThePassword(MemoryStore):
    """What a failed listing was caused by has the password."""

    async def list(self, prefix=""):
        try:
            async for page in super().list(prefix):
                yield page
        except WalObjectStoreError as error:
            raise WalObjectStoreError("cannot list") from OSError(f"{error}: https://key:{PASSWORD}@host")


class FailureLogsThePassword(MemoryStore):
    """What fails is logged with the password."""

    async def delete(self, keys):
        try:
            return await super().delete(keys)
        except WalObjectStoreError:
            logger.warning("cannot delete with %s", PASSWORD)
            raise


class FailsEverAfter(MemoryStore):
    """After a failure it fails until it is started again."""

    has_failed = False

    async def put(self, key, data):
        if self.has_failed:
            raise WalObjectStoreError("the connection is closed")
        try:
            await super().put(key, data)
        except WalObjectStoreError:
            self.has_failed = True
            raise


class WaitsForEver(MemoryStore):
    """A call waits for an answer as long as there is none."""

    def hanging(self):
        return _Never()


class _Never:
    async def __aenter__(self):
        await asyncio.Event().wait()

    async def __aexit__(self, *_):
        """Nothing."""


class SilenceIsForGood(MemoryStore):
    """That nothing was answered in time is said to be an error that no retry helps."""

    async def get(self, key, start, end):
        try:
            return await super().get(key, start, end)
        except ObjectNotFoundError:
            raise
        except WalObjectStoreError as error:
            raise WalObjectStoreError(str(error), retriable=False) from None


class StartTellsThePassword(MemoryStore):
    """A start that fails says with which password."""

    async def start(self):
        raise WalObjectStoreError(f"cannot connect with {PASSWORD}")


class StartLogsThePassword(MemoryStore):
    """A start that fails logs with which password."""

    async def start(self):
        logger.warning("cannot connect with %s", PASSWORD)
        raise WalObjectStoreError("cannot connect: check the address")


class StartFailsForeign(MemoryStore):
    """A start that fails raises an error of Python's."""

    async def start(self):
        raise ConnectionRefusedError("connection refused")


class StartSucceedsAnyway(MemoryStore):
    """A start does not find out that the place cannot be used."""


class StartNeverEnds(MemoryStore):
    """Without its place, a start never ends."""

    async def start(self):
        await asyncio.Event().wait()


class StartSaysNothing(MemoryStore):
    """A start that fails does not say what to do."""

    async def start(self):
        raise WalObjectStoreError("")


_STAYS = "what is there when a store starts stays there"
_READING = "a store opened for reading gets and lists what is there"
_LEAVES = "leaves no thread no task and no file open"
_STOPPED = "a call of a stopped store raises the interfaces error if it fails"
_CANNOT_OPEN = "a store that cannot be opened says so without secrets"

FAULTS = (
    fault("a-start-leaves-its-trial", StartLeavesATrial, "a new place lists nothing"),
    fault("a-start-clears-the-place", StartClearsThePlace, _STAYS),
    fault("reading-leaves-its-trial", StartReadingWrites, _READING),
    fault("a-store-for-reading-cannot-be-read", CannotBeReadOnly, _READING),
    fault("stop-works-once", StopsOnce, "stop may be called twice"),
    fault("stop-needs-a-start", CannotStopBeforeItStarts, "stop may be called twice and before start"),
    fault("stop-deletes", StopDeletes, "what one instance stored the next one finds"),
    fault("a-stopped-store-says-absent", StoppedStoreSaysAbsent, "of a stopped store says that nothing is there"),
    fault("a-stopped-store-raises-foreign-errors", StoppedStoreIsForeign, _STOPPED),
    fault("leaves-a-thread", LeavesAThread, _LEAVES),
    fault("leaves-a-task", LeavesATask, _LEAVES),
    fault("leaves-a-file", LeavesAFile, _LEAVES),
    fault("a-cancelled-put-leaves-a-task", CancelledTasksGoOn, _LEAVES),
    fault("a-listing-left-early-leaves-a-task", LeftListingsGoOn, _LEAVES),
    fault("a-failed-read-is-absence", FailureIsAbsence, "get takes a failure for an absent object"),
    fault("a-failed-versioned-read-is-absence", FailureIsAVersionedAbsence, "takes a failure for an absent object"),
    fault("a-failed-listing-is-empty", FailedListingIsEmpty, "list says that it has succeeded while the place failed"),
    fault("a-failed-put-is-done", FailedPutIsDone, "put says that it has succeeded while the place failed"),
    fault("a-failed-delete-is-done", FailedDeleteIsDone, "delete says that it has succeeded while the place failed"),
    fault("a-failure-is-a-foreign-error", FailureIsForeign, "raises a WalObjectStoreError, and not"),
    fault("a-failure-is-a-group-of-errors", FailureIsAGroup, "raises a WalObjectStoreError, and not"),
    fault("a-failure-tells-the-password", FailureTellsThePassword, "a message of put has a secret"),
    fault("the-cause-of-a-failure-tells-the-password", CauseTellsThePassword, "a message of list has a secret"),
    fault("a-failure-logs-the-password", FailureLogsThePassword, "no secret is logged"),
    fault("fails-ever-after", FailsEverAfter, "a failure is told as one"),
    fault("waits-for-ever", WaitsForEver, "a call that the place never answers ends all the same"),
    fault("silence-is-for-good", SilenceIsForGood, "says that it cannot"),
    start_fault("a-start-tells-the-password", StartTellsThePassword, "a message of start has a secret"),
    start_fault("a-start-logs-the-password", StartLogsThePassword, "no secret is logged"),
    start_fault("a-failed-start-is-a-foreign-error", StartFailsForeign, "start raises a WalObjectStoreError, and not"),
    start_fault("a-start-does-not-look", StartSucceedsAnyway, "a start fails where the place cannot be used"),
    start_fault("a-start-without-place-never-ends", StartNeverEnds, _CANNOT_OPEN),
    start_fault("a-failed-start-says-nothing", StartSaysNothing, "says what to do"),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That what a service has received of a cancelled put is done after the store has stopped.",
        reason="The store is not there any more. The object is deleted as one that no broker knows of.",
    ),
)

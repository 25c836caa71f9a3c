"""Keepers of segments' metadata that forget, let through what they may not, or go wrong when something else does."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from dataclasses import replace

from diskless_core.plugin.remote_log_metadata import IllegalTransitionError, RemoteLogMetadataError
from diskless_core.remote_log.metadata import RemoteLogSegmentState, RemotePartitionDeleteMetadata
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger, MemoryRemoteLogMetadata
from tests.kit.fault import Fault, Unfound
from tests.kit.metadata_backends import NOUN, PASSWORD, fault, suite

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
BLOCKED_S = 0.1


class TakesAnyCopy(MemoryRemoteLogMetadata):
    """A copy that cannot begin is dropped without a word, as Kafka's cache does."""

    async def add(self, metadata):
        with suppress(IllegalTransitionError):
            await super().add(metadata)


class TakesAnyUpdate(MemoryRemoteLogMetadata):
    """An update that does not follow is dropped without a word."""

    async def update(self, update):
        with suppress(IllegalTransitionError):
            await super().update(update)


class TakesAnyDeletion(MemoryRemoteLogMetadata):
    """The state of a deletion that does not follow is dropped without a word."""

    async def update_partition(self, update):
        with suppress(IllegalTransitionError):
            await super().update_partition(update)


class ReplacesTheCopyOfAnId(MemoryRemoteLogMetadata):
    """Another copy with a known id takes the place of the first one."""

    async def add(self, metadata):
        self.ledger.log(metadata.segment_id.topic_id_partition).forget(metadata.segment_id)
        await super().add(metadata)


class AddsOnce(MemoryRemoteLogMetadata):
    """To add the same again, as after a lost answer, is an error."""

    async def add(self, metadata):
        known = self.ledger.log(metadata.segment_id.topic_id_partition).get(metadata.segment_id)
        await super().add(metadata)
        if known is not None:
            raise IllegalTransitionError("it is known already")


class UpdatesOnce(MemoryRemoteLogMetadata):
    """To bring a segment into the state that it is in is an error."""

    async def update(self, update):
        known = self.ledger.log(update.segment_id.topic_id_partition).get(update.segment_id)
        if known is not None and known.state is update.state:
            raise IllegalTransitionError("it is in that state already")
        await super().update(update)


class LateUpdatesWin(MemoryRemoteLogMetadata):
    """A copy that ends while its segment is being deleted makes it whole again."""

    async def update(self, update):
        try:
            await super().update(update)
        except IllegalTransitionError:
            log = self.ledger.log(update.segment_id.topic_id_partition)
            known = log.get(update.segment_id)
            if update.state is not FINISHED or known is None:
                raise
            log.put(replace(known, state=FINISHED))


class ChecksBeforeItWaits(MemoryRemoteLogMetadata):
    """Whether an id is taken is looked at before the event is written, so two can take it at once."""

    async def add(self, metadata):
        log = self.ledger.log(metadata.segment_id.topic_id_partition)
        taken = log.get(metadata.segment_id)
        await asyncio.sleep(0)
        if taken is None:
            self.ledger.log(metadata.segment_id.topic_id_partition).forget(metadata.segment_id)
        self.ledger.take(metadata)


class AnswersTooEarly(MemoryRemoteLogMetadata):
    """An update returns before it is noted."""

    async def update(self, update):
        self.late = asyncio.create_task(super().update(update))
        self.late.add_done_callback(lambda task: task.exception())


class StaleReads(MemoryRemoteLogMetadata):
    """What was found once is found for ever."""

    def __init__(self, ledger=None):
        super().__init__(ledger)
        self.cache = {}

    async def highest_offset(self, partition, leader_epoch):
        found = await super().highest_offset(partition, leader_epoch)
        return found if found is None else self.cache.setdefault((partition, leader_epoch), found)


class ForgetsWhenStopped(MemoryRemoteLogMetadata):
    """A new instance knows nothing of what an earlier one noted."""

    async def stop(self):
        self.ledger.__init__()
        await super().stop()


class ForgetsDeletionsWhenStopped(MemoryRemoteLogMetadata):
    """A new instance does not know which partitions are being deleted."""

    async def stop(self):
        self.ledger._deletions.clear()
        await super().stop()


class NodesApart(MemoryRemoteLogMetadata):
    """What one node notes, another one learns when it starts and not later."""

    def __init__(self, ledger=None):
        super().__init__(MemoryLedger())
        self.shared = ledger or MemoryLedger()

    async def start(self, services):
        for event in self.shared.events:
            self.ledger.take(event)

    async def add(self, metadata):
        await super().add(metadata)
        self.shared.take(metadata)

    async def update(self, update):
        await super().update(update)
        self.shared.take(update)

    async def update_partition(self, update):
        await super().update_partition(update)
        self.shared.take(update)


class ForgetsWhatItNoLongerLeads(MemoryRemoteLogMetadata):
    """With the leadership of a partition goes what is known of it."""

    async def on_leadership_changes(self, leaders, followers):
        for partition in followers:
            self.ledger._logs.pop(partition, None)


class DeletesTheWholeTopic(MemoryRemoteLogMetadata):
    """When the deletion of a partition ends, all partitions of its topic are forgotten."""

    async def update_partition(self, update):
        await super().update_partition(update)
        if update.state.name == "DELETE_PARTITION_FINISHED":
            for partition in list(self.ledger._logs):
                if partition.topic_id == update.topic_id_partition.topic_id:
                    del self.ledger._logs[partition]


class NeverEndsADeletion(MemoryRemoteLogMetadata):
    """A partition whose deletion has ended is still being deleted."""

    async def deleting_partitions(self):
        return [event for event in self.ledger.events if isinstance(event, RemotePartitionDeleteMetadata)][-1:]


class DeletesSegmentsWithTheMark(MemoryRemoteLogMetadata):
    """The segments of a partition are forgotten as soon as it is marked for deletion, so nobody deletes them."""

    async def update_partition(self, update):
        await super().update_partition(update)
        self.ledger._logs.pop(update.topic_id_partition, None)


class LosesEventsUnderLoad(MemoryRemoteLogMetadata):
    """Of many events at once, those that find a queue full are dropped."""

    waiting = 0

    async def update(self, update):
        self.waiting += 1
        try:
            await asyncio.sleep(0)
            if self.waiting < 50:
                await super().update(update)
        finally:
            self.waiting -= 1


class Blocks(MemoryRemoteLogMetadata):
    """A lookup does I/O on the event loop's thread."""

    async def find(self, partition, leader_epoch, offset):
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        return await super().find(partition, leader_epoch, offset)


class BlocksWhenAdding(MemoryRemoteLogMetadata):
    """The beginning of a copy is written to a file on the event loop's thread."""

    async def add(self, metadata):
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        await super().add(metadata)


class ForeignErrors(MemoryRemoteLogMetadata):
    """What the client of the backend raises reaches the broker as it is."""

    async def list(self, partition, leader_epoch=None):
        try:
            return await super().list(partition, leader_epoch)
        except RemoteLogMetadataError as error:
            raise ConnectionResetError("connection reset by peer") from error


class NeverComesBack(MemoryRemoteLogMetadata):
    """After its first failure it refuses everything until it is started again."""

    failed = False

    async def update(self, update):
        if self.failed:
            raise RemoteLogMetadataError("failed before")
        try:
            await super().update(update)
        except IllegalTransitionError:
            raise
        except RemoteLogMetadataError:
            self.failed = True
            raise


class ForgetsAllAfterAFailure(MemoryRemoteLogMetadata):
    """After a call that failed it begins anew, and has lost what was noted before."""

    async def add(self, metadata):
        try:
            await super().add(metadata)
        except IllegalTransitionError:
            raise
        except RemoteLogMetadataError:
            self.ledger._logs.clear()
            raise


class TellsThePassword(MemoryRemoteLogMetadata):
    """When it cannot start it tells the address of its backend, with the password in it."""

    async def start(self, services):
        raise RemoteLogMetadataError(f"cannot connect to postgres://diskless:{PASSWORD}@127.0.0.1:1/diskless")


class TellsThePasswordInTheCause(MemoryRemoteLogMetadata):
    """The error that its own one was raised from has the password."""

    async def start(self, services):
        try:
            raise OSError(f"no route to diskless:{PASSWORD}@127.0.0.1")
        except OSError as error:
            raise RemoteLogMetadataError("cannot connect") from error


class LogsThePassword(MemoryRemoteLogMetadata):
    """It logs the settings that it cannot connect with."""

    async def start(self, services):
        logging.getLogger(__name__).warning("cannot connect with password=%s", PASSWORD)
        raise RemoteLogMetadataError("cannot connect")


class StartFailsWithAForeignError(MemoryRemoteLogMetadata):
    """When it cannot start it raises what its client raised."""

    async def start(self, services):
        raise ConnectionRefusedError("connection refused")


class StartsWithoutABackend(MemoryRemoteLogMetadata):
    """It starts although its backend cannot be reached."""


class LeavesAThread(MemoryRemoteLogMetadata):
    """A thread goes on when it is stopped."""

    async def start(self, services):
        threading.Thread(target=threading.Event().wait, args=(60,), daemon=True, name="left").start()


class LeavesATask(MemoryRemoteLogMetadata):
    """A task goes on when it is stopped."""

    async def start(self, services):
        self.task = asyncio.create_task(asyncio.Event().wait())


class StopsOnce(MemoryRemoteLogMetadata):
    """A second stop is an error."""

    started = False

    async def start(self, services):
        self.started = True

    async def stop(self):
        if not self.started:
            raise RemoteLogMetadataError("it is not running")
        self.started = False


class CancelledCallsKeepTheLock(MemoryRemoteLogMetadata):
    """A call that is cancelled at the wrong moment leaves a lock taken: all later ones wait."""

    def __init__(self, ledger=None):
        super().__init__(ledger)
        self.lock = asyncio.Lock()

    async def add(self, metadata):
        await self.lock.acquire()
        await asyncio.sleep(0)
        try:
            await super().add(metadata)
        finally:
            self.lock.release()


class CancelledCallsAreRefusedLater(MemoryRemoteLogMetadata):
    """A call that was cancelled after it was noted cannot be repeated."""

    def __init__(self, ledger=None):
        super().__init__(ledger)
        self.under_way = set()

    async def add(self, metadata):
        if metadata.segment_id in self.under_way:
            raise IllegalTransitionError("it is under way")
        self.under_way.add(metadata.segment_id)
        await super().add(metadata)
        self.under_way.discard(metadata.segment_id)


_STATES = "a segment comes into the states that kip 405 allows and into no other"
_DELETION = "the deletion of a partition goes one way"
_FAILS = "raises the interfaces error and can be repeated"
_CANCELLED = "a cancelled call is done wholly or not at all and holds nobody up"
_LEAVES = "leaves no thread no task and no connection"
_AGAIN = "a new instance knows all that was noted"


def _start_fault(name: str, made: type[MemoryRemoteLogMetadata], promise: str) -> Fault:
    says = (made.__doc__ or "").strip()
    return Fault(noun=NOUN, name=name, says=says, promise=promise, suite=suite(MemoryRemoteLogMetadata, made))


FAULTS = (
    fault("takes-any-copy", TakesAnyCopy, "a copy can only be added as begun"),
    fault("takes-any-update", TakesAnyUpdate, _STATES),
    fault("takes-any-deletion", TakesAnyDeletion, _DELETION),
    fault("replaces-the-copy-of-an-id", ReplacesTheCopyOfAnId, "an id stands for one copy"),
    fault("adds-once", AddsOnce, "to add the same again changes nothing"),
    fault("updates-once", UpdatesOnce, _STATES),
    fault("late-updates-win", LateUpdatesWin, "a segment that is being deleted is not copied any more"),
    fault("two-can-take-an-id-at-once", ChecksBeforeItWaits, "of two copies that claim one id at once one gets it"),
    fault("answers-too-early", AnswersTooEarly, "what a call has returned from every later read shows"),
    fault("stale-reads", StaleReads, "what a call has returned from every later read shows"),
    fault("forgets-when-stopped", ForgetsWhenStopped, _AGAIN),
    fault("forgets-deletions-when-stopped", ForgetsDeletionsWhenStopped, _AGAIN),
    fault("nodes-know-nothing-of-each-other", NodesApart, "another node sees it soon"),
    fault("forgets-what-it-no-longer-leads", ForgetsWhatItNoLongerLeads, "a change of leaders loses nothing"),
    fault("deletes-the-whole-topic", DeletesTheWholeTopic, "other partitions are not deleted along"),
    fault("never-ends-a-deletion", NeverEndsADeletion, _DELETION),
    fault("forgets-segments-when-marked", DeletesSegmentsWithTheMark, "can be deleted one after the other"),
    fault("loses-events-under-load", LosesEventsUnderLoad, "many segments are noted at once"),
    fault("lookups-block", Blocks, "the event loop is not blocked"),
    fault("writes-block", BlocksWhenAdding, "the event loop is not blocked"),
    fault("foreign-errors", ForeignErrors, _FAILS),
    fault("never-comes-back", NeverComesBack, _FAILS),
    fault("forgets-all-after-a-failure", ForgetsAllAfterAFailure, _FAILS),
    _start_fault("tells-the-password", TellsThePassword, "a message has no secret"),
    _start_fault("tells-the-password-in-the-cause", TellsThePasswordInTheCause, "a message has no secret"),
    _start_fault(
        "a-failed-start-is-a-foreign-error", StartFailsWithAForeignError, "a RemoteLogMetadataError is raised"
    ),
    _start_fault("starts-without-a-backend", StartsWithoutABackend, "a backend that cannot be reached is told"),
    fault("leaves-a-thread", LeavesAThread, _LEAVES),
    fault("leaves-a-task", LeavesATask, _LEAVES),
    fault("stop-works-once", StopsOnce, "stop may be called twice and before start"),
    fault("a-cancelled-call-keeps-a-lock", CancelledCallsKeepTheLock, _CANCELLED),
    fault("a-cancelled-call-cannot-be-repeated", CancelledCallsAreRefusedLater, _CANCELLED),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That another node never learns of one of very many events.",
        reason="A suite waits until another node has seen a few. Which event would get lost is not known before.",
    ),
    Unfound(
        noun=NOUN,
        says="That what was noted is lost in a power cut of the backend's machines.",
        reason="The backend is a service, whose disks a suite does not reach.",
    ),
)

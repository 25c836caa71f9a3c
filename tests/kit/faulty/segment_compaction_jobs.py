"""Engines that report what is not so, go on when they may not, or do not go on when they should."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import replace

from diskless_core.plugin.remote_storage import LogSegmentData, RemoteStorageError
from diskless_core.plugin.segment_compaction import SegmentCompactionError
from tests.kit.compaction_backends import FAILURES, NOUN, AtOnce, OneByOne, fault
from tests.kit.fault import Unfound

BLOCKED_S = 0.5


# --- what is reported ------------------------------------------------------------------------------------------------


class ReportsAnotherEnd(OneByOne):
    """A segment is finished with an end offset that is one too high, as if it were exclusive."""

    async def finish(self, job, metadata, custom):
        return await super().finish(job, replace(metadata, end_offset=metadata.end_offset + 1), custom)


class ReportsAnotherStart(OneByOne):
    """A segment is finished with the offset of its first batch, and not where it was planned to begin."""

    async def finish(self, job, metadata, custom):
        return await super().finish(job, replace(metadata, start_offset=metadata.start_offset + 1), custom)


class ReportsAnotherSize(OneByOne):
    """A segment is finished with a size that counts its indexes."""

    async def finish(self, job, metadata, custom):
        size_bytes = metadata.segment_size_bytes + 100
        return await super().finish(job, replace(metadata, segment_size_bytes=size_bytes), custom)


class ReportsAnotherId(OneByOne):
    """A segment is finished under an id that nobody has noted."""

    async def finish(self, job, metadata, custom):
        other = metadata.segment_id._replace(id=uuid.UUID(int=1))
        return await super().finish(job, replace(metadata, segment_id=other), custom)


class LosesCustomMetadata(OneByOne):
    """What the copy returned is not handed on."""

    async def finish(self, job, metadata, custom):
        return await super().finish(job, metadata, None)


class FinishesFailedCopies(OneByOne):
    """A segment is reported as finished though its copy has failed."""

    async def copy(self, job, metadata, log, indexes):
        with suppress(RemoteStorageError):
            return await super().copy(job, metadata, log, indexes)
        return b"custom"


class FinishesTooEarly(OneByOne):
    """A segment is reported as finished while it is being copied."""

    async def copy(self, job, metadata, log, indexes):
        self.copying = asyncio.create_task(super().copy(job, metadata, log, indexes))
        return b"custom"


class FinishesTwice(OneByOne):
    """A segment is reported as finished twice."""

    async def finish(self, job, metadata, custom):
        await super().finish(job, metadata, custom)
        return await super().finish(job, metadata, custom)


class NeverFinishesTheLast(OneByOne):
    """The last segment of a partition is not made."""

    async def partition(self, job, partition):
        producers, held = None, None
        async for plan in job.segments(partition):
            producers = producers if producers is not None else await job.producers_before(plan)
            if held is not None:
                producers = await self.segment(job, held, producers)
                if producers is None:
                    return
            held = plan


class OneSegmentOfTwo(OneByOne):
    """Two segments of the plan are put into one, which is larger than planned."""

    async def partition(self, job, partition):
        plans = [plan async for plan in job.segments(partition)]
        producers = await job.producers_before(plans[0])
        for first in range(0, len(plans), 2):
            some = plans[first : first + 2]
            ranges = [run for plan in some for run in plan.ranges]
            size_bytes = sum(plan.size_bytes for plan in some)
            one = replace(some[0], ranges=ranges, size_bytes=size_bytes, end_offset=some[-1].end_offset)
            producers = await self.segment(job, one, producers)
            if producers is None:
                return


class LastSegmentFirst(OneByOne):
    """The segments of a partition are finished in any order."""

    async def partition(self, job, partition):
        plans = [plan async for plan in job.segments(partition)]
        producers = await job.producers_before(plans[0])
        for plan in reversed(plans):
            producers = await self.segment(job, plan, producers)
            if producers is None:
                return


class TellsNoProgress(OneByOne):
    """Progress is not reported."""

    def progressed(self, job, plan):
        del job, plan


class CountsTwice(OneByOne):
    """What is copied again when a copy was begun anew is progress once more."""

    async def copy(self, job, metadata, log, indexes):
        async def counted():
            yield log
            job.progressed(len(log))

        return await job.remote_storage.copy(metadata, LogSegmentData(log=counted, indexes=lambda: indexes))

    def progressed(self, job, plan):
        del job, plan


class LogOnlyOnce(OneByOne):
    """The log can be read once: a copy that is begun anew gets an empty one."""

    async def copy(self, job, metadata, log, indexes):
        pieces = [log]

        async def rest():
            while pieces:
                yield pieces.pop()

        return await job.remote_storage.copy(metadata, LogSegmentData(log=rest, indexes=lambda: indexes))


# --- what goes wrong -------------------------------------------------------------------------------------------------


class HidesFailures(OneByOne):
    """A job is reported as done though partitions of it are not."""

    def report(self, failures):
        del failures


class SaysNotWhich(OneByOne):
    """The error does not say which partition was not done."""

    def report(self, failures):
        if failures:
            raise SegmentCompactionError(failures[0].partition(": ")[2])


class SaysNotWhy(OneByOne):
    """The error does not say why partitions were not done."""

    def report(self, failures):
        if failures:
            raise SegmentCompactionError(f"not done: {[failure.partition(': ')[0] for failure in failures]}")


class ForeignErrors(OneByOne):
    """What the stores raise reaches the broker as it is."""

    async def compact(self, job):
        failure = None
        for partition in job.partitions:
            try:
                await self.partition(job, partition)
            except FAILURES as error:
                told = f"{partition.name}: {error}"
                is_own = isinstance(error, SegmentCompactionError)
                failure = SegmentCompactionError(told) if is_own else RuntimeError(told)
        if failure is not None:
            raise failure


class StopsAtTheFirstFailure(OneByOne):
    """When one partition cannot be done, those after it are not tried."""

    async def compact(self, job):
        for partition in job.partitions:
            try:
                await self.partition(job, partition)
            except FAILURES as error:
                raise SegmentCompactionError(f"{partition.name}: {error}") from error


class NeverAbandons(OneByOne):
    """What a copy that failed has left stays."""

    async def give_up(self, job, metadata):
        del job, metadata


class AbandonsWhatItLost(OneByOne):
    """A copy that another job was quicker than is removed a second time."""

    async def finish(self, job, metadata, custom):
        wanted = await super().finish(job, metadata, custom)
        if not wanted:
            await job.abandon(metadata)
        return wanted


class AbandonsWithoutAnAnswer(OneByOne):
    """A copy is removed of which nobody knows whether the coordinator has taken it."""

    async def finish(self, job, metadata, custom):
        try:
            return await super().finish(job, metadata, custom)
        except SegmentCompactionError:
            await job.abandon(metadata)
            raise


class IgnoresConflicts(OneByOne):
    """When another job was quicker, it goes on with the rest of a plan that is void."""

    async def finish(self, job, metadata, custom):
        await super().finish(job, metadata, custom)
        return True


class RemovesObjects(OneByOne):
    """WAL objects are deleted when they have been read."""

    async def compact(self, job):
        self.read_keys = set()
        await super().compact(job)
        await job.objects.delete(sorted(self.read_keys))

    async def read_run(self, job, run):
        self.read_keys.add(run.object_key)
        return await super().read_run(job, run)


class MixesJobsUp(AtOnce):
    """Jobs that run at once share what one of them has to do."""

    async def compact(self, job):
        self.job = job
        await asyncio.sleep(0)
        await super().compact(self.job)


# --- the event loop and cancellation ---------------------------------------------------------------------------------


class AllAtOnce(AtOnce):
    """It works on all partitions at once, however many the job allows."""

    def at_once(self, job):
        return max(1, len(job.partitions))


class Blocks(OneByOne):
    """It waits on the event loop's thread."""

    async def compact(self, job):
        await asyncio.sleep(0)
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        await super().compact(job)


class GoesOnWhenCancelled(OneByOne):
    """A job that was cancelled goes on as a task of its own."""

    async def compact(self, job):
        self.running = asyncio.create_task(super().compact(job))
        self.running.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self.running)


class CannotBeCancelled(OneByOne):
    """A job that is cancelled goes on to its end."""

    async def compact(self, job):
        running = asyncio.create_task(super().compact(job))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            await running


class TakesCancellationForAnEnd(OneByOne):
    """A job that is cancelled ends as if it had been done."""

    async def compact(self, job):
        with suppress(asyncio.CancelledError):
            await super().compact(job)


class SpoiledByCancellation(OneByOne):
    """A job that was cancelled keeps the lock that the next one needs."""

    def __init__(self):
        self.lock = asyncio.Lock()

    async def compact(self, job):
        await self.lock.acquire()
        try:
            await super().compact(job)
        except Exception:
            self.lock.release()
            raise
        self.lock.release()


class LeavesAThread(OneByOne):
    """A thread goes on when a job has ended."""

    async def compact(self, job):
        threading.Thread(target=threading.Event().wait, args=(60,), daemon=True, name="left").start()
        await super().compact(job)


class LeavesATask(OneByOne):
    """A task goes on when a job has ended."""

    async def compact(self, job):
        self.task = asyncio.create_task(asyncio.Event().wait())
        await super().compact(job)


_METADATA = "a segment is finished with the metadata that `begin` gave"
_COMPLETE = "a segment is finished once its copy is complete"
_MADE = "every segment of the plan is finished"
_NOT_DONE = "a job is not reported as done of which some partition was not"
_REFUSED = "a storage that refuses a copy ends that partition"
_QUICKER = "a partition that another job was quicker with is left"
_UNKNOWN = "a copy whose outcome is not known is left for the next job"
_CANCELLED = "a cancelled job ends and the next one is not spoiled"
_ANEW = "a copy that is begun anew has the same log and indexes"
_LEAVES = "a job that has ended leaves no task and no thread"

FAULTS = (
    fault("reports-another-end", ReportsAnotherEnd, _METADATA),
    fault("reports-another-start", ReportsAnotherStart, _METADATA),
    fault("reports-another-size", ReportsAnotherSize, _METADATA),
    fault("reports-another-id", ReportsAnotherId, _METADATA),
    fault("loses-custom-metadata", LosesCustomMetadata, "what the copy returned is handed on"),
    fault("finishes-failed-copies", FinishesFailedCopies, _COMPLETE),
    fault("finishes-too-early", FinishesTooEarly, _COMPLETE),
    fault("finishes-twice", FinishesTwice, "a segment is finished once"),
    fault("never-makes-the-last-segment", NeverFinishesTheLast, _MADE),
    fault("one-segment-of-two", OneSegmentOfTwo, "only batches of the plan are in the log"),
    fault("the-last-segment-first", LastSegmentFirst, "the segments of a partition are finished in order"),
    fault("tells-no-progress", TellsNoProgress, "progress comes to the bytes that were copied"),
    fault("counts-progress-twice", CountsTwice, _ANEW),
    fault("a-log-that-is-read-once", LogOnlyOnce, _ANEW),
    fault("hides-failures", HidesFailures, _NOT_DONE),
    fault("says-not-which", SaysNotWhich, "the error says which partition was not done"),
    fault("says-not-why", SaysNotWhy, "the error says why"),
    fault("foreign-errors", ForeignErrors, "a SegmentCompactionError is raised"),
    fault("stops-at-the-first-failure", StopsAtTheFirstFailure, "the other partitions go on"),
    fault("never-abandons", NeverAbandons, _REFUSED),
    fault("abandons-what-it-lost", AbandonsWhatItLost, _QUICKER),
    fault("abandons-without-an-answer", AbandonsWithoutAnAnswer, _UNKNOWN),
    fault("ignores-conflicts", IgnoresConflicts, _QUICKER),
    fault("removes-objects", RemovesObjects, "objects are read and left alone"),
    fault("mixes-jobs-up", MixesJobsUp, "several jobs can run at once"),
    fault("all-partitions-at-once", AllAtOnce, "no more partitions are worked on at once than the job allows"),
    fault("blocks", Blocks, "the event loop is not blocked"),
    fault("goes-on-when-cancelled", GoesOnWhenCancelled, "a cancelled job does not go on"),
    fault("cannot-be-cancelled", CannotBeCancelled, "a cancelled job ends"),
    fault("a-cancelled-job-is-done", TakesCancellationForAnEnd, _CANCELLED),
    fault("a-cancelled-job-keeps-a-lock", SpoiledByCancellation, _CANCELLED),
    fault("leaves-a-thread", LeavesAThread, _LEAVES),
    fault("leaves-a-task", LeavesATask, _LEAVES),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That an engine computes for long on the event loop's thread.",
        reason="How long is too long depends on the machine; only sleep and I/O there are found.",
    ),
    Unfound(
        noun=NOUN,
        says="That an engine holds whole segments in memory.",
        reason="The interface bounds plans, and not the memory of engines, which may work in other processes.",
    ),
    Unfound(
        noun=NOUN,
        says="That work in other processes goes on for long when their job was cancelled.",
        reason="A suite sees what an engine does with its job, which is on the node that runs it.",
    ),
)

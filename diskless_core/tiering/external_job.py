"""A compaction whose engine runs in another process: its driver asks for every step.

An answer can be lost on its way, so each step can be asked for again, and is done once. A driver that is silent for too
long has lost the job: what it says later changes nothing, and what it left is for the next job.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import structlog

from diskless_core.clock import Clock
from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.plugin.segment_building.comparing import CopyMissingError
from diskless_core.plugin.segment_compaction import (
    CompactionJob,
    SegmentCompaction,
    SegmentCompactionError,
    SegmentPlan,
    WrittenCopy,
)
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.tiering.report import JobReport

T = TypeVar("T")

PORTION_RANGES = 2_000
"""A portion has no more segments when it has so many ranges."""

_log = structlog.get_logger(__name__)


class JobNotRunningError(Exception):
    """The job has ended, or has not begun; the message says which, and why."""


class UnknownStepError(Exception):
    """The job has no such partition, segment or copy, or they are asked for in another order than they can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """Some segments of a partition, in order.

    Attributes:
        is_last: whether there are no segments behind these.
        producers: as `CompactionJob.producers_before` the partition's first segment, in the portion that has that.
    """

    segments: Sequence[SegmentPlan]
    is_last: bool
    producers: ProducerState | None = None

    @property
    def ranges(self) -> int:
        """How many ranges its segments have."""
        return sum(len(plan.ranges) for plan in self.segments)


@dataclass(slots=True)
class _Lane:
    """A partition: how far its plan has been asked for. Plans are kept without their ranges, but for the latest
    portion, and that until the driver is known to have it.
    """

    plans: AsyncGenerator[SegmentPlan, None]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    number: int = -1
    latest: Portion | None = None
    failure: str | None = None
    planned: dict[int, SegmentPlan] = field(default_factory=dict)


@dataclass(slots=True)
class _Copy:
    """A copy that has begun. `outcome` is whether it was taken; of one that was abandoned, it was not."""

    metadata: RemoteLogSegmentMetadata
    token: str
    outcome: asyncio.Task[bool] | None = None


class ExternalJob(SegmentCompaction):
    """Stands in for the engine on the broker. Steps are for one job, the one that `compact` is given.

    Args:
        report: of the job.
        session_timeout_ms: a driver that is silent for so long has lost the job.
    """

    def __init__(self, report: JobReport, clock: Clock, *, session_timeout_ms: int) -> None:
        self.report = report
        self.session_timeout_ms = session_timeout_ms
        self._clock = clock
        self._job: CompactionJob | None = None
        self._heard_at = clock.monotonic()
        self._bytes_copied = 0
        self._ended = asyncio.Event()
        self._reason = "its driver has ended it"
        self._failure: str | None = None
        self._lanes: dict[int, _Lane] = {}
        self._begun: dict[str, asyncio.Task[RemoteLogSegmentMetadata]] = {}
        self._copies: dict[uuid.UUID, _Copy] = {}
        self._steps: set[asyncio.Task[Any]] = set()
        self._sees_copies = False

    # --- the engine ------------------------------------------------------------------------------------------------

    async def compact(self, job: CompactionJob) -> None:
        """Let the driver do the job, until it says that it has ended, or has lost it."""
        self._job = job
        try:
            while not self._ended.is_set():
                silence_s = 0.0 if self._steps else self._clock.monotonic() - self._heard_at
                rest_s = self.session_timeout_ms / 1000 - silence_s
                if rest_s <= 0:
                    self._end(f"its driver has not been heard of for {self.session_timeout_ms} ms")
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(rest_s):
                        await self._ended.wait()
            while self._steps:
                await asyncio.wait(self._steps)
        except asyncio.CancelledError:
            self._end("the broker stops")
            for step in self._steps:
                step.cancel()
            await asyncio.gather(*self._steps, return_exceptions=True)
            raise
        finally:
            for lane in self._lanes.values():
                await lane.plans.aclose()
        if self._failure is not None:
            raise SegmentCompactionError(self._failure)

    def _end(self, failure: str) -> None:
        if not self._ended.is_set():
            self._failure = self._reason = failure
            self._ended.set()

    # --- what the driver asks for ----------------------------------------------------------------------------------

    def running(self) -> CompactionJob:
        """What there is to do.

        Raises:
            JobNotRunningError: it has ended, or waits for its turn.
        """
        self._hear()
        if self._job is None:
            raise JobNotRunningError("the compaction waits for its turn")
        return self._job

    def heard(self, bytes_copied: int) -> None:
        """The driver lives, also while it waits for its turn, and has copied so many bytes in all.

        Raises:
            JobNotRunningError: the job has ended.
        """
        self._hear()
        if self._job is not None and bytes_copied > self._bytes_copied:
            self._job.progressed(bytes_copied - self._bytes_copied)
            self._bytes_copied = bytes_copied

    def end(self, bytes_copied: int, failure: str | None) -> None:
        """The driver's engine has ended. Of a job that has ended already it changes nothing."""
        if self._ended.is_set():
            return
        self.heard(bytes_copied)
        self._failure = failure
        self._ended.set()

    async def segments(self, index: int, number: int) -> Portion:
        """The next portion of the partition `job.partitions[index]`, counted from 0, or again the one before.

        One that the driver has begun to copy is not told again.

        Raises:
            JobNotRunningError, UnknownStepError: there is no such thing.
            SegmentCompactionError: as `CompactionJob.segments` and `producers_before`.
        """
        partition = self._partition(index)
        lane = self._lanes.get(index)
        if lane is None:
            lane = self._lanes[index] = _Lane(self.running().segments(partition))
        return await self._step(self._plan(lane, number))

    async def _plan(self, lane: _Lane, number: int) -> Portion:
        async with lane.lock:
            if number == lane.number + 1:
                lane.number, lane.latest = number, None
                if lane.failure is None:
                    lane.latest = await self._next_portion(lane)
            if lane.latest is not None and number == lane.number:
                return lane.latest
            if lane.failure is not None:
                raise SegmentCompactionError(lane.failure)
            raise UnknownStepError(f"portion {number} cannot be planned where {lane.number + 1} comes next")

    async def _next_portion(self, lane: _Lane) -> Portion | None:
        """What can be planned. A failure behind that is the next portion's."""
        segments: list[SegmentPlan] = []
        producers: ProducerState | None = None
        ranges, is_last = 0, False
        try:
            while ranges < PORTION_RANGES:
                plan = await anext(lane.plans, None)
                if plan is None:
                    is_last = True
                    break
                if not lane.planned:
                    producers = await self.running().producers_before(plan)
                segments.append(plan)
                ranges += len(plan.ranges)
                lane.planned[plan.start_offset] = replace(plan, ranges=())
        except SegmentCompactionError as error:
            lane.failure = str(error)
        except Exception as error:
            lane.failure = f"a defect: {type(error).__name__}: {error}"
            raise
        if lane.failure is not None and not segments:
            return None
        return Portion(segments=segments, is_last=is_last, producers=producers)

    async def begin(self, index: int, start_offset: int, token: str) -> RemoteLogSegmentMetadata:
        """Note that the copy of a planned segment begins. The same token gets the same copy. Raises as `segments`."""
        segment = self._planned(index, start_offset)
        if token not in self._begun:
            self._begun[token] = self._start(self._begin(segment, token))
        return await asyncio.shield(self._begun[token])

    async def _begin(self, segment: SegmentPlan, token: str) -> RemoteLogSegmentMetadata:
        metadata = await self.running().begin(segment)
        self._copies[metadata.segment_id.id] = _Copy(metadata, token)
        return metadata

    async def finish(
        self, segment_id: uuid.UUID, custom_metadata: bytes | None, written: WrittenCopy | None = None
    ) -> bool:
        """As `CompactionJob.finish`; again, it gives the same answer, and of an abandoned copy `False`.

        A copy that this node cannot find is not taken: it lies in a storage that only the driver sees.

        Raises:
            JobNotRunningError, UnknownStepError: there is no such copy.
            SegmentCompactionError: it is not known whether it was taken, or it cannot be read here. Or it is not what
                was written, and has been removed.
        """
        copy = self._copy(segment_id)
        if copy.outcome is None:
            copy.outcome = self._start(self._finish(copy.metadata, custom_metadata, written))
        return await asyncio.shield(copy.outcome)

    async def abandon(self, segment_id: uuid.UUID) -> None:
        """Remove a copy that failed, if that can be done now. One that was finished stays. Raises as `finish`."""
        copy = self._copy(segment_id)
        if copy.outcome is None:
            copy.outcome = self._start(self._abandon(copy.metadata))
        with suppress(SegmentCompactionError):
            await asyncio.shield(copy.outcome)

    async def _finish(
        self, metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None, written: WrittenCopy | None
    ) -> bool:
        try:
            is_taken = await self.running().finish(metadata, custom_metadata, written)
        except CopyMissingError as error:
            partition = metadata.segment_id.topic_id_partition
            failure = (
                f"the segment of {partition.topic} at offset {metadata.start_offset} is not in the remote storage of "
                "the broker: the driver needs the same remote_storage settings as the broker"
            )
            if not self._sees_copies:  # if the job's first one is not there, none will be
                self._end(failure)
            raise SegmentCompactionError(failure) from error
        self._sees_copies = True
        return is_taken

    async def _abandon(self, metadata: RemoteLogSegmentMetadata) -> bool:
        await self.running().abandon(metadata)
        return False

    # --- bookkeeping -----------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        if self._ended.is_set():
            raise JobNotRunningError(f"the compaction has ended: {self._reason}")
        self._heard_at = self._clock.monotonic()

    def _partition(self, index: int) -> TopicIdPartition:
        partitions: Sequence[TopicIdPartition] = self.running().partitions
        if not 0 <= index < len(partitions):
            raise UnknownStepError(f"the compaction has no partition {index}")
        return partitions[index]

    def _planned(self, index: int, start_offset: int) -> SegmentPlan:
        self._partition(index)
        lane = self._lanes.get(index)
        if lane is None or start_offset not in lane.planned:
            raise UnknownStepError(f"no segment of partition {index} was planned at offset {start_offset}")
        latest = lane.latest
        if latest is not None and latest.segments and latest.segments[0].start_offset <= start_offset:
            lane.latest = None  # its driver has it
        return lane.planned[start_offset]

    def _copy(self, segment_id: uuid.UUID) -> _Copy:
        self._hear()
        copy = self._copies.get(segment_id)
        if copy is None:
            raise UnknownStepError(f"the compaction has begun no copy {segment_id}")
        self._begun.pop(copy.token, None)  # its driver knows that it has begun
        return copy

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do a step to its end, also if nobody waits for its answer any more."""
        step = asyncio.create_task(work, name=f"step of compaction {self.report.id}")
        self._steps.add(step)
        step.add_done_callback(self._done)
        return step

    async def _step(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(self._start(work))

    def _done(self, step: asyncio.Task[Any]) -> None:
        self._steps.discard(step)
        self._heard_at = self._clock.monotonic()
        error = None if step.cancelled() else step.exception()
        if error is not None and not isinstance(error, SegmentCompactionError | UnknownStepError | JobNotRunningError):
            _log.error("a defect ended a step of a compaction", job=self.report.id, exc_info=error)

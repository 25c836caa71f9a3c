"""The way of produced batches: gathered, sealed, uploaded, committed. Decides when an object is rotated.

An object is sealed when it is full, at the commit interval, or as soon as it has lingered long enough while no upload
is under way and no uploaded object of its partitions waits for its turn to be committed. So objects grow with the time
that the slower of the two takes, instead of queueing before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from diskless_core.clock import Clock
from diskless_core.diskless.commands import MAX_COMMIT_BATCHES, BatchResult, PartitionKey
from diskless_core.metrics import Metrics
from diskless_core.pages import PagePool
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.produce.accumulator import Accumulator, SealedFile, Submission
from diskless_core.produce.awaited_partitions import AwaitedPartitions
from diskless_core.produce.backlog import Backlog
from diskless_core.produce.committer import Committer, CommitTicket
from diskless_core.produce.object_time import ObjectTime
from diskless_core.produce.recompression import Recompression
from diskless_core.produce.splitting import in_parts
from diskless_core.produce.uploader import Uploader
from diskless_core.protocol.errors import ErrorCode
from diskless_core.wal import format as wal_format

_MAX_IDLE_BYTES = 32 << 20

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings:
    """When to rotate: `buffer_max_bytes`, `commit_interval_ms`, `linger_ms`; see the settings `diskless.append.*`."""

    commit_interval_ms: int
    linger_ms: int
    buffer_max_bytes: int
    inflight_max_bytes: int
    object_prefix: str


class WalWriter:
    """One broker's writer. Everything runs on the event loop; `append` never waits."""

    def __init__(
        self,
        settings: WriterSettings,
        uploader: Uploader,
        committer: Committer,
        clock: Clock,
        metrics: Metrics,
        on_uploaded: Callable[[str, memoryview], None],
        is_awaited: Callable[[PartitionKey], bool],
    ) -> None:
        self._settings = settings
        self._uploader = uploader
        self._committer = committer
        self._clock = clock
        self._object_time = ObjectTime(clock, metrics)
        self._on_uploaded = on_uploaded
        self._metrics = metrics
        self._buffers = PagePool(_MAX_IDLE_BYTES)
        self._active = Accumulator()
        self._lingered = False
        self._waiting: set[CommitTicket] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.backlog = Backlog(settings.inflight_max_bytes, metrics)
        self._awaited = AwaitedPartitions(is_awaited, self._gather, self.backlog, clock)
        self._recompression = Recompression(self._admit, self.backlog, settings.inflight_max_bytes, metrics)

    def append(self, submission: Submission) -> None:
        """Take a request's batches. Batches of a partition keep the order in which they were appended."""
        if self._recompression.concerns(submission.batches):
            submission = self._recompression.keep(submission)
        self._admit(submission)

    def _admit(self, submission: Submission) -> None:
        if self._awaited.concern(submission.batches):
            submission = self._awaited.keep(submission)
        if not submission.batches:
            submission.release()
            submission.settle([])
            return
        self._gather(submission)

    def _gather(self, submission: Submission) -> None:
        for part in in_parts(submission, MAX_COMMIT_BATCHES):
            self._add(part)

    def _add(self, submission: Submission) -> None:
        if self._active.batch_count + len(submission.batches) > MAX_COMMIT_BATCHES:
            self.rotate()
        was_empty = self._active.is_empty
        before = self._active.size_bytes
        self._active.add(submission)
        self.backlog.grow(self._active.size_bytes - before)
        if self._is_full():
            self.rotate()
        elif was_empty:
            self._start_timers()

    def _is_full(self) -> bool:
        active = self._active
        return active.size_bytes >= self._settings.buffer_max_bytes or active.batch_count >= MAX_COMMIT_BATCHES

    def rotate(self) -> None:
        """Seal what is there and send it on its way."""
        self._stop_timers()
        if self._active.is_empty:
            return
        appended_bytes = self._active.size_bytes
        sealed = self._active.seal(self._buffers.take)
        self._active = Accumulator()
        task = asyncio.create_task(self._deliver(sealed, self._committer.take_ticket(sealed), appended_bytes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Rotate, and wait until everything is settled."""
        await self._recompression.drain()
        self.rotate()
        while self._tasks:
            await asyncio.wait(self._tasks)
            self.rotate()

    def abort(self) -> None:
        """Give up what is under way; its outcome stays unknown. What is not sealed yet never will be."""
        self._stop_timers()
        self._lingered = False
        self._recompression.abort()
        self._awaited.abort()
        for task in self._tasks:
            task.cancel()

    def _start_timers(self) -> None:
        loop = asyncio.get_running_loop()
        self._lingered = False
        self._timers.append(loop.call_later(self._settings.commit_interval_ms / 1000, self.rotate))
        if self._settings.linger_ms < self._settings.commit_interval_ms:
            self._timers.append(loop.call_later(self._settings.linger_ms / 1000, self._linger_over))

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _linger_over(self) -> None:
        self._lingered = True
        self._rotate_if_idle()

    def _rotate_if_idle(self) -> None:
        if self._lingered and not self._uploader.in_flight and not self._would_wait():
            self.rotate()

    def _would_wait(self) -> bool:
        """Whether what is gathered would wait for its ticket behind an object that waits for its own."""
        if not self._waiting:
            return False
        partitions = self._active.partitions
        return any(ticket.shares(partitions) for ticket in self._waiting)

    async def _deliver(self, sealed: SealedFile, ticket: CommitTicket, appended_bytes: int) -> None:
        created_ms = self._object_time.now_ms()
        key = wal_format.object_key(self._settings.object_prefix, created_ms, self._clock.new_uuid())
        try:
            outcome = await self._outcome(key, sealed, ticket)
            if not isinstance(outcome, Exception):
                self._object_time.learn(key, created_ms, outcome)
            self.backlog.shrink(appended_bytes)
            self._count(sealed, outcome)
            _settle(sealed, outcome)
            # What failed early must not let a later object pass those that are still under way.
            await ticket.come()
        finally:
            ticket.end()

    def _count(self, sealed: SealedFile, outcome: Sequence[BatchResult] | Exception) -> None:
        if isinstance(outcome, Exception):
            self._metrics.wal_upload_failures.inc()
            return
        accepted = []
        for batch, result in zip(sealed.batches, outcome, strict=True):
            if result.error is ErrorCode.NONE:
                accepted.append(batch)
            else:
                self._metrics.produce_rejections.labels(error=result.error.name).inc()
        self._metrics.produce_batches.inc(len(accepted))
        self._metrics.produce_records.inc(sum(batch.record_count for batch in accepted))
        self._metrics.produce_bytes.inc(sum(batch.size for batch in accepted))

    async def _outcome(self, key: str, sealed: SealedFile, ticket: CommitTicket) -> Sequence[BatchResult] | Exception:
        try:
            return await self._upload_and_commit(key, sealed, ticket)
        except WalObjectStoreError as error:
            _log.error("an object could not be stored; its producers are told", object=key, error=str(error))
            return error
        except Exception as error:
            _log.exception("a defect kept an object from being committed; its producers are told", object=key)
            return error

    async def _upload_and_commit(self, key: str, sealed: SealedFile, ticket: CommitTicket) -> Sequence[BatchResult]:
        try:
            await self._uploader.upload(key, sealed.data)
            self._on_uploaded(key, sealed.data)
            self._waiting.add(ticket)
            try:
                await ticket.come()
            finally:
                self._waiting.discard(ticket)
        finally:
            self._rotate_if_idle()
        return await self._committer.commit(key, sealed)


def _settle(sealed: SealedFile, outcome: Sequence[BatchResult] | Exception) -> None:
    if isinstance(outcome, Exception):
        for submission in sealed.submissions:
            submission.settle(outcome)
        return
    answers: dict[int, list[BatchResult]] = {}
    for place, result in zip(sealed.places, outcome, strict=True):
        slots = answers.get(id(place.submission))
        if slots is None:
            slots = answers[id(place.submission)] = [result] * len(place.submission.batches)
        slots[place.position] = result
    for submission in sealed.submissions:
        submission.settle(answers[id(submission)])

"""The way of produced batches: gathered, sealed, uploaded, and committed by each coordinator.

`sealing` says when an object is sealed. This module tells it what happens: a batch arrives, a timer ends, an upload
ends, an object's turn comes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from diskless_core.clock import Clock
from diskless_core.config.types import RecordValidation
from diskless_core.diskless.commands import MAX_COMMIT_BATCHES, BatchResult, CommitBatch, CommitFile, PartitionKey
from diskless_core.metrics import Metrics
from diskless_core.pages import PagePool
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.produce.accumulator import Accumulator, Place, SealedFile, Submission
from diskless_core.produce.awaited_partitions import AwaitedPartitions
from diskless_core.produce.backlog import Backlog
from diskless_core.produce.committer import CommitPart, Committer
from diskless_core.produce.object_time import ObjectTime
from diskless_core.produce.recompression import Recompression
from diskless_core.produce.record_checks import RecordChecks
from diskless_core.produce.sealing import Moment, is_due
from diskless_core.produce.sequence_gaps import SequenceGaps
from diskless_core.produce.splitting import by_shard, in_parts
from diskless_core.produce.uploader import Uploader
from diskless_core.protocol.errors import ErrorCode
from diskless_core.wal import format as wal_format

_MAX_IDLE_BYTES = 32 << 20

LEAST_PAUSE_S = 1.0
"""How long all requests of a partition have been over, at least, when batches of an idempotent producer are dropped: it
has sent the oldest one again by then."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings:
    """When to rotate: `buffer_max_bytes`, `commit_interval_ms`, `linger_ms`; see the settings `diskless.append.*`."""

    commit_interval_ms: int
    linger_ms: int
    buffer_max_bytes: int
    inflight_max_bytes: int
    object_prefix: str
    record_validation: RecordValidation = RecordValidation.FIRST


class WalWriter:
    """One broker's writer. Everything runs on the event loop; `append` never waits.

    Attributes:
        record_checks: those that batches pass before they are appended.

    Args:
        gaps: None where no other broker writes to the same partitions.
    """

    def __init__(
        self,
        settings: WriterSettings,
        uploader: Uploader,
        committer: Committer,
        clock: Clock,
        metrics: Metrics,
        on_uploaded: Callable[[str, memoryview], None],
        new_object_id: Callable[[], uuid.UUID],
        is_awaited: Callable[[PartitionKey], bool],
        gaps: SequenceGaps | None,
    ) -> None:
        self._settings = settings
        self._uploader = uploader
        self._committer = committer
        self._clock = clock
        self._object_time = ObjectTime(clock, metrics)
        self._on_uploaded = on_uploaded
        self._new_object_id = new_object_id
        self._gaps = gaps
        self._metrics = metrics
        self._buffers = PagePool(_MAX_IDLE_BYTES)
        self._active = Accumulator()
        self._lingered = self._interval_is_over = False
        self._gathering_since_s = 0.0
        self._under_way: Counter[int | None] = Counter()
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: dict[asyncio.Task[None], None] = {}  # given up in their order
        self.backlog = Backlog(settings.inflight_max_bytes, metrics, self._stalled_bytes)
        committer.on_stalled = self.backlog.look_again
        committer.on_turn = self._look
        self._stalled = AwaitedPartitions(
            committer.is_stalled,
            self._gather,
            self.backlog,
            clock,
            what="a partition's coordinator did not answer in time",
            limit_bytes=settings.inflight_max_bytes / 2,
            refuse=self._refuse,
        )
        self._awaited = AwaitedPartitions(
            is_awaited, self._go_on, self.backlog, clock, what="a partition was not created in time"
        )
        self.record_checks = RecordChecks(settings.record_validation)
        self._recompression = Recompression(self._admit, self.backlog, settings.inflight_max_bytes, metrics)

    def append(self, submission: Submission) -> None:
        """Take a request's batches. Batches of a partition keep the order in which they were appended."""
        if self._recompression.concerns(submission.batches):
            submission = self._recompression.keep(submission)
        self._admit(submission)

    def _admit(self, submission: Submission) -> None:
        if self._awaited.concern(submission.batches):
            submission = self._awaited.keep(submission)
        self._go_on(submission)

    def _go_on(self, submission: Submission) -> None:
        if self._stalled.concern(submission.batches):
            submission = self._stalled.keep(submission)
        if not submission.batches:
            submission.release()
            submission.settle([])
            return
        self._gather(submission)

    def _gather(self, submission: Submission) -> None:
        for shard, of_shard in by_shard(submission, self._committer.owner_of):
            for part in in_parts(of_shard, MAX_COMMIT_BATCHES):
                self._add(part, shard)

    def _add(self, submission: Submission, shard: int | None) -> None:
        if self._active.batch_count + len(submission.batches) > MAX_COMMIT_BATCHES:
            self.rotate()
        was_empty = self._active.is_empty
        before = self._active.size_bytes
        self._active.add(submission, shard)
        added_bytes = self._active.size_bytes - before
        self._under_way[shard] += added_bytes
        self.backlog.grow(added_bytes)
        if was_empty:
            self._start_timers()
        if self._is_full():
            self.rotate()

    def _is_full(self) -> bool:
        active = self._active
        return active.size_bytes >= self._settings.buffer_max_bytes or active.batch_count >= MAX_COMMIT_BATCHES

    def _look(self) -> None:
        """Seal the object if it is due: to be called after each change of what `sealing` looks at."""
        if self._active.is_empty:
            return
        moment = Moment(
            is_full=self._is_full(),
            has_lingered=self._lingered,
            interval_is_over=self._interval_is_over,
            uploads=self._uploader.in_flight,
            slots=self._uploader.parallelism,
            would_wait=self._committer.has_waiting and self._committer.would_wait(self._active.partitions),
        )
        if is_due(moment):
            self.rotate()

    def rotate(self) -> None:
        """Seal what is there and send it on its way."""
        self._drop_expired()
        self._stop_timers()
        if self._active.is_empty:
            return
        self._metrics.produce_wait_seconds.labels("gathering").observe(
            self._clock.monotonic() - self._gathering_since_s
        )
        sealed = self._active.seal(self._buffers.take)
        self._active = Accumulator()
        task = asyncio.create_task(self._deliver(sealed, self._committer.take_tickets(sealed)))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def drain(self) -> None:
        """Rotate, and wait until everything is settled."""
        await self._recompression.drain()
        self.rotate()
        while self._tasks or self._stalled.size_bytes:
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._stalled.drain()
            self.rotate()

    def abort(self) -> None:
        """Give up what is under way; its outcome stays unknown. What is not sealed yet never will be."""
        self._stop_timers()
        self._recompression.abort()
        self._awaited.abort()
        self._stalled.abort()
        self._committer.abort()
        for task in self._tasks:
            task.cancel()

    def _start_timers(self) -> None:
        loop = asyncio.get_running_loop()
        self._gathering_since_s = self._clock.monotonic()
        self._timers.append(loop.call_later(self._settings.commit_interval_ms / 1000, self._end_interval))
        if self._settings.linger_ms < self._settings.commit_interval_ms:
            self._timers.append(loop.call_later(self._settings.linger_ms / 1000, self._end_linger))

    def _stop_timers(self) -> None:
        self._lingered = self._interval_is_over = False
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _end_linger(self) -> None:
        self._lingered = True
        self._look()

    def _end_interval(self) -> None:
        self._interval_is_over = True
        self._look()
        if not self._active.is_empty:  # no upload slot is free
            self._drop_expired()
        if not self._active.is_empty:
            interval_s = self._settings.commit_interval_ms / 1000
            self._timers.append(asyncio.get_running_loop().call_later(interval_s, self._end_interval))

    def _waits_elsewhere(self, key: PartitionKey) -> bool:
        """Whether batches of a partition are to come behind those that are gathered."""
        return any(queue.has(key) for queue in (self._recompression, self._awaited, self._stalled))

    def _drop_expired(self) -> None:
        """Forget batches that no client waits for; see `Accumulator.drop_expired`."""
        pause_s = max(LEAST_PAUSE_S, self._committer.longest_append_s)
        freed = self._active.drop_expired(self._clock.monotonic(), pause_s, self._waits_elsewhere)
        if self._active.is_empty:
            self._stop_timers()  # the next object begins a new interval
        if freed:
            self._under_way.subtract(freed)
            # Not now: this begins requests that waited, and their batches must not pass those that a caller is adding.
            asyncio.get_running_loop().call_soon(self.backlog.shrink, freed.total())
            _log.warning(
                "produced batches were dropped before they were stored: their clients no longer wait for them",
                bytes=freed.total(),
            )

    def _stalled_bytes(self) -> int:
        """Bytes under way to coordinators that do not answer: others need not wait until these are settled."""
        return sum(self._under_way[shard] for shard in self._committer.stalled)

    def _refuse(self, submission: Submission) -> None:
        """Nothing of it was written, and a client tries again."""
        self._metrics.produce_rejections.labels(error=ErrorCode.NOT_ENOUGH_REPLICAS.name).inc(len(submission.batches))
        submission.release()
        submission.settle([BatchResult(ErrorCode.NOT_ENOUGH_REPLICAS)] * len(submission.batches))

    async def _deliver(self, sealed: SealedFile, parts: Sequence[CommitPart]) -> None:
        created_ms = self._object_time.now_ms()
        key = wal_format.object_key(self._settings.object_prefix, created_ms, self._new_object_id())
        try:
            stored = await self._stored(key, sealed, parts)
            committing = [
                _failed(stored) if isinstance(stored, Exception) else self._committer.commit(stored, part)
                for part in parts
            ]
            self._look()  # an upload slot is free
            ways = [
                self._deliver_part(key, created_ms, sealed.part(part.indexes), part, outcome)
                for part, outcome in zip(parts, committing, strict=True)
            ]
            del sealed, stored  # a part may wait for long, and must not keep the memory of all
            if len(ways) == 1:
                await ways[0]
            else:
                await asyncio.gather(*ways)
        finally:
            for part in parts:
                part.ticket.end()

    async def _deliver_part(
        self,
        key: str,
        created_ms: int,
        sealed: SealedFile,
        part: CommitPart,
        committing: asyncio.Future[list[BatchResult]],
    ) -> None:
        outcome: Sequence[BatchResult] | Exception
        try:
            try:
                outcome = await committing
            except Exception as error:
                outcome = error
            else:
                self._object_time.learn(key, created_ms, outcome)
                if self._gaps is not None:
                    outcome = self._gaps.judged(sealed.batches, outcome)
            self._count(sealed.batches, outcome)
            _settle(sealed.places, outcome)
            size_bytes = sum(batch.size for batch in sealed.batches)
            self._under_way[part.shard] -= size_bytes
            self.backlog.shrink(size_bytes)  # last: this may begin requests that waited
            # What failed early must not let a later object pass those that are still under way.
            await part.ticket.come()
        finally:
            part.ticket.end()

    def _count(self, batches: Sequence[CommitBatch], outcome: Sequence[BatchResult] | Exception) -> None:
        if isinstance(outcome, Exception):
            return
        accepted = []
        for batch, result in zip(batches, outcome, strict=True):
            if result.error is ErrorCode.NONE:
                accepted.append(batch)
            else:
                self._metrics.produce_rejections.labels(error=result.error.name).inc()
        self._metrics.produce_batches.inc(len(accepted))
        self._metrics.produce_records.inc(sum(batch.record_count for batch in accepted))
        self._metrics.produce_bytes.inc(sum(batch.size for batch in accepted))

    async def _stored(self, key: str, sealed: SealedFile, parts: Sequence[CommitPart]) -> CommitFile | Exception:
        """What to commit once the object is uploaded, or why it could not be."""
        try:
            data = await self._uploader.upload(key, sealed.data)
            self._on_uploaded(key, data)
            whole = self._committer.whole(key, sealed, parts)
        except WalObjectStoreError as error:
            _log.error("an object could not be stored; its producers are told", object=key, error=str(error))
            failure: Exception = error
        except Exception as error:
            _log.exception("a defect kept an object from being stored; its producers are told", object=key)
            failure = error
        else:
            return whole
        self._metrics.wal_upload_failures.inc()
        return failure


def _failed(error: Exception) -> asyncio.Future[list[BatchResult]]:
    outcome: asyncio.Future[list[BatchResult]] = asyncio.get_running_loop().create_future()
    outcome.set_exception(error)
    return outcome


def _settle(places: Sequence[Place], outcome: Sequence[BatchResult] | Exception) -> None:
    """Tell the submissions that these batches are all of, but for batches that were dropped as timed out."""
    answers: dict[int, list[BatchResult]] = {}
    submissions = {id(place.submission): place.submission for place in places}
    if isinstance(outcome, Exception):
        for submission in submissions.values():
            submission.settle(outcome)
        return
    for place, result in zip(places, outcome, strict=True):
        slots = answers.get(id(place.submission))
        if slots is None:
            timed_out = BatchResult(ErrorCode.REQUEST_TIMED_OUT)
            slots = answers[id(place.submission)] = [timed_out] * len(place.submission.batches)
        slots[place.position] = result
    for number, submission in submissions.items():
        submission.settle(answers[number])

"""Batches that need work in a thread: to be compressed as `compression.type` asks, or to have their records checked.

Such a batch waits here, and so does every later one of its partition, until those before it have gone on: the order of
a partition stays that of arrival. Other partitions pass. Nothing but the codec of a batch changes, and a latest
timestamp that its records do not have, as in Apache Kafka; a batch that has the codec already is not touched.

Memory is bounded: what waits counts among the bytes that are accepted and not settled. A batch becomes no larger than
`MAX_DECOMPRESSED_BYTES` on its way, nor than `max.message.bytes` in the end, and there are few threads. Where batches
grow, no more of them are compressed than the store takes: growth that is not settled yet is limited like the rest, and
what is beyond that limit is what each thread does in one go.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import structlog

from diskless_core.diskless.commands import BatchResult, PartitionKey
from diskless_core.metrics import Metrics
from diskless_core.produce.accumulator import Submission
from diskless_core.produce.backlog import Backlog
from diskless_core.produce.splitting import Split
from diskless_core.produce.validation import InvalidBatchError, ValidBatch, finished
from diskless_core.protocol.errors import ErrorCode

MAX_THREADS = 4
ROUND_BATCHES = 16
ROUND_BYTES = 256 << 10
"""How much of one partition is compressed in one go, at least one batch; what is done goes on when all of it is."""

ROUND_GROWN_BYTES = 4 << 20
"""When so much has come out, that was it for this time."""

_log = structlog.get_logger(__name__)


class _Waiting(NamedTuple):
    """One batch; `part` is its request's share in it."""

    part: Submission
    key: PartitionKey
    batch: ValidBatch


class Recompression:
    """One writer's batches that are compressed again, or checked, before they go on.

    Args:
        go_on: takes a request's batches, in order, when none of them has to wait any more.
        backlog: what waits counts among the bytes that are accepted and not settled.
        max_growth_bytes: by how much batches may be larger than they came, over all that are not settled.
    """

    def __init__(
        self, go_on: Callable[[Submission], None], backlog: Backlog, max_growth_bytes: int, metrics: Metrics
    ) -> None:
        self._go_on = go_on
        self._backlog = backlog
        self._max_growth_bytes = max_growth_bytes
        self._metrics = metrics
        self._growth_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._queues: dict[PartitionKey, deque[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._turns = asyncio.Semaphore(MAX_THREADS)

    def concerns(self, batches: Sequence[tuple[PartitionKey, ValidBatch]]) -> bool:
        """Whether any of these needs work in a thread, or has to wait behind one that does."""
        queues = self._queues
        for key, batch in batches:  # noqa: SIM110  # every request comes by here, and any() takes three times as long
            if batch.unfinished is not None or key in queues:
                return True
        return False

    def has(self, key: PartitionKey) -> bool:
        """Whether batches of a partition wait here."""
        return key in self._queues

    def keep(self, submission: Submission) -> Submission:
        """Keep what of it has to wait. The rest is returned; it may be empty and has to go on all the same."""
        ready, waiting = [], []
        for index, (key, batch) in enumerate(submission.batches):
            if key in self._queues or batch.unfinished is not None:
                waiting.append(index)
                self._queues.setdefault(key, deque())
            else:
                ready.append(index)
        split = Split(submission, 1 + len(waiting))
        for index in waiting:
            part = split.kept([index])
            [(key, batch)] = part.batches
            self._backlog.grow(len(batch.data))
            queue = self._queues[key]
            queue.append(_Waiting(part, key, batch))
            if len(queue) == 1:
                self._start(key, queue)
        return split.part(ready)

    async def drain(self) -> None:
        """Wait until nothing waits here."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def abort(self) -> None:
        """Give up all of it; there will be no answer."""
        for task in self._tasks:
            task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def _start(self, key: PartitionKey, queue: deque[_Waiting]) -> None:
        task = asyncio.create_task(self._work(key, queue), name="batches that are compressed again")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, key: PartitionKey, queue: deque[_Waiting]) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1), thread_name_prefix="recompress")
        while queue:
            # Each asks for room when it is its turn: if all had asked before, all would grow beyond the limit at once.
            async with self._turns:
                await self._has_room.wait()
                batches = _round(queue)
                outcomes = await asyncio.get_running_loop().run_in_executor(self._threads, _finish_all, batches)
                for outcome in outcomes:
                    self._hand_on(queue[0], outcome)
                    queue.popleft()
        # From here to the end nothing else runs, so that no batch is put into a queue that nobody works on.
        del self._queues[key]

    def _hand_on(self, waiting: _Waiting, outcome: ValidBatch | ErrorCode | Exception) -> None:
        part, key, batch = waiting
        size_bytes = len(batch.data)  # before its memory is given back
        if isinstance(outcome, ValidBatch) and outcome.data is batch.data:
            self._go_on(replace(part, batches=[(key, outcome)]))
        else:
            # The bytes that came are not read any more.
            part.release()
            if isinstance(outcome, ValidBatch):
                if batch.unfinished is not None and batch.unfinished.codec is not None:
                    self._metrics.produce_recompressions.inc()
                self._go_on(self._grown(part, key, outcome, max(0, len(outcome.data) - size_bytes)))
            elif isinstance(outcome, ErrorCode):
                self._metrics.produce_rejections.labels(error=outcome.name).inc()
                part.settle([BatchResult(outcome)])
            else:
                _log.error("a defect kept a batch from being compressed; its producer is told", exc_info=outcome)
                part.settle(outcome)
        # Only now: this may let more requests in, whose batches come after this one.
        self._backlog.shrink(size_bytes)

    def _grown(self, part: Submission, key: PartitionKey, batch: ValidBatch, growth_bytes: int) -> Submission:
        def settle(outcome: Sequence[BatchResult] | BaseException) -> None:
            self._grow(-growth_bytes)
            part.settle(outcome)

        self._grow(growth_bytes)
        return replace(part, batches=[(key, batch)], release=_nothing, settle=settle)

    def _grow(self, growth_bytes: int) -> None:
        self._growth_bytes += growth_bytes
        if self._growth_bytes < self._max_growth_bytes:
            self._has_room.set()
        else:
            self._has_room.clear()


def _round(queue: deque[_Waiting]) -> list[ValidBatch]:
    chosen: list[ValidBatch] = []
    size_bytes = 0
    for waiting in queue:
        size_bytes += len(waiting.batch.data)
        if chosen and (size_bytes > ROUND_BYTES or len(chosen) == ROUND_BATCHES):
            break
        chosen.append(waiting.batch)
    return chosen


def _finish_all(batches: Sequence[ValidBatch]) -> list[ValidBatch | ErrorCode | Exception]:
    """What becomes of the first of these batches, of one at least."""
    outcomes: list[ValidBatch | ErrorCode | Exception] = []
    size_bytes = 0
    for batch in batches:
        outcome = _finish(batch)
        outcomes.append(outcome)
        size_bytes += len(outcome.data) if isinstance(outcome, ValidBatch) else 0
        if size_bytes >= ROUND_GROWN_BYTES:
            break
    return outcomes


def _finish(batch: ValidBatch) -> ValidBatch | ErrorCode | Exception:
    try:
        return finished(batch)
    except InvalidBatchError as error:
        return error.code
    except Exception as error:  # what it is, is logged and told where the event loop goes on
        return error


def _nothing() -> None:
    """The memory of a batch that was compressed again is its own."""

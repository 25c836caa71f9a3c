"""Batches that cannot be committed yet, and hold up no other partition: theirs is being created, or has no coordinator.

A topic is created in the cluster shard first. A batch that is committed before its coordinator has the partition would
be refused for good, and the producer's next one accepted: an idempotent producer could never send the first one again.
So such batches wait here, in their order of arrival, until this node's replica of the coordinator has the partition, or
the topic is gone. Their producers hear nothing meanwhile, or a timeout, which they take for an open outcome: what they
send again is recognized.

While a coordinator does not answer, batches of its partitions wait in the same way, so that no object has any of them.
Beyond a part of the broker's memory more of them are refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

import structlog

from diskless_core.clock import Clock
from diskless_core.diskless.commands import BatchResult, PartitionKey
from diskless_core.produce.accumulator import Submission
from diskless_core.produce.backlog import Backlog
from diskless_core.produce.splitting import Split
from diskless_core.produce.validation import ValidBatch
from diskless_core.protocol.errors import ErrorCode

LOOK_S = 0.01
"""How often it is looked whether a partition is there. It takes a commit of its coordinator, and is rare."""

LOOK_AT_EACH_S = 20e-6
"""By so much less often for each partition that waits, so that looking takes no more than a small part of a core."""

UNWANTED_S = 10.0
"""How long nobody has waited for any batch of a partition when they are given up. A producer whose requests have all
timed out has sent the oldest of its batches again by then, or never will; so none passes an earlier one."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Queue:
    """The batches of one partition. `wanted_until` is when the last of their requests times out, monotonic.

    It is infinite with a batch of acks=0 among them: its client does not send it again.
    """

    submissions: deque[Submission] = field(default_factory=deque)
    size_bytes: int = 0
    wanted_until: float = 0.0


class AwaitedPartitions:
    """One writer's batches that wait for their partitions.

    Args:
        is_awaited: whether batches of a partition have to wait.
        what: is said in the log of what did not come in time.
        append: takes batches that need not wait any more.
        backlog: what waits counts among the bytes that are accepted and not settled.
        limit_bytes: with so much waiting no more is taken: it is given to `refuse`.

    Attributes:
        size_bytes: of what waits.
    """

    def __init__(
        self,
        is_awaited: Callable[[PartitionKey], bool],
        append: Callable[[Submission], None],
        backlog: Backlog,
        clock: Clock,
        *,
        what: str,
        limit_bytes: float = inf,
        refuse: Callable[[Submission], None] | None = None,
    ) -> None:
        self._what = what
        self._limit_bytes = limit_bytes
        self._refuse = refuse or _time_out
        self.size_bytes = 0
        self._is_awaited = is_awaited
        self._append = append
        self._backlog = backlog
        self._clock = clock
        self._queues: dict[PartitionKey, _Queue] = {}
        self._watcher: asyncio.Task[None] | None = None

    def concern(self, batches: Sequence[tuple[PartitionKey, ValidBatch]]) -> bool:
        """Whether any of these has to wait, for its partition or behind another one."""
        return any(key in self._queues or self._is_awaited(key) for key, _ in batches)

    def has(self, key: PartitionKey) -> bool:
        """Whether batches of a partition wait here."""
        return key in self._queues

    def keep(self, submission: Submission) -> Submission:
        """Keep what of it has to wait; the rest is returned, which may be empty and has to be appended all the same."""
        ready: list[int] = []
        waiting: dict[PartitionKey, list[int]] = {}
        for index, (key, _) in enumerate(submission.batches):
            if key in self._queues or self._is_awaited(key):
                waiting.setdefault(key, []).append(index)
            else:
                ready.append(index)
        split = Split(submission, 1 + len(waiting))
        for key, indexes in waiting.items():
            if self.size_bytes < self._limit_bytes:
                self._add(key, split.kept(indexes))
            else:
                self._refuse(split.part(indexes))
        return split.part(ready)

    async def drain(self) -> None:
        """Wait until nothing waits here."""
        if self._watcher is not None:
            await asyncio.wait([self._watcher])

    def abort(self) -> None:
        """Give up all of it; there will be no answer."""
        if self._watcher is not None:
            self._watcher.cancel()

    def _add(self, key: PartitionKey, part: Submission) -> None:
        queue = self._queues.setdefault(key, _Queue())
        size_bytes = sum(len(batch.data) for _, batch in part.batches)
        queue.submissions.append(part)
        queue.size_bytes += size_bytes
        self.size_bytes += size_bytes
        queue.wanted_until = max(queue.wanted_until, part.deadline_s)
        self._backlog.grow(size_bytes)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch(), name=f"batches that wait: {self._what}")

    async def _watch(self) -> None:
        while self._queues:
            await asyncio.sleep(max(LOOK_S, LOOK_AT_EACH_S * len(self._queues)))
            for key, queue in list(self._queues.items()):
                if not self._is_awaited(key):
                    self._end(key, queue, self._append)
                elif self._clock.monotonic() > queue.wanted_until + UNWANTED_S:
                    _log.warning(
                        f"{self._what}; its producers have been told",
                        topic_id=key.topic_id.hex(),
                        partition=key.partition,
                    )
                    self._end(key, queue, _time_out)

    def _end(self, key: PartitionKey, queue: _Queue, settle: Callable[[Submission], None]) -> None:
        del self._queues[key]
        for submission in queue.submissions:
            settle(submission)
        self.size_bytes -= queue.size_bytes
        # Only now: this may let more requests in, whose batches come after these.
        self._backlog.shrink(queue.size_bytes)


def _time_out(submission: Submission) -> None:
    submission.release()
    submission.settle([BatchResult(ErrorCode.REQUEST_TIMED_OUT)] * len(submission.batches))

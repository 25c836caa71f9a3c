"""Commits uploaded objects with their shards, so that no partition sees its batches out of order.

Each shard gets its part of an object, and each part has a turn: it waits for every earlier part that shares a partition
with it until the outcome of that one is definite. Parts that share no partition pass each other, so one slow upload
holds up only what order demands, and a shard without a leader only its own partitions.

Uploaded parts of a shard whose turn comes together go as one list, in one request that becomes one entry of the
coordinator's log. So a shard that was slow for a while catches up in one append, however many parts wait. The list is
atomic and is sent again as it is until it is answered: a later part of it never commits without the earlier ones.
(KIP-1164, DisklessCommitFile; "WAL file management", steps 1 and 2.)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError, EntryTooLargeError
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.commands import MAX_COMMIT_BATCHES, BatchResult, CommitBatch, CommitFile, PartitionKey
from diskless_core.metrics import Metrics
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.produce.accumulator import SealedFile
from diskless_core.protocol.errors import ErrorCode

RETRY = Backoff(first_ms=20, max_ms=2_000)

_log = structlog.get_logger(__name__)

ShardOf = Callable[[PartitionKey], int | None]
"""Which diskless shard owns a partition; None when this node knows of no such partition."""


STALLED_S = 1.0
"""The least time without an answer after which a coordinator counts as stalled. An election is quicker, as a rule."""

STALLED_AFTER_APPENDS = 2
"""A coordinator counts as stalled when a commit takes this many times the longest of recent ones: on a slow bucket a
normal append takes longer than `STALLED_S`."""

MOST_STALLED_S = 10.0
"""However slow appends are, a coordinator without an answer counts as stalled after this time."""

_RECENT_APPENDS = 32


class CommitTicket:
    """The place of a part of an object in the order of its partitions. Made at rotation, in rotation order.

    Args:
        tails: the newest ticket of each partition.
        on_over: called once, when the ticket ends.
    """

    def __init__(
        self,
        tails: dict[PartitionKey, CommitTicket],
        partitions: Sequence[PartitionKey],
        number: int = 0,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self.number = number
        self._tails = tails
        self._partitions = partitions
        self._on_over = on_over
        self._over = asyncio.Event()
        self._before = dict.fromkeys(tails[partition] for partition in partitions if partition in tails)
        for partition in partitions:
            tails[partition] = self

    async def come(self) -> None:
        """Wait for all earlier parts that share a partition."""
        for earlier in self._before:
            await earlier._over.wait()  # noqa: SLF001  # its own kind
        self._before.clear()

    def may_follow(self, tickets: Set[CommitTicket]) -> bool:
        """Whether its turn has come as soon as that of `tickets` has: nothing else is before it."""
        return all(earlier._over.is_set() or earlier in tickets for earlier in self._before)  # noqa: SLF001

    def shares(self, partitions: Set[PartitionKey]) -> bool:
        """Whether the part has batches of one of these partitions."""
        return not partitions.isdisjoint(self._partitions)

    def end(self) -> None:
        """The outcome is definite, or there never will be one."""
        if self._over.is_set():
            return
        self._over.set()
        for partition in self._partitions:
            if self._tails.get(partition) is self:
                del self._tails[partition]
        self._on_over()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitPart:
    """The batches of an object, by their numbers in it, that one coordinator owns; None where none is known to."""

    shard: int | None
    indexes: Sequence[int]
    ticket: CommitTicket


@dataclass(slots=True, eq=False)
class _Waiting:
    """An uploaded part that waits for its turn."""

    request: CommitFile
    ticket: CommitTicket
    answer: asyncio.Future[list[BatchResult]]
    since_s: float


class Committer:
    """One broker's commits, with the coordinators that it knows, by index.

    Attributes:
        stalled: the coordinators that have not answered for `stalled_after_s` while a commit waited.
        on_stalled: called when there is another one.
        on_turn: called when uploaded parts no longer wait for their turn.
    """

    def __init__(
        self,
        node_id: int,
        coordinators: Mapping[int, DisklessCoordinator],
        shard_of: ShardOf,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._node_id = node_id
        self._coordinators = coordinators
        self._shard_of = shard_of
        self._clock = clock
        self._metrics = metrics
        self._turn_seconds = metrics.produce_wait_seconds.labels("turn")
        self._tails: dict[PartitionKey, CommitTicket] = {}
        self._tickets = 0
        self._lines: dict[int | None, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._retrying = Retrying(RETRY, clock, is_retriable=_has_no_answer)
        self._appends_s: deque[float] = deque(maxlen=_RECENT_APPENDS)
        self._answered_s: dict[int, float] = {}
        self.stalled: set[int] = set()
        self.on_stalled: Callable[[], None] = lambda: None
        self.on_turn: Callable[[], None] = lambda: None

    @property
    def longest_append_s(self) -> float:
        """The longest of recent commits that were answered at the first try, in seconds."""
        return max(self._appends_s, default=0.0)

    @property
    def stalled_after_s(self) -> float:
        """How long a commit has had no answer when its coordinator counts as stalled, until it answers any."""
        return min(max(STALLED_S, STALLED_AFTER_APPENDS * self.longest_append_s), MOST_STALLED_S)

    def owner_of(self, key: PartitionKey) -> int | None:
        """The coordinator of a partition, if this broker knows of it."""
        shard = self._shard_of(key)
        return shard if shard in self._coordinators else None

    def is_stalled(self, key: PartitionKey) -> bool:
        """Whether the coordinator of a partition does not answer."""
        return bool(self.stalled) and self._shard_of(key) in self.stalled

    def take_tickets(self, sealed: SealedFile) -> list[CommitPart]:
        """Reserve the places of an object's parts; call it in rotation order."""
        by_shard: dict[int | None, list[int]] = {}
        for index, place in enumerate(sealed.places):
            by_shard.setdefault(place.shard, []).append(index)
        return [
            CommitPart(shard=shard, indexes=indexes, ticket=self._ticket(_partitions(sealed, indexes)))
            for shard, indexes in by_shard.items()
        ]

    def _ticket(self, partitions: Sequence[PartitionKey]) -> CommitTicket:
        self._tickets += 1
        return CommitTicket(self._tails, partitions, self._tickets, self._look)

    @property
    def has_waiting(self) -> bool:
        """Whether any uploaded part waits for its turn."""
        return bool(self._lines)

    def would_wait(self, partitions: Set[PartitionKey]) -> bool:
        """Whether an uploaded part that shares one of these partitions waits for its turn."""
        return any(one.ticket.shares(partitions) for line in self._lines.values() for one in line)

    def whole(self, key: str, sealed: SealedFile, parts: Sequence[CommitPart]) -> CommitFile:
        """What all parts of an object are committed from. Its owners are in random order, the same for all of them."""
        owners = [part.shard for part in parts if part.shard is not None]
        self._clock.random().shuffle(owners)
        return CommitFile(
            object_key=key,
            file_size=len(sealed.data),
            uploader_id=self._node_id,
            owner_ids=owners,
            batches=sealed.batches,
        )

    def commit(self, whole: CommitFile, part: CommitPart) -> asyncio.Future[list[BatchResult]]:
        """Commit a part of an uploaded object when its turn comes; a result for each batch, in order.

        While the answer is missing the same list is sent again. Where a defect takes its place, the batches get
        KAFKA_STORAGE_ERROR.
        """
        answer: asyncio.Future[list[BatchResult]] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(part.shard, []).append(
            _Waiting(
                request=_part(whole, part.indexes),
                ticket=part.ticket,
                answer=answer,
                since_s=self._clock.monotonic(),
            )
        )
        self._look()
        return answer

    def abort(self) -> None:
        """Give up what is under way; its outcome stays unknown."""
        self._lines.clear()
        for task in self._tasks:
            task.cancel()

    def _look(self) -> None:
        """Send each shard the parts whose turn has come."""
        has_sent = False
        for shard, line in list(self._lines.items()):
            sent = _next_list(line)
            if not sent:
                continue
            has_sent = True
            for one in sent:
                self._turn_seconds.observe(self._clock.monotonic() - one.since_s)
            self._lines[shard] = [one for one in line if one not in sent]
            if not self._lines[shard]:
                del self._lines[shard]
            task = asyncio.create_task(self._send(shard, sent), name=f"commit with the coordinator {shard}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if has_sent:
            self.on_turn()

    async def _send(self, shard: int | None, parts: Sequence[_Waiting]) -> None:
        requests = [part.request for part in parts]
        if shard is None:
            answers = _all_of(requests, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            end_watch = self._watch(shard)
            try:
                with self._metrics.commit_seconds.time():
                    answers = await self._answers(shard, requests)
            finally:
                end_watch()
                self._go_on(shard)
        for part, results in zip(parts, answers, strict=True):
            if not part.answer.done():
                part.answer.set_result(results)

    async def _answers(self, shard: int, requests: Sequence[CommitFile]) -> list[list[BatchResult]]:
        objects = [request.object_key for request in requests]
        begun_s = self._clock.monotonic()
        has_failed = False

        def report(error: BaseException, _: int) -> None:
            nonlocal has_failed
            has_failed = True
            _log.warning("a commit has no answer yet and is sent again", objects=objects, error=str(error))

        try:
            answers = await self._retrying.do(lambda: self._coordinators[shard].commit_files(requests), report)
        except EntryTooLargeError as error:
            if len(requests) > 1:
                half = len(requests) // 2
                first = await self._answers(shard, requests[:half])
                return first + await self._answers(shard, requests[half:])
            _log.error(
                "the coordinator's log takes no entry as large as this commit; its producers get an error",
                objects=objects,
                shard=shard,
                batches=len(requests[0].batches),
                error=str(error),
            )
            return _all_of(requests, ErrorCode.RECORD_LIST_TOO_LARGE)
        except Exception:
            _log.exception(
                "a defect kept batches from being committed; their producers get an error",
                objects=objects,
                shard=shard,
                batches=sum(len(request.batches) for request in requests),
            )
            return _all_of(requests, ErrorCode.KAFKA_STORAGE_ERROR)
        if not has_failed:
            self._appends_s.append(self._clock.monotonic() - begun_s)
        return answers

    def _watch(self, shard: int) -> Callable[[], None]:
        """Look whether the coordinator stalls, again and again until the function that is returned is called.

        Once is not enough: it may answer another commit, and then none, and what waits behind this one is never sent.
        """
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            left_s = max(begun_s, self._answered_s.get(shard, begun_s)) + self.stalled_after_s - loop.time()
            if left_s <= 0:
                self._stall(shard)
                left_s = STALLED_S
            timer = loop.call_later(left_s, look)

        timer = loop.call_later(self.stalled_after_s, look)
        return lambda: timer.cancel()

    def _stall(self, shard: int) -> None:
        if shard not in self.stalled:
            self.stalled.add(shard)
            _log.warning("a coordinator does not answer: what is produced to its partitions waits", shard=shard)
            self.on_stalled()

    def _go_on(self, shard: int) -> None:
        self._answered_s[shard] = asyncio.get_running_loop().time()
        if shard in self.stalled:
            self.stalled.discard(shard)
            _log.info("a coordinator answers again", shard=shard)


def _partitions(sealed: SealedFile, indexes: Sequence[int]) -> Sequence[PartitionKey]:
    """The partitions of these batches, each once, in order."""
    batches = (sealed.batches[index] for index in indexes)
    return list(dict.fromkeys(PartitionKey(batch.topic_id, batch.partition) for batch in batches))


def _next_list(line: Sequence[_Waiting]) -> list[_Waiting]:
    """The parts of a line whose turn has come, in rotation order, as many as one entry may have batches of.

    A part goes in the same list as the earlier parts that it has to follow. A part stays behind one that does not fit
    or is not uploaded yet: it must not pass that one.
    """
    chosen: list[_Waiting] = []
    tickets: set[CommitTicket] = set()
    batches = 0
    for one in sorted(line, key=lambda waiting: waiting.ticket.number):
        count = len(one.request.batches)
        if one.ticket.may_follow(tickets) and (not chosen or batches + count <= MAX_COMMIT_BATCHES):
            chosen.append(one)
            tickets.add(one.ticket)
            batches += count
    return chosen


def _all_of(requests: Sequence[CommitFile], error: ErrorCode) -> list[list[BatchResult]]:
    return [[BatchResult(error)] * len(request.batches) for request in requests]


def _has_no_answer(error: BaseException) -> bool:
    return isinstance(error, CoordinatorError) and not isinstance(error, EntryTooLargeError)


def _part(whole: CommitFile, indexes: Sequence[int]) -> CommitFile:
    if len(indexes) == len(whole.batches):
        return whole
    batches: list[CommitBatch] = [whole.batches[index] for index in indexes]
    return replace(whole, batches=batches)

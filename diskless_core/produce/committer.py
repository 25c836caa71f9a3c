"""Commits uploaded objects with their shards, so that no partition sees its batches out of order.

Each shard gets its part of an object, and each part has a turn of its own: it waits for every earlier one that shares a
partition with it until that one's outcome is definite. Parts that share none pass each other, so one slow upload holds
up only what order demands, and a shard without a leader only its own partitions. (KIP-1164, DisklessCommitFile; "WAL
file management", steps 1 and 2.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError, EntryTooLargeError
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.commands import BatchResult, CommitBatch, CommitFile, PartitionKey
from diskless_core.metrics import Metrics
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.produce.accumulator import SealedFile
from diskless_core.protocol.errors import ErrorCode

RETRY = Backoff(first_ms=20, max_ms=2_000)

_log = structlog.get_logger(__name__)

ShardOf = Callable[[PartitionKey], int | None]
"""Which diskless shard owns a partition; None when this node knows of no such partition."""


STALLED_S = 1.0
"""How long a commit has had no answer when its coordinator counts as stalled, until it answers any. An election is
quicker, as a rule; a commit takes milliseconds."""


class CommitTicket:
    """The place of a part of an object in the order of its partitions. Made at rotation, in rotation order."""

    def __init__(self, tails: dict[PartitionKey, CommitTicket], partitions: Sequence[PartitionKey]) -> None:
        self._tails = tails
        self._partitions = partitions
        self._over = asyncio.Event()
        self._before = dict.fromkeys(tails[partition] for partition in partitions if partition in tails)
        for partition in partitions:
            tails[partition] = self

    async def come(self) -> None:
        """Wait for all earlier parts that share a partition."""
        for earlier in self._before:
            await earlier._over.wait()  # noqa: SLF001  # its own kind
        self._before.clear()

    def shares(self, partitions: Set[PartitionKey]) -> bool:
        """Whether the part has batches of one of these partitions."""
        return not partitions.isdisjoint(self._partitions)

    def end(self) -> None:
        """The outcome is definite, or there never will be one."""
        self._over.set()
        for partition in self._partitions:
            if self._tails.get(partition) is self:
                del self._tails[partition]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitPart:
    """The batches of an object, by their numbers in it, that one coordinator owns; None where none is known to."""

    shard: int | None
    indexes: Sequence[int]
    ticket: CommitTicket


class Committer:
    """One broker's commits, with the coordinators that it knows, by index.

    Attributes:
        stalled: the coordinators that have not answered for `STALLED_S` while a commit waited.
        on_stalled: called when there is another one.
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
        self._tails: dict[PartitionKey, CommitTicket] = {}
        self._retrying = Retrying(RETRY, clock, is_retriable=_has_no_answer)
        self._answered_s: dict[int, float] = {}
        self.stalled: set[int] = set()
        self.on_stalled: Callable[[], None] = lambda: None

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
            CommitPart(shard=shard, indexes=indexes, ticket=CommitTicket(self._tails, _partitions(sealed, indexes)))
            for shard, indexes in by_shard.items()
        ]

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

    async def commit(self, whole: CommitFile, part: CommitPart) -> list[BatchResult]:
        """Commit a part of an uploaded object; a result for each batch, in order.

        While the answer is missing the same CommitFile is sent again. Where a defect takes its place, the batches get
        KAFKA_STORAGE_ERROR.
        """
        if part.shard is None:
            return [BatchResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] * len(part.indexes)
        end_watch = self._watch(part.shard)
        try:
            with self._metrics.commit_seconds.time():
                return await self._answer(part.shard, _part(whole, part.indexes))
        finally:
            end_watch()
            self._go_on(part.shard)

    async def _answer(self, shard: int, request: CommitFile) -> list[BatchResult]:
        def report(error: BaseException, _: int) -> None:
            _log.warning("a commit has no answer yet and is sent again", object=request.object_key, error=str(error))

        try:
            return await self._retrying.do(lambda: self._coordinators[shard].commit_file(request), report)
        except EntryTooLargeError as error:
            _log.error(
                "the coordinator's log takes no entry as large as this commit; its producers are told",
                object=request.object_key,
                shard=shard,
                batches=len(request.batches),
                error=str(error),
            )
            return [BatchResult(ErrorCode.RECORD_LIST_TOO_LARGE)] * len(request.batches)
        except Exception:
            _log.exception(
                "a defect kept batches from being committed; their producers are told",
                object=request.object_key,
                shard=shard,
                batches=len(request.batches),
            )
            return [BatchResult(ErrorCode.KAFKA_STORAGE_ERROR)] * len(request.batches)

    def _watch(self, shard: int) -> Callable[[], None]:
        """Look whether the coordinator stalls, again and again until the function that is returned is called.

        Once is not enough: it may answer another commit, and then none, and what waits behind this one is never sent.
        """
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            left_s = max(begun_s, self._answered_s.get(shard, begun_s)) + STALLED_S - loop.time()
            if left_s <= 0:
                self._stall(shard)
                left_s = STALLED_S
            timer = loop.call_later(left_s, look)

        timer = loop.call_later(STALLED_S, look)
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


def _has_no_answer(error: BaseException) -> bool:
    return isinstance(error, CoordinatorError) and not isinstance(error, EntryTooLargeError)


def _part(whole: CommitFile, indexes: Sequence[int]) -> CommitFile:
    if len(indexes) == len(whole.batches):
        return whole
    batches: list[CommitBatch] = [whole.batches[index] for index in indexes]
    return replace(whole, batches=batches)

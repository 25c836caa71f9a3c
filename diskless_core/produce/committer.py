"""Commits uploaded objects with their shards, so that no partition sees its batches out of order.

An object waits for every earlier one that shares a partition with it until that one's outcome is definite;
objects that share none pass each other (so one slow upload holds up only what order demands). (KIP-1164,
DisklessCommitFile; "WAL file management", steps 1 and 2.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace

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


class CommitTicket:
    """An object's place in the order of its partitions. Made at rotation, in rotation order."""

    def __init__(self, tails: dict[PartitionKey, CommitTicket], partitions: Sequence[PartitionKey]) -> None:
        self._tails = tails
        self._partitions = partitions
        self._over = asyncio.Event()
        self._before = dict.fromkeys(tails[partition] for partition in partitions if partition in tails)
        for partition in partitions:
            tails[partition] = self

    async def come(self) -> None:
        """Wait for all earlier objects that share a partition."""
        for earlier in self._before:
            await earlier._over.wait()  # noqa: SLF001  # its own kind
        self._before.clear()

    def shares(self, partitions: Set[PartitionKey]) -> bool:
        """Whether the object has batches of one of these partitions."""
        return not partitions.isdisjoint(self._partitions)

    def end(self) -> None:
        """The outcome is definite, or there never will be one."""
        self._over.set()
        for partition in self._partitions:
            if self._tails.get(partition) is self:
                del self._tails[partition]


class Committer:
    """One broker's commits, with the coordinators that it knows, by index."""

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

    def take_ticket(self, sealed: SealedFile) -> CommitTicket:
        """Reserve the object's place; call it in rotation order."""
        return CommitTicket(self._tails, sealed.partitions)

    async def commit(self, key: str, sealed: SealedFile) -> list[BatchResult]:
        """Commit an uploaded object with every shard that it has batches of; a result for each batch, in order.

        While an answer is missing the same CommitFile is sent again. It returns when there is an answer of every
        shard: the next object with batches of these partitions has to wait for all of them. Where a defect takes the
        answer's place, the batches of that shard get KAFKA_STORAGE_ERROR, and those of the others their own results.
        Where the coordinator's log never takes the commit, its batches get RECORD_LIST_TOO_LARGE.
        """
        by_shard: dict[int, list[int]] = {}
        results = [BatchResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] * len(sealed.batches)
        for index, batch in enumerate(sealed.batches):
            shard = self._shard_of(PartitionKey(batch.topic_id, batch.partition))
            if shard is not None and shard in self._coordinators:  # there may be more than this broker knows of
                by_shard.setdefault(shard, []).append(index)
        owners = list(by_shard)
        self._clock.random().shuffle(owners)
        whole = CommitFile(
            object_key=key,
            file_size=len(sealed.data),
            uploader_id=self._node_id,
            owner_ids=owners,
            batches=sealed.batches,
        )
        with self._metrics.commit_seconds.time():
            answers = await asyncio.gather(
                *(self._commit_part(shard, _part(whole, indexes)) for shard, indexes in by_shard.items())
            )
        for indexes, answer in zip(by_shard.values(), answers, strict=True):
            for index, result in zip(indexes, answer, strict=True):
                results[index] = result
        return results

    async def _commit_part(self, shard: int, request: CommitFile) -> list[BatchResult]:
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


def _has_no_answer(error: BaseException) -> bool:
    return isinstance(error, CoordinatorError) and not isinstance(error, EntryTooLargeError)


def _part(whole: CommitFile, indexes: Sequence[int]) -> CommitFile:
    if len(indexes) == len(whole.batches):
        return whole
    batches: list[CommitBatch] = [whole.batches[index] for index in indexes]
    return replace(whole, batches=batches)

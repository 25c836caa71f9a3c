"""Answers Fetch: finds, reads and cuts for all partitions of a request, and waits while there is too little."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.client import DisklessShard
from diskless_core.coordinator.commands import NO_OFFSET, FoundRuns, PartitionKey, Run
from diskless_core.fetch import planner
from diskless_core.fetch.completer import cut
from diskless_core.fetch.object_reader import ObjectReader, ReadError, ReadRun
from diskless_core.fetch.positions import Positions
from diskless_core.fetch.purgatory import Purgatory
from diskless_core.fetch.read_ahead import ReadAhead
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.wal_object_store import ObjectNotFoundError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import CorruptBatchError

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """One partition that is asked for."""

    key: PartitionKey
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchQuery:
    """What a Fetch request wants; sizes in bytes, `max_wait_ms` from when it was received."""

    partitions: Sequence[FetchPartition]
    max_bytes: int
    min_bytes: int
    max_wait_ms: int


@dataclass(slots=True)
class FetchedPartition:
    """The answer for one partition. `records` are slices of cached objects: whole batches, in order."""

    error: ErrorCode
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    records: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    starved: bool = False


ShardFor = Callable[[PartitionKey], DisklessShard | None]


class Fetcher:
    """All Fetch requests of a broker."""

    def __init__(
        self,
        shard_for: ShardFor,
        positions: Positions,
        reader: ObjectReader,
        read_ahead: ReadAhead,
        purgatory: Purgatory,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._shard_for = shard_for
        self._positions = positions
        self._reader = reader
        self._read_ahead = read_ahead
        self._purgatory = purgatory
        self._clock = clock
        self._waiting = metrics.fetch_waiting

    async def fetch(self, query: FetchQuery, starved: list[PartitionKey]) -> list[FetchedPartition]:
        """Answers in the order of the query.

        At least one batch is returned if any partition has data, even over budget; what the budget did not reach
        is noted in `starved`, which belongs to the connection, and comes first the next time, the longest waiting
        one before the others.
        """
        order = planner.starved_first([wanted.key for wanted in query.partitions], starved)
        deadline = self._clock.monotonic() + query.max_wait_ms / 1000
        answers = await self._once(query, order)
        if not _is_enough(answers, query.min_bytes) and query.max_wait_ms > 0:
            keys = [wanted.key for wanted in query.partitions]
            with self._waiting.track_inprogress(), self._purgatory.watch(keys) as watch:
                answers = await self._once(query, order)
                while not _is_enough(answers, query.min_bytes):
                    if not await watch.wait(deadline - self._clock.monotonic()):
                        break
                    answers = await self._once(query, order)
        starved[:] = [query.partitions[index].key for index in order if answers[index].starved]
        return answers

    async def _once(self, query: FetchQuery, order: Sequence[int]) -> list[FetchedPartition]:
        found = await self._find(query)
        broken: dict[int, ErrorCode] = {}
        while True:
            known = len(broken)
            answers = await self._read(found, query, order, broken)
            starved = any(answer.starved for answer in answers) and not any(answer.records for answer in answers)
            if not starved or len(broken) == known:
                return answers

    async def _read(
        self, found: Sequence[FoundRuns], query: FetchQuery, order: Sequence[int], broken: dict[int, ErrorCode]
    ) -> list[FetchedPartition]:
        """Share the budget out among the partitions that are not known to be `broken`, and note those that are."""
        order = [index for index in order if index not in broken]
        chosen = _choose(found, query, order)
        runs = [run for index in order for run in chosen[index]]
        contents = iter(zip(runs, await self._reader.read(runs), strict=True)) if runs else iter(())
        answers = [_empty(answer) for answer in found]
        left = query.max_bytes
        granted = False
        for index in order:
            wanted, answer = query.partitions[index], answers[index]
            read = [next(contents) for _ in chosen[index]]
            sound, failure = _sound_prefix(read, wanted.offset)
            if failure is not None and not sound:
                broken[index] = await self._failed(wanted, failure)
                continue
            limit = min(left, wanted.max_bytes)
            answer.records = cut(sound, wanted.offset, limit, at_least_one=not granted)
            answer.size_bytes = sum(map(len, answer.records))
            answer.starved = not answer.records and bool(found[index].runs)
            granted = granted or bool(answer.records)
            left -= answer.size_bytes
            if read and read[-1][1].is_cold:
                self._begin_reading_ahead(wanted, read[-1][0].last_offset + 1, answer)
        for index, error in broken.items():
            answers[index].error = error
        return answers

    def _begin_reading_ahead(self, wanted: FetchPartition, offset: int, answer: FetchedPartition) -> None:
        shard = self._shard_for(wanted.key)
        if shard is not None and answer.records and offset < answer.high_watermark:
            self._read_ahead.begin(shard, wanted.key, offset, answer.size_bytes)

    async def _find(self, query: FetchQuery) -> list[FoundRuns]:
        found: list[FoundRuns | None] = []
        slow = []
        for index, wanted in enumerate(query.partitions):
            shard = self._shard_for(wanted.key)
            if shard is None:
                found.append(FoundRuns(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            max_bytes = max(1, min(wanted.max_bytes, query.max_bytes))
            recent = shard.find_recent(wanted.key, wanted.offset, max_bytes)
            found.append(recent)
            if recent is None:
                slow.append((index, _stored(shard, wanted, max_bytes)))
            elif recent.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                slow.append((index, self._positions.checked(wanted.key, wanted.offset, recent)))
        answers = await asyncio.gather(*(search for _, search in slow))
        for (index, _), answer in zip(slow, answers, strict=True):
            found[index] = answer
        return [answer for answer in found if answer is not None]

    async def _failed(self, wanted: FetchPartition, failure: ReadError) -> ErrorCode:
        """What a client is told of an unreadable run. A missing object may just have been deleted with its offsets."""
        if isinstance(failure, ObjectNotFoundError):
            shard = self._shard_for(wanted.key)
            again = await _stored(shard, wanted, 1) if shard is not None else None
            if again is None or again.error is not ErrorCode.NONE:
                return again.error if again is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if await self._positions.is_deleted(wanted.key, wanted.offset):
                return ErrorCode.OFFSET_OUT_OF_RANGE
        _log.error(
            "a partition could not be read",
            topic_id=wanted.key.topic_id.hex(),
            partition=wanted.key.partition,
            offset=wanted.offset,
            error=str(failure),
        )
        return ErrorCode.CORRUPT_MESSAGE if isinstance(failure, CorruptBatchError) else ErrorCode.KAFKA_STORAGE_ERROR


async def _stored(shard: DisklessShard, wanted: FetchPartition, max_bytes: int) -> FoundRuns:
    """What a replica finds with its store, which may fail, or be on its way from a snapshot."""
    try:
        return await shard.find(wanted.key, wanted.offset, max_bytes)
    except CoordinatorStoreError as error:
        _log.warning("a coordinator store cannot be asked", shard=str(shard.shard.id), error=str(error))
        return FoundRuns(ErrorCode.KAFKA_STORAGE_ERROR)


def _choose(found: Sequence[FoundRuns], query: FetchQuery, order: Sequence[int]) -> list[Sequence[Run]]:
    """The runs worth reading: each partition's up to its own limit, until the request's is reached."""
    chosen: list[Sequence[Run]] = [()] * len(found)
    left = query.max_bytes
    for index in order:
        if left <= 0 and any(chosen):
            break
        runs = found[index].runs
        taken = 0
        for run in runs:
            if taken >= max(1, min(left, query.partitions[index].max_bytes)):
                break
            taken += run.byte_size
            chosen[index] = (*chosen[index], run)
        left -= taken
    return chosen


def _sound_prefix(
    read: Sequence[tuple[Run, ReadRun]], offset: int
) -> tuple[list[tuple[Run, memoryview]], ReadError | None]:
    """What can be read up to the first failure; nothing if that comes before `offset`."""
    sound: list[tuple[Run, memoryview]] = []
    for run, content in read:
        if content.next_offset > offset:
            sound.append((run, content.data))
        if content.failure is not None:
            return sound, content.failure
    return sound, None


def _empty(found: FoundRuns) -> FetchedPartition:
    return FetchedPartition(
        error=found.error, high_watermark=found.high_watermark, log_start_offset=found.log_start_offset
    )


def _is_enough(answers: Sequence[FetchedPartition], min_bytes: int) -> bool:
    if any(answer.error is not ErrorCode.NONE for answer in answers):
        return True
    return sum(answer.size_bytes for answer in answers) >= min_bytes

"""Answers Fetch: finds, reads and cuts for all partitions of a request, and waits while there is too little."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import structlog

from diskless_core.clock import Clock
from diskless_core.diskless.commands import AskedRuns, FoundRuns, PartitionKey
from diskless_core.diskless.purgatory import Purgatory, Watch
from diskless_core.diskless.shard import DisklessShard
from diskless_core.fetch import planner
from diskless_core.fetch.asking import LEAST_S, AskedLeaders
from diskless_core.fetch.batch_slicing import cut, sound_prefix, within
from diskless_core.fetch.budget import choose
from diskless_core.fetch.object_reader import ObjectReader, ReadError, ReadRun
from diskless_core.fetch.offset_range_check import OffsetRangeCheck
from diskless_core.fetch.query import (
    FetchedPartition,
    FetchPartition,
    FetchQuery,
    has_failed_reads,
    is_enough,
    is_unavailable,
    put_back,
)
from diskless_core.fetch.read_ahead import ReadAhead
from diskless_core.fetch.segments import RETRY, FromSegment, NoSegments, SegmentPart, SegmentSource
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.retrying import is_retriable
from diskless_core.plugin.wal_object_store import ObjectNotFoundError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.side_by_side import side_by_side
from diskless_core.wal.runs import Run

UNAVAILABLE_S = 0.1
"""How long a response with OFFSET_NOT_AVAILABLE and without records is held: consumers ask again without a pause."""

LEAST_ROOM_WAIT_S = 1.0
"""How long a Fetch waits for memory at least, however short a time it gives: then it is answered without records."""

CHECK_S = 2.0
"""How long a Fetch waits for the leader to say that an offset is out of range."""

ALL_AT_ONCE = 64
"""Partitions of a waiting Fetch that are all looked at again for each change. Of more, only those that changed are."""

_log = structlog.get_logger(__name__)


class GivenUp(NamedTuple):
    """A partition of which there are no records now; see `FetchedPartition`."""

    error: ErrorCode
    cannot_wait: bool = False
    starved: bool = False
    passing_failure: str | None = None


ShardFor = Callable[[PartitionKey], DisklessShard | None]


class Elsewhere(NamedTuple):
    """What helps where this node has no copy of a shard.

    Attributes:
        leaders: are asked where batches are.
        want: has the shard followed for a while: somebody reads what leaders do not tell.
    """

    leaders: AskedLeaders
    want: Callable[[DisklessShard], None]


class Fetcher:
    """All Fetch requests of a broker."""

    def __init__(
        self,
        shard_for: ShardFor,
        offset_ranges: OffsetRangeCheck,
        reader: ObjectReader,
        read_ahead: ReadAhead,
        purgatory: Purgatory,
        clock: Clock,
        metrics: Metrics,
        segments: SegmentSource | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._shard_for = shard_for
        self._offset_ranges = offset_ranges
        self._reader = reader
        self._read_ahead = read_ahead
        self._purgatory = purgatory
        self._segments = segments or NoSegments()
        self._elsewhere = elsewhere
        self._clock = clock
        self._waiting = metrics.fetch_waiting

    async def fetch(self, query: FetchQuery, starved: list[PartitionKey]) -> list[FetchedPartition]:
        """Answers in the order of the query.

        At least one batch is returned if any partition has data, even over budget; what the budget did not reach
        is noted in `starved`, which belongs to the connection, and comes first the next time, the longest waiting
        one before the others.
        """
        order = planner.starved_first(query.keys, starved)
        begun_s, seen = self._clock.monotonic(), self._purgatory.changes
        with ExitStack() as stack:
            watch: Watch | None = None
            if query.max_wait_ms > 0 and self._asks_elsewhere(query):
                # Others commit while this one asks: what is of these partitions is told one by one from here on.
                watch = stack.enter_context(self._purgatory.watch(query.keys, since=seen))
            answers = await self._once(query, order)
            if not is_enough(answers, query.min_bytes) and query.max_wait_ms > 0:
                stack.enter_context(self._waiting.track_inprogress())
                watch = watch or stack.enter_context(self._purgatory.watch(query.keys, since=seen))
                answers = await self._wait(query, order, answers, watch, begun_s)
        for wanted, answer in zip(query.partitions, answers, strict=True):
            if answer.passing_failure is not None:
                _report_unreadable(wanted, answer.passing_failure)
        starved[:] = [query.partitions[index].key for index in order if answers[index].starved]
        return answers

    async def _wait(
        self,
        query: FetchQuery,
        order: Sequence[int],
        answers: list[FetchedPartition],
        watch: Watch,
        begun_s: float,
    ) -> list[FetchedPartition]:
        """Look again whenever something has changed, until there is enough or the time is over.

        Where the object store could not be read, it is asked again after pauses that grow.
        """
        deadline = begun_s + query.max_wait_ms / 1000
        is_plain = not is_unavailable(answers) and not has_failed_reads(answers) and not self._asks_elsewhere(query)
        if len(query.partitions) > ALL_AT_ONCE and is_plain:
            return await self._wait_for_some(query, order, answers, watch, deadline)
        looked_s: float | None = None
        failures = 0
        is_put_back = False
        while not is_enough(answers, query.min_bytes):
            is_put_back = put_back(answers, query.room) or is_put_back
            self._watch_elsewhere(query, answers)
            until_s = min(deadline, begun_s + UNAVAILABLE_S) if is_unavailable(answers) else deadline
            if has_failed_reads(answers):
                failures += 1
                pause_s, left_s = RETRY.pause_s(failures, self._clock), until_s - self._clock.monotonic()
                if left_s <= 0:
                    break
                await asyncio.sleep(min(pause_s, left_s))  # what is committed meanwhile does not shorten it
                answers, is_put_back = await self._once(query, order), False
                continue
            if not await watch.wait(until_s - self._clock.monotonic()):
                break
            if looked_s is not None and self._asks_elsewhere(query):
                await asyncio.sleep(max(0.0, min(looked_s + LEAST_S, until_s) - self._clock.monotonic()))
            looked_s = self._clock.monotonic()
            answers, is_put_back = await self._once(query, order), False
        return await self._once(query, order) if is_put_back else answers

    async def _wait_for_some(
        self,
        query: FetchQuery,
        order: Sequence[int],
        answers: list[FetchedPartition],
        watch: Watch,
        deadline: float,
    ) -> list[FetchedPartition]:
        """The same for many partitions: a commit costs what is in its partitions, not what others have asked for.

        Everything is looked at once more in the end, since the request's budget is shared out among all partitions.
        """
        indexes = {wanted.key: index for index, wanted in enumerate(query.partitions)}
        sizes = [answer.size_bytes for answer in answers]
        total, is_old = sum(sizes), put_back(answers, query.room)
        while total < query.min_bytes and await watch.wait(deadline - self._clock.monotonic()):
            changed = [indexes[key] for key in watch.woken()]
            if not changed:  # something has changed while this request looked: nobody says what
                answers, is_old = await self._once(query, order), False
                if is_enough(answers, query.min_bytes) or is_unavailable(answers):
                    return answers
                sizes = [answer.size_bytes for answer in answers]
                total, is_old = sum(sizes), put_back(answers, query.room)
                continue
            part = replace(query, partitions=[query.partitions[index] for index in changed])
            found, is_old = await self._once(part, range(len(changed))), True
            for index, answer in zip(changed, found, strict=True):
                total += answer.size_bytes - sizes[index]
                sizes[index] = answer.size_bytes
            has_ended = is_unavailable(found) or has_failed_reads(found) or is_enough(found, query.min_bytes)
            put_back(found, query.room)
            if has_ended:
                break
        return await self._once(query, order) if is_old else answers

    def _asks_elsewhere(self, query: FetchQuery) -> bool:
        """Whether there are partitions of whose shards this node has no copy."""
        if self._elsewhere is None:
            return False
        shards = {self._shard_for(key) for key in query.keys}
        return any(shard is not None and not shard.is_readable for shard in shards)

    async def _once(self, query: FetchQuery, order: Sequence[int]) -> list[FetchedPartition]:
        found = await self._find(query, order)
        broken: dict[int, GivenUp] = {}
        while True:
            known = len(broken)
            answers = await self._read(found, query, order, broken)
            starved = any(answer.starved for answer in answers) and not any(answer.records for answer in answers)
            if not starved or len(broken) == known:
                return answers
            if any(given_up.cannot_wait for given_up in broken.values()):
                _leave_out_segments(found, query, broken)

    async def _read(
        self, found: Sequence[FoundRuns], query: FetchQuery, order: Sequence[int], broken: dict[int, GivenUp]
    ) -> list[FetchedPartition]:
        """Share the budget out among the partitions that are not known to be `broken`, and note those that are."""
        order = [index for index in order if index not in broken]
        room, max_bytes = query.room, query.max_bytes
        if room is not None:
            room.take(0)  # what waits for memory must hold none, or requests would wait for each other
            if not await room.wait(max(LEAST_ROOM_WAIT_S, query.max_wait_ms / 1000)):
                answers = [FetchedPartition.without_records(answer) for answer in found]
                for answer in answers:
                    answer.cannot_wait = True
                return answers
            max_bytes = room.allowed(max_bytes)
        choice = choose(found, query, order, max_bytes)
        runs = [run for index in order for run in choice.runs[index]]
        if room is not None:
            # Nothing is awaited since `allowed`: several requests at once would all be given the same memory.
            room.take(sum(run.byte_size for run in runs) + sum(choice.from_segments.values()))
        contents: Iterator[tuple[Run, ReadRun]] = iter(())
        from_segments: Mapping[int, FromSegment] = {}
        if choice.from_segments:
            contents, from_segments = await self._of_both_tiers(query, choice.from_segments, runs)
        elif runs:
            contents = zip(runs, await self._reader.read(runs), strict=True)
        answers = [FetchedPartition.without_records(answer) for answer in found]
        left = max_bytes
        granted = False
        for index in order:
            wanted, answer = query.partitions[index], answers[index]
            limit, read = min(left, wanted.max_bytes), [next(contents) for _ in choice.runs[index]]
            if index in from_segments:
                part = from_segments[index]
                if not part.records:
                    broken[index] = GivenUp(part.error, cannot_wait=part.has_waited)
                    continue
                answer.records = within(part.records, limit, at_least_one=not granted)
                answer.cannot_wait = True
            else:
                sound, failure = sound_prefix(read, wanted.offset)
                if failure is not None and not sound:
                    read = await self._reader.read_past_damage(read, wanted.offset)
                    sound, failure = sound_prefix(read, wanted.offset)
                if failure is not None and not sound:
                    broken[index] = await self._failed(wanted, failure)
                    continue
                answer.records = cut(sound, wanted.offset, limit, at_least_one=not granted)
            answer.size_bytes = sum(map(len, answer.records))
            answer.starved = not answer.records and wanted.offset < answer.high_watermark
            granted = granted or bool(answer.records)
            left -= answer.size_bytes
            if read and read[-1][1].is_cold:
                self._begin_reading_ahead(wanted, read[-1][0].last_offset + 1, answer)
        for index, given_up in broken.items():
            answer = answers[index]
            answer.error, answer.cannot_wait, answer.starved, answer.passing_failure = given_up
        if room is not None:
            size_bytes = sum(answer.size_bytes for answer in answers)
            room.take(size_bytes)
            if size_bytes and max_bytes < query.min_bytes:
                answers[order[0]].cannot_wait = True  # memory is short: waiting would not make it more
        return answers

    async def _of_both_tiers(
        self, query: FetchQuery, budgets: Mapping[int, int], runs: Sequence[Run]
    ) -> tuple[Iterator[tuple[Run, ReadRun]], Mapping[int, FromSegment]]:
        """What is read of the runs, in their order, and of segments."""
        reading = asyncio.create_task(self._segments.read(self._parts(query, budgets)))
        try:
            contents = await self._reader.read(runs)
            return zip(runs, contents, strict=True), await reading
        finally:
            reading.cancel()

    def _parts(self, query: FetchQuery, budgets: Mapping[int, int]) -> dict[int, SegmentPart]:
        parts = {}
        for index, max_bytes in budgets.items():
            wanted = query.partitions[index]
            shard = self._shard_for(wanted.key)
            if shard is not None:
                if self._elsewhere is not None:
                    self._elsewhere.want(shard)
                parts[index] = SegmentPart(shard=shard, wanted=wanted, max_bytes=max_bytes)
        return parts

    def _begin_reading_ahead(self, wanted: FetchPartition, offset: int, answer: FetchedPartition) -> None:
        shard = self._shard_for(wanted.key)
        if shard is not None and shard.is_readable and answer.records and offset < answer.high_watermark:
            self._read_ahead.begin(shard, wanted.key, offset, answer.size_bytes)

    async def _find(self, query: FetchQuery, order: Sequence[int]) -> list[FoundRuns]:
        found: list[FoundRuns | None] = [None] * len(query.partitions)
        slow: list[tuple[int, Callable[[], Awaitable[FoundRuns]]]] = []
        elsewhere: dict[DisklessShard, list[int]] = {}
        for index in order:
            wanted = query.partitions[index]
            shard = self._shard_for(wanted.key)
            if shard is None:
                found[index] = FoundRuns(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            max_bytes = max(1, min(wanted.max_bytes, query.max_bytes))
            if not shard.is_readable:
                elsewhere.setdefault(shard, []).append(index)
                continue
            recent = shard.find_recent(wanted.key, wanted.offset, max_bytes)
            found[index] = recent
            if recent is None:
                slow.append((index, partial(_stored, shard, wanted, max_bytes)))
            elif recent.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                slow.append((index, partial(self._offset_ranges.checked, wanted.key, wanted.offset, recent)))
        if elsewhere:
            await side_by_side(lambda item: self._find_elsewhere(query, found, *item), list(elsewhere.items()))
        if slow:
            answers = await side_by_side(lambda search: search[1](), slow)
            for (index, _), answer in zip(slow, answers, strict=True):
                found[index] = answer
        return [answer for answer in found if answer is not None]

    async def _find_elsewhere(
        self, query: FetchQuery, found: list[FoundRuns | None], shard: DisklessShard, indexes: Sequence[int]
    ) -> None:
        """Find what the leader of a shard knows, of which this node has no copy. What is in segments needs one."""
        answers = await self._ask_leader(query, shard, [query.partitions[index] for index in indexes])
        doubtful = [place for place, answer in enumerate(answers) if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE]
        if doubtful:
            checks = await side_by_side(
                lambda place: self._checked(query.partitions[indexes[place]], answers[place]), doubtful
            )
            for place, answer in zip(doubtful, checks, strict=True):
                answers[place] = answer
        for index, answer in zip(indexes, answers, strict=True):
            wanted = query.partitions[index]
            if answer.error is ErrorCode.NONE and wanted.offset < answer.local_start_offset:
                answer = self._of_segments(shard, wanted, answer)
            found[index] = answer

    async def _checked(self, wanted: FetchPartition, answer: FoundRuns) -> FoundRuns:
        """See `OffsetRangeCheck.checked`: the others of a request do not wait long for it."""
        try:
            async with asyncio.timeout(CHECK_S):
                return await self._offset_ranges.checked(wanted.key, wanted.offset, answer)
        except TimeoutError:
            return FoundRuns(ErrorCode.OFFSET_NOT_AVAILABLE)

    def _of_segments(self, shard: DisklessShard, wanted: FetchPartition, answer: FoundRuns) -> FoundRuns:
        """Nothing yet: a copy is on its way that tells in which segment it is. An error where there will be none."""
        if self._elsewhere is not None:
            self._elsewhere.want(shard)
        if shard.follow_failure is not None:
            return FoundRuns(ErrorCode.OFFSET_NOT_AVAILABLE)
        return answer._replace(runs=(), local_start_offset=wanted.offset)

    async def _ask_leader(
        self, query: FetchQuery, shard: DisklessShard, wanted: Sequence[FetchPartition]
    ) -> list[FoundRuns]:
        if self._elsewhere is None:
            return [FoundRuns(ErrorCode.OFFSET_NOT_AVAILABLE)] * len(wanted)
        asked = [AskedRuns(one.key, one.offset, max(1, min(one.max_bytes, query.max_bytes))) for one in wanted]
        return await self._elsewhere.leaders.find(shard.id.index, asked, max(1, query.max_bytes))

    def _watch_elsewhere(self, query: FetchQuery, answers: Sequence[FetchedPartition]) -> None:
        """Be woken by what is committed to partitions from here on of whose shards this node has no copy.

        Of one whose topic was deleted while its leader was asked nobody tells any more: it is looked at again at once.
        """
        if self._elsewhere is None:
            return
        offsets: dict[int, dict[PartitionKey, int]] = {}
        for wanted, answer in zip(query.partitions, answers, strict=True):
            if answer.error is not ErrorCode.NONE:
                continue
            shard = self._shard_for(wanted.key)
            if shard is None:
                self._purgatory.wake([wanted.key])
            elif not shard.is_readable:
                offsets.setdefault(shard.id.index, {})[wanted.key] = max(wanted.offset, answer.high_watermark)
        for index, some in offsets.items():
            self._elsewhere.leaders.watch(index, some)

    async def _failed(self, wanted: FetchPartition, failure: ReadError) -> GivenUp:
        """What a client is told of an unreadable run. A missing object may just have been deleted.

        Its offsets are gone then, or are in a segment now: the client asks again.
        """
        if isinstance(failure, ObjectNotFoundError):
            again = await self._again(wanted)
            if again is None or again.error is not ErrorCode.NONE:
                return GivenUp(again.error if again is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if wanted.offset < again.local_start_offset:
                return GivenUp(ErrorCode.NONE, cannot_wait=True)
            if await self._offset_ranges.is_deleted(wanted.key, wanted.offset):
                return GivenUp(ErrorCode.OFFSET_OUT_OF_RANGE)
        if is_retriable(failure):
            return GivenUp(ErrorCode.KAFKA_STORAGE_ERROR, passing_failure=str(failure))
        _report_unreadable(wanted, str(failure))
        is_corrupt = isinstance(failure, CorruptBatchError)
        return GivenUp(ErrorCode.CORRUPT_MESSAGE if is_corrupt else ErrorCode.KAFKA_STORAGE_ERROR)

    async def _again(self, wanted: FetchPartition) -> FoundRuns | None:
        """What is found at a place by now; None where there is no such partition."""
        shard = self._shard_for(wanted.key)
        if shard is None:
            return None
        if shard.is_readable:
            return await _stored(shard, wanted, 1)
        if self._elsewhere is None:
            return FoundRuns(ErrorCode.OFFSET_NOT_AVAILABLE)
        [answer] = await self._elsewhere.leaders.find(shard.id.index, [AskedRuns(wanted.key, wanted.offset, 1)], 1)
        return answer


def _report_unreadable(wanted: FetchPartition, failure: str) -> None:
    _log.error(
        "a partition could not be read",
        topic_id=wanted.key.topic_id.hex(),
        partition=wanted.key.partition,
        offset=wanted.offset,
        error=failure,
    )


def _leave_out_segments(found: Sequence[FoundRuns], query: FetchQuery, broken: dict[int, GivenUp]) -> None:
    """Give up what else is in segments: one wait for remote storage is enough for a request."""
    for index, (wanted, answer) in enumerate(zip(query.partitions, found, strict=True)):
        if answer.error is ErrorCode.NONE and wanted.offset < answer.local_start_offset:
            broken.setdefault(index, GivenUp(ErrorCode.NONE, starved=True))


async def _stored(shard: DisklessShard, wanted: FetchPartition, max_bytes: int) -> FoundRuns:
    """What a replica finds with its store, which may fail, or be on its way from a snapshot."""
    try:
        found = await shard.find(wanted.key, wanted.offset, max_bytes)
        return found if shard.is_readable else FoundRuns(ErrorCode.OFFSET_NOT_AVAILABLE)  # it was let go of meanwhile
    except CoordinatorStoreError as error:
        _log.warning("a coordinator store cannot be asked", shard=str(shard.id), error=str(error))
        return FoundRuns(ErrorCode.KAFKA_STORAGE_ERROR)

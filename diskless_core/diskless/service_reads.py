"""Answers DisklessListOffsets, strictly, and DisklessFindBatches, from whatever this node knows.

(KIP-1164, "Diskless coordinator API".)
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, Protocol

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import NotCoordinatorError
from diskless_core.diskless.attempts import Attempts
from diskless_core.diskless.commands import FoundRuns, ListedOffset, PartitionKey, SpecialTimestamp
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.run_lookup import ANSWER_RUNS, total_bytes
from diskless_core.diskless.shard import DisklessShard
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    DisklessFindBatchesRequest,
    DisklessFindBatchesResponse,
    DisklessListOffsetsRequest,
    DisklessListOffsetsResponse,
)
from diskless_core.protocol.record_batch import MAGIC
from diskless_core.side_by_side import side_by_side_in_groups
from diskless_core.wal.runs import Run

_ZERO_ID = bytes(16)

MAX_WAIT_MS = 30_000
"""The longest that a request may wait for batches: it holds what it asks for in memory."""

_SLICE = 256
"""Partitions that are looked into before others have their turn."""

_log = structlog.get_logger(__name__)

AskedOffsets = DisklessListOffsetsRequest.DisklessListOffsetsTopic
OffsetsTopic = DisklessListOffsetsResponse.DisklessListOffsetsTopicResponse
OffsetsPartition = OffsetsTopic.DisklessListOffsetsPartitionResponse
AskedBatches = DisklessFindBatchesRequest.DisklessFindBatchesTopic
BatchesTopic = DisklessFindBatchesResponse.DisklessFindBatchesTopicResponse
BatchesPartition = BatchesTopic.DisklessFindBatchesPartitionResponse
BatchInfo = BatchesPartition.DisklessFindBatchesBatchInfo


class _Topic(Protocol):
    topic_id: uuid.UUID | None


class _Partition(Protocol):
    partition_index: int


def key_of(topic: _Topic, asked: _Partition) -> PartitionKey:
    """The partition that a request names. The zero id, which no topic has, is None in a message."""
    return PartitionKey(topic.topic_id.bytes if topic.topic_id is not None else _ZERO_ID, asked.partition_index)


class CoordinatorReads:
    """The read-only operations that look into partitions."""

    def __init__(self, attempts: Attempts, purgatory: Purgatory, clock: Clock) -> None:
        self._attempts = attempts
        self._purgatory = purgatory
        self._clock = clock

    async def list_offsets(self, request: DisklessListOffsetsRequest) -> DisklessListOffsetsResponse:
        """DisklessListOffsets: partitions side by side, so that they share one proof of leadership."""
        listed = await side_by_side_in_groups(
            partial(self._list_one, request), [(topic, topic.partitions) for topic in request.topics]
        )
        topics = [
            OffsetsTopic(topic_id=topic.topic_id, partitions=partitions)
            for topic, partitions in zip(request.topics, listed, strict=True)
        ]
        return DisklessListOffsetsResponse(throttle_time_ms=0, topics=topics)

    async def _list_one(
        self,
        request: DisklessListOffsetsRequest,
        topic: AskedOffsets,
        asked: AskedOffsets.DisklessListOffsetsPartition,
    ) -> OffsetsPartition:
        if asked.timestamp < min(SpecialTimestamp):
            error = ErrorCode.UNSUPPORTED_VERSION
            return OffsetsPartition(partition_index=asked.partition_index, error_code=int(error))
        done = await self._attempts.ask(
            request.shard,
            lambda shard: shard.list_offsets(key_of(topic, asked), asked.timestamp),
            request.timeout_ms,
        )
        listed = done.answer or ListedOffset(done.error)
        return OffsetsPartition(
            partition_index=asked.partition_index,
            error_code=int(listed.error),
            error_message=done.message,
            timestamp=listed.timestamp,
            offset=listed.offset,
        )

    async def find_batches(self, request: DisklessFindBatchesRequest) -> DisklessFindBatchesResponse:
        """DisklessFindBatches, by any replica, maybe stale. With MaxWaitMs it waits for something to be found.

        An answer has about FetchMaxBytes of batches, and `ANSWER_RUNS` of them at most.
        """
        asked = [
            _Asked(topic.topic_id, key_of(topic, one), one) for topic in request.topics for one in topic.partitions
        ]
        if request.max_wait_ms <= 0:
            return _response(list(zip(asked, await self._look(request, asked), strict=True)))
        deadline = self._clock.monotonic() + min(request.max_wait_ms, request.timeout_ms, MAX_WAIT_MS) / 1000
        by_key: dict[PartitionKey, list[_Asked]] = {}
        for one in asked:
            by_key.setdefault(one.key, []).append(one)
        with self._purgatory.watch(list(by_key), since=self._purgatory.changes) as watch:
            while True:
                found = await self._look(request, asked)
                news = [(one, answer) for one, answer in zip(asked, found, strict=True) if _is_news(one, answer)]
                if news or not await watch.wait(deadline - self._clock.monotonic()):
                    return _response(news)
                asked = [one for key in watch.woken() for one in by_key[key]]

    async def _look(self, request: DisklessFindBatchesRequest, asked: Sequence[_Asked]) -> Sequence[FoundRuns]:
        """What is found now, in the order of what is asked."""
        done = await self._attempts.ask(
            request.shard,
            lambda shard: _find_in(shard, asked, request.fetch_max_bytes, request.max_batches_per_partition),
            request.timeout_ms,
        )
        return done.answer if done.answer is not None else [FoundRuns(done.error)] * len(asked)


class _Asked(NamedTuple):
    """One partition of a DisklessFindBatches."""

    topic_id: uuid.UUID | None
    key: PartitionKey
    partition: AskedBatches.DisklessFindBatchesPartition


async def _find_in(
    shard: DisklessShard, asked: Sequence[_Asked], max_bytes: int, max_runs_each: int
) -> list[FoundRuns]:
    """What is found in partitions; once the budget is used up, how far they reach."""
    _require_copy(shard)
    bytes_left, runs_left = max(0, max_bytes), ANSWER_RUNS
    found = []
    for number, (_, key, partition) in enumerate(asked, start=1):
        max_runs = max(0, min(max_runs_each, runs_left))
        answer = await _find_one(shard, key, partition.offset, min(bytes_left, partition.max_partition_fetch_bytes))
        answer = answer._replace(runs=answer.runs[:max_runs])
        bytes_left = max(0, bytes_left - total_bytes(answer.runs)) if runs_left > len(answer.runs) else 0
        runs_left -= len(answer.runs)
        found.append(answer)
        if number % _SLICE == 0:
            await asyncio.sleep(0)
    _require_copy(shard)  # it may have been let go of meanwhile: what was not found then means nothing
    return found


def _require_copy(shard: DisklessShard) -> None:
    if not shard.is_readable:
        raise NotCoordinatorError(f"this broker has no copy of {shard.id}")


async def _find_one(shard: DisklessShard, key: PartitionKey, offset: int, max_bytes: int) -> FoundRuns:
    try:
        return await shard.find(key, offset, max_bytes)
    except CoordinatorStoreError as error:
        _log.warning("a coordinator store cannot be asked", shard=str(shard.id), error=str(error))
        return FoundRuns(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _is_news(asked: _Asked, found: FoundRuns) -> bool:
    """Whether there is something for who waits: records, be it in segments, or an error."""
    return found.error is not ErrorCode.NONE or asked.partition.offset < found.high_watermark


def _response(answers: Sequence[tuple[_Asked, FoundRuns]]) -> DisklessFindBatchesResponse:
    topics = [
        BatchesTopic(topic_id=topic_id, partitions=[_found_partition(one.key.partition, found) for one, found in some])
        for topic_id, some in groupby(answers, lambda answer: answer[0].topic_id)
    ]
    has_segments = any(found.local_start_offset != found.log_start_offset for _, found in answers)
    return DisklessFindBatchesResponse(
        throttle_time_ms=0,
        topics=topics,
        local_start_offsets=[found.local_start_offset for _, found in answers] if has_segments else [],
    )


def _found_partition(index: int, found: FoundRuns) -> BatchesPartition:
    return BatchesPartition(
        partition_index=index,
        error_code=int(found.error),
        log_start_offset=found.log_start_offset,
        high_watermark=found.high_watermark,
        batches=list(map(_batch_info, found.runs)),
    )


def _batch_info(run: Run) -> BatchInfo:
    return BatchInfo(
        batch_id=run.base_offset,
        object_key=run.object_key,
        magic=MAGIC,
        byte_offset=run.byte_offset,
        byte_size=run.byte_size,
        base_offset=run.base_offset,
        last_offset=run.last_offset,
        log_append_timestamp=run.append_time,
        batch_max_timestamp=run.max_timestamp,
        timestamp_type=run.timestamp_type,
    )

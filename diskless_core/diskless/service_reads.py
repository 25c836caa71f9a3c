"""Answers DisklessListOffsets, strictly, and DisklessFindBatches, from whatever this node knows.

(KIP-1164, "Diskless coordinator API".)
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import NotCoordinatorError
from diskless_core.diskless.attempts import Attempts
from diskless_core.diskless.commands import FoundRuns, ListedOffset, PartitionKey, SpecialTimestamp
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.shard import DisklessShard
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
        """DisklessFindBatches, by any replica, maybe stale. With MaxWaitMs it waits for something to be found."""
        seen = self._purgatory.changes
        response, is_empty = await self._find(request)
        if not is_empty or request.max_wait_ms <= 0:
            return response
        deadline = self._clock.monotonic() + min(request.max_wait_ms, request.timeout_ms) / 1000
        keys = [key_of(topic, asked) for topic in request.topics for asked in topic.partitions]
        with self._purgatory.watch(keys, since=seen) as watch:
            while is_empty and await watch.wait(deadline - self._clock.monotonic()):
                response, is_empty = await self._find(request)
        return response

    async def _find(self, request: DisklessFindBatchesRequest) -> tuple[DisklessFindBatchesResponse, bool]:
        """The response, and whether it has neither batches nor an error."""
        left = max(0, request.fetch_max_bytes)
        is_empty = True
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                max_bytes = min(left, max(0, asked.max_partition_fetch_bytes))
                found = await self._find_one(request, topic, asked, max_bytes)
                runs = found.runs[: max(0, request.max_batches_per_partition)]
                left = max(0, left - sum(run.byte_size for run in runs))
                is_empty = is_empty and not runs and found.error is ErrorCode.NONE
                partitions.append(_found_partition(asked.partition_index, found, runs))
            topics.append(BatchesTopic(topic_id=topic.topic_id, partitions=partitions))
        return DisklessFindBatchesResponse(throttle_time_ms=0, topics=topics), is_empty

    async def _find_one(
        self,
        request: DisklessFindBatchesRequest,
        topic: AskedBatches,
        asked: AskedBatches.DisklessFindBatchesPartition,
        max_bytes: int,
    ) -> FoundRuns:
        done = await self._attempts.ask(
            request.shard,
            lambda shard: _find_in(shard, key_of(topic, asked), asked.offset, max_bytes),
            request.timeout_ms,
        )
        return done.answer or FoundRuns(done.error)


async def _find_in(shard: DisklessShard, key: PartitionKey, offset: int, max_bytes: int) -> FoundRuns:
    if not shard.is_readable:
        raise NotCoordinatorError(f"this broker has no copy of {shard.id}")
    return await shard.find(key, offset, max_bytes)


def _found_partition(index: int, found: FoundRuns, runs: Sequence[Run]) -> BatchesPartition:
    return BatchesPartition(
        partition_index=index,
        error_code=int(found.error),
        log_start_offset=found.log_start_offset,
        high_watermark=found.high_watermark,
        local_start_offset=found.local_start_offset,
        batches=[_batch_info(run) for run in runs],
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

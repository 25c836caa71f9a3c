"""ListOffsets: strict, so the coordinators are asked to prove first that they still are."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from diskless_core.broker.dispatch import RequestContext
from diskless_core.coordinator.client import DisklessShard
from diskless_core.coordinator.commands import PartitionKey
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.fetch.offsets import ListedOffset, SpecialTimestamp
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import ListOffsetsResponse

TopicAnswer = ListOffsetsResponse.ListOffsetsTopicResponse
PartitionAnswer = TopicAnswer.ListOffsetsPartitionResponse

_SINCE = {
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
_LEADER_EPOCH = 0
_NO_LEADER_EPOCH = -1


async def list_offsets(context: RequestContext, request: Any) -> Any:
    """Handle ListOffsets."""
    shards: dict[PartitionKey, DisklessShard] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            key = _key(context, topic.name, asked.partition_index)
            shard = context.services.topics.coordinator_of(key) if key is not None else None
            if key is not None and shard is not None:
                shards[key] = shard
    failed = await _pass_barriers(set(shards.values()))
    times = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    topics = []
    for topic in request.topics:
        answers = []
        for index, asked in {asked.partition_index: asked for asked in topic.partitions}.items():
            if times[topic.name, index] > 1:
                answers.append(_partition_answer(index, ListedOffset(ErrorCode.INVALID_REQUEST)))
            else:
                answers.append(await _answer(context, topic.name, asked, shards, failed))
        topics.append(TopicAnswer(name=topic.name, partitions=answers))
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def _key(context: RequestContext, name: str, partition: int) -> PartitionKey | None:
    info = context.services.topics.by_name(name)
    return info.key(partition) if info is not None else None


async def _pass_barriers(shards: set[DisklessShard]) -> dict[DisklessShard, CoordinatorError]:
    ordered = list(shards)
    outcomes = await asyncio.gather(*(shard.barrier() for shard in ordered), return_exceptions=True)
    failed: dict[DisklessShard, CoordinatorError] = {}
    for shard, outcome in zip(ordered, outcomes, strict=True):
        if isinstance(outcome, CoordinatorError):
            failed[shard] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
    return failed


async def _answer(
    context: RequestContext,
    name: str,
    asked: Any,
    shards: dict[PartitionKey, DisklessShard],
    failed: dict[DisklessShard, CoordinatorError],
) -> Any:
    key = _key(context, name, asked.partition_index)
    shard = shards.get(key) if key is not None else None
    if asked.timestamp < 0 and not _is_known(asked.timestamp, context.api_version):
        listed = ListedOffset(ErrorCode.UNSUPPORTED_VERSION)
    elif key is None or shard is None:
        listed = ListedOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif shard in failed:
        listed = ListedOffset(ErrorCode.LEADER_NOT_AVAILABLE)
    elif asked.current_leader_epoch > _LEADER_EPOCH:
        listed = ListedOffset(ErrorCode.UNKNOWN_LEADER_EPOCH)
    elif asked.current_leader_epoch < _NO_LEADER_EPOCH:
        listed = ListedOffset(ErrorCode.FENCED_LEADER_EPOCH)
    else:
        listed = await context.services.offsets.list(shard, key, asked.timestamp)
    return _partition_answer(asked.partition_index, listed)


def _partition_answer(index: int, listed: ListedOffset) -> Any:
    found = listed.error is ErrorCode.NONE and listed.offset >= 0
    return PartitionAnswer(
        partition_index=index,
        error_code=int(listed.error),
        timestamp=listed.timestamp,
        offset=listed.offset,
        leader_epoch=_LEADER_EPOCH if found else -1,
    )


def _is_known(timestamp: int, version: int) -> bool:
    return timestamp in set(SpecialTimestamp) and version >= _SINCE.get(SpecialTimestamp(timestamp), 0)

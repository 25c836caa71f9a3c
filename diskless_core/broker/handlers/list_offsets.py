"""ListOffsets: strict, so each coordinator has to prove first that it still leads, wherever it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

from diskless_core.broker.dispatch import RequestContext
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.commands import ListedOffset, PartitionKey, SpecialTimestamp
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from diskless_core.side_by_side import side_by_side_in_groups

AskedTopic = ListOffsetsRequest.ListOffsetsTopic
TopicAnswer = ListOffsetsResponse.ListOffsetsTopicResponse
PartitionAnswer = TopicAnswer.ListOffsetsPartitionResponse

_SINCE = {
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
PARALLEL_LOOKUPS = 8
"""Lookups by timestamp of one request that are under way at once: each may hold a run of batches in memory."""

FIRST_VERSION_WITH_TIMEOUT = 10

_LEADER_EPOCH = 0
_NO_LEADER_EPOCH = -1


class Lookups(NamedTuple):
    """The lookups by timestamp of one request: their turns, and when their time is over, by the event loop's clock."""

    turns: asyncio.Semaphore
    end_s: float


async def list_offsets(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Handle ListOffsets: partitions side by side, so that those of one coordinator share its proof that it leads."""
    times = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    repeated = {place for place, count in times.items() if count > 1}
    end_s = asyncio.get_running_loop().time() + _timeout_ms(context, request) / 1000
    lookups = Lookups(asyncio.Semaphore(PARALLEL_LOOKUPS), end_s)

    async def answer(topic: AskedTopic, asked: AskedTopic.ListOffsetsPartition) -> PartitionAnswer:
        is_repeated = (topic.name, asked.partition_index) in repeated
        return await _answer(context, topic.name, asked, lookups, is_repeated=is_repeated)

    distinct = [(topic, list(_by_index(topic).values())) for topic in request.topics]
    answers = await side_by_side_in_groups(answer, distinct)
    return ListOffsetsResponse(
        throttle_time_ms=0,
        topics=[
            TopicAnswer(name=topic.name, partitions=partitions)
            for topic, partitions in zip(request.topics, answers, strict=True)
        ],
    )


def _by_index(topic: AskedTopic) -> dict[int, AskedTopic.ListOffsetsPartition]:
    return {asked.partition_index: asked for asked in topic.partitions}


def _timeout_ms(context: RequestContext, request: ListOffsetsRequest) -> int:
    if context.api_version >= FIRST_VERSION_WITH_TIMEOUT and request.timeout_ms > 0:
        return request.timeout_ms
    return context.services.config.remote_list_offsets_request_timeout_ms


async def _answer(
    context: RequestContext, name: str, asked: AskedTopic.ListOffsetsPartition, lookups: Lookups, *, is_repeated: bool
) -> PartitionAnswer:
    topics = context.services.topics
    info = topics.by_name(name)
    key = info.key(asked.partition_index) if info is not None else None
    coordinator = topics.coordinator_of(key) if key is not None else None
    if is_repeated:
        listed = ListedOffset(ErrorCode.INVALID_REQUEST)
    elif asked.timestamp < 0 and not _is_known(asked.timestamp, context.api_version):
        listed = ListedOffset(ErrorCode.UNSUPPORTED_VERSION)
    elif key is None or coordinator is None:
        listed = ListedOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif asked.current_leader_epoch > _LEADER_EPOCH:
        listed = ListedOffset(ErrorCode.UNKNOWN_LEADER_EPOCH)
    elif asked.current_leader_epoch < _NO_LEADER_EPOCH:
        listed = ListedOffset(ErrorCode.FENCED_LEADER_EPOCH)
    else:
        listed = await _listed(coordinator, key, asked.timestamp, lookups)
    return _partition_answer(asked.partition_index, listed)


async def _listed(
    coordinator: DisklessCoordinator, key: PartitionKey, timestamp: int, lookups: Lookups
) -> ListedOffset:
    try:
        if timestamp < 0 and timestamp != SpecialTimestamp.MAX_TIMESTAMP:
            return await coordinator.list_offsets(key, timestamp)
        async with asyncio.timeout_at(lookups.end_s), lookups.turns:
            return await coordinator.list_offsets(key, timestamp)
    except TimeoutError:  # segments are read from a storage that takes its time
        return ListedOffset(ErrorCode.REQUEST_TIMED_OUT)
    except CoordinatorError:
        return ListedOffset(ErrorCode.LEADER_NOT_AVAILABLE)


def _partition_answer(index: int, listed: ListedOffset) -> PartitionAnswer:
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

"""OffsetForLeaderEpoch: every partition has had the epoch 0, and only that."""

from __future__ import annotations

from typing import NamedTuple

from diskless_core.broker.dispatch import RequestContext
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.commands import PartitionKey, SpecialTimestamp
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from diskless_core.side_by_side import side_by_side_in_groups

_LEADER_EPOCH = 0
_UNDEFINED = -1

AskedTopic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
TopicAnswer = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
PartitionAnswer = TopicAnswer.EpochEndOffset


class _End(NamedTuple):
    """Where the epoch ends that was asked for, or why that is not known."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int = _UNDEFINED
    offset: int = _UNDEFINED


async def offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Handle OffsetForLeaderEpoch: partitions side by side, so that those of one coordinator share its proof."""

    async def answer(topic: AskedTopic, asked: AskedTopic.OffsetForLeaderPartition) -> PartitionAnswer:
        end = await _end(context, topic.topic, asked)
        return PartitionAnswer(
            error_code=int(end.error), partition=asked.partition, leader_epoch=end.epoch, end_offset=end.offset
        )

    answers = await side_by_side_in_groups(answer, [(topic, topic.partitions) for topic in request.topics])
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            TopicAnswer(topic=topic.topic, partitions=partitions)
            for topic, partitions in zip(request.topics, answers, strict=True)
        ],
    )


async def _end(context: RequestContext, name: str, asked: AskedTopic.OffsetForLeaderPartition) -> _End:
    topics = context.services.topics
    info = topics.by_name(name)
    key = info.key(asked.partition) if info is not None else None
    coordinator = topics.coordinator_of(key) if key is not None else None
    if key is None or coordinator is None:
        return _End(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if asked.current_leader_epoch > _LEADER_EPOCH:
        return _End(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if asked.leader_epoch != _LEADER_EPOCH:
        return _End()
    return await _high_watermark(coordinator, key)


async def _high_watermark(coordinator: DisklessCoordinator, key: PartitionKey) -> _End:
    """As the leader knows it: by the copy of a broker that lags, a consumer would find its log truncated."""
    try:
        listed = await coordinator.list_offsets(key, SpecialTimestamp.LATEST)
    except CoordinatorError:
        return _End(ErrorCode.LEADER_NOT_AVAILABLE)
    if listed.error is not ErrorCode.NONE:
        return _End(listed.error)
    return _End(epoch=_LEADER_EPOCH, offset=listed.offset)

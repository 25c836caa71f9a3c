"""OffsetForLeaderEpoch: every partition has had the epoch 0, and only that."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

_LEADER_EPOCH = 0
_UNDEFINED = -1

AskedTopic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
TopicAnswer = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
PartitionAnswer = TopicAnswer.EpochEndOffset


def offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Handle OffsetForLeaderEpoch."""
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            TopicAnswer(
                topic=topic.topic,
                partitions=[_answer(context, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _answer(context: RequestContext, name: str, asked: AskedTopic.OffsetForLeaderPartition) -> PartitionAnswer:
    topics = context.services.topics
    info = topics.by_name(name)
    key = info.key(asked.partition) if info is not None else None
    shard = topics.replica_of(key) if key is not None else None
    head = shard.head(key) if shard is not None and key is not None else None
    error, epoch, end_offset = ErrorCode.NONE, _UNDEFINED, _UNDEFINED
    if head is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif asked.current_leader_epoch > _LEADER_EPOCH:
        error = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif asked.leader_epoch == _LEADER_EPOCH:
        epoch, end_offset = _LEADER_EPOCH, head.next_offset
    return PartitionAnswer(error_code=int(error), partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)

"""DeleteRecords: partitions begin later from now on."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import DeletedRecords
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from diskless_core.side_by_side import side_by_side_in_groups

AskedTopic = DeleteRecordsRequest.DeleteRecordsTopic
TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = TopicResult.DeleteRecordsPartitionResult


async def delete_records(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Handle DeleteRecords: each partition by itself, side by side."""
    results = await side_by_side_in_groups(
        lambda topic, asked: _delete(context, topic.name, asked),
        [(topic, topic.partitions) for topic in request.topics],
    )
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            TopicResult(name=topic.name, partitions=partitions)
            for topic, partitions in zip(request.topics, results, strict=True)
        ],
    )


async def _delete(context: RequestContext, name: str, asked: AskedTopic.DeleteRecordsPartition) -> PartitionResult:
    topics = context.services.topics
    info = topics.by_name(name)
    key = info.key(asked.partition_index) if info is not None else None
    shard = topics.coordinator_of(key) if key is not None else None
    if key is None or shard is None:
        deleted = DeletedRecords(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        try:
            deleted = await shard.delete_records(key, asked.offset)
        except CoordinatorError:
            deleted = DeletedRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # the one that all admin clients retry
    return PartitionResult(
        partition_index=asked.partition_index,
        low_watermark=deleted.log_start_offset,
        error_code=int(deleted.error),
    )

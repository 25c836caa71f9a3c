"""AlterPartitionReassignments and ListPartitionReassignments: every broker has all partitions."""

from __future__ import annotations

from collections.abc import Collection

from diskless_core.broker.dispatch import RequestContext
from diskless_core.cluster.operations import Refusal, refuse_replicas
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

AnsweredTopic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
AnsweredPartition = AnsweredTopic.ReassignablePartitionResponse


def alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Handle AlterPartitionReassignments: what asks for one broker has happened already."""
    brokers = context.services.registered_brokers()
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=int(ErrorCode.NONE),
        error_message=None,
        responses=[
            AnsweredTopic(
                name=topic.name,
                partitions=[
                    _answered(partition.partition_index, _refusal(context, topic.name, partition, brokers))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _refusal(
    context: RequestContext,
    topic: str,
    asked: AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition,
    brokers: Collection[int],
) -> Refusal | None:
    info = context.services.topics.by_name(topic)
    if info is None:
        return Refusal(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=f"Unable to find a topic named {topic}.")
    if info.key(asked.partition_index) is None:
        message = f"Unable to find partition {topic}:{asked.partition_index}."
        return Refusal(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=message)
    if asked.replicas is None:
        message = "No partition reassignment is in progress."
        return Refusal(code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, message=message)
    return refuse_replicas(asked.replicas, brokers)


def _answered(partition: int, refusal: Refusal | None) -> AnsweredPartition:
    return AnsweredPartition(
        partition_index=partition,
        error_code=int(refusal.code if refusal is not None else ErrorCode.NONE),
        error_message=refusal.message if refusal is not None else None,
    )


def list_partition_reassignments(
    _context: RequestContext, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Handle ListPartitionReassignments: there are no replicas, so none of them moves."""
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=int(ErrorCode.NONE), error_message=None, topics=[]
    )

"""ElectLeaders: this broker leads every partition, and it is the preferred one, so no election is ever needed."""

from __future__ import annotations

from enum import IntEnum

from diskless_core.broker.dispatch import RequestContext
from diskless_core.cluster.topics import Topics
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import ElectLeadersRequest, ElectLeadersResponse

_TYPES_SINCE = 1

Result = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = Result.PartitionResult


class _Election(IntEnum):
    """Kafka's ElectionType."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Handle ElectLeaders. Asked for all topics, it names them without partitions, as in Apache Kafka."""
    topics = context.services.topics
    if context.api_version >= _TYPES_SINCE and request.election_type not in list(_Election):
        return _refused(request)
    if request.topic_partitions is None:
        results = [Result(topic=info.name, partition_result=[]) for info in topics.all()]
    else:
        results = [
            Result(topic=asked.topic, partition_result=[_elected(topics, asked.topic, one) for one in asked.partitions])
            for asked in request.topic_partitions
        ]
    return ElectLeadersResponse(throttle_time_ms=0, error_code=int(ErrorCode.NONE), replica_election_results=results)


def _elected(topics: Topics, topic: str, partition: int) -> PartitionResult:
    info = topics.by_name(topic)
    if info is None:
        return _result(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    if info.key(partition) is None:
        return _result(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{partition}")
    message = "Leader election not needed for topic partition."
    return _result(partition, ErrorCode.ELECTION_NOT_NEEDED, message)


def _refused(request: ElectLeadersRequest) -> ElectLeadersResponse:
    error, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=int(error),
        replica_election_results=[
            Result(topic=asked.topic, partition_result=[_result(one, error, message) for one in asked.partitions])
            for asked in request.topic_partitions or ()
        ],
    )


def _result(partition: int, error: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(partition_id=partition, error_code=int(error), error_message=message)

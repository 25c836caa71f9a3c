"""DescribeQuorum, AddRaftVoter and RemoveRaftVoter: the cluster shard stands for KRaft's log, with one voter."""

from __future__ import annotations

import uuid

from diskless_core.broker.dispatch import RequestContext
from diskless_core.cluster.operations import Refusal
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from diskless_core.shards import CLUSTER_SHARD

_HIGHEST_EPOCH = 2**31 - 1

Topic = DescribeQuorumResponse.TopicData
Partition = Topic.PartitionData
Node = DescribeQuorumResponse.Node


def describe_quorum(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Handle DescribeQuorum of `__cluster_metadata-0`, and of nothing else beside it."""
    asked = [(topic.topic_name, one.partition_index) for topic in request.topics for one in topic.partitions]
    if asked != [(CLUSTER_SHARD.topic, CLUSTER_SHARD.index)]:
        return _unknown(request)
    topic = Topic(topic_name=CLUSTER_SHARD.topic, partitions=[_quorum(context)])
    return DescribeQuorumResponse(
        error_code=int(ErrorCode.NONE), error_message="", topics=[topic], nodes=[_this_node(context)]
    )


def _quorum(context: RequestContext) -> Partition:
    shard = context.services.cluster_shard
    if shard.term is None:
        return _refused(CLUSTER_SHARD.index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    now_ms = context.services.clock.now_ms()
    voter = Partition.ReplicaState(
        replica_id=context.services.config.node_id,
        replica_directory_id=None,
        log_end_offset=shard.next_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return Partition(
        partition_index=CLUSTER_SHARD.index,
        error_code=int(ErrorCode.NONE),
        error_message="",
        leader_id=context.services.config.node_id,
        leader_epoch=min(shard.term, _HIGHEST_EPOCH),
        high_watermark=shard.next_offset,
        current_voters=[voter],
        observers=[],
    )


def _this_node(context: RequestContext) -> Node:
    endpoint = context.services.advertised(context.listener)
    listener = Node.Listener(name=context.listener, host=endpoint.host, port=endpoint.port)
    return Node(node_id=endpoint.node_id, listeners=[listener])


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        error_code=int(ErrorCode.NONE),
        error_message="",
        topics=[
            Topic(
                topic_name=topic.topic_name,
                partitions=[_refused(partition.partition_index, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
        nodes=[],
    )


def _refused(partition: int, error: ErrorCode) -> Partition:
    return Partition(partition_index=partition, error_code=int(error), error_message=None)


_ONE_VOTER = "The voters of this cluster cannot be changed: kraft.version is 0."


def add_raft_voter(context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """Handle AddRaftVoter: refused, as by a Kafka whose voters are configured."""
    refusal = _refused_voter(context, request.cluster_id, request.voter_id, request.voter_directory_id)
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=int(refusal.code), error_message=refusal.message)


def remove_raft_voter(context: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """Handle RemoveRaftVoter: refused, as by a Kafka whose voters are configured."""
    refusal = _refused_voter(context, request.cluster_id, request.voter_id, request.voter_directory_id)
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=int(refusal.code), error_message=refusal.message)


def _refused_voter(
    context: RequestContext, cluster_id: str | None, voter_id: int, directory_id: uuid.UUID | None
) -> Refusal:
    if cluster_id is not None and cluster_id != context.services.cluster_id:
        message = f"This is the cluster {context.services.cluster_id}, not {cluster_id}."
        return Refusal(code=ErrorCode.INCONSISTENT_CLUSTER_ID, message=message)
    if voter_id < 0 or directory_id is None:
        message = "A voter needs a node id, which is not negative, and the id of its folder."
        return Refusal(code=ErrorCode.INVALID_REQUEST, message=message)
    return Refusal(code=ErrorCode.UNSUPPORTED_VERSION, message=_ONE_VOTER)

"""DescribeQuorum, AddRaftVoter and RemoveRaftVoter: the cluster shard stands for KRaft's log, every broker for a voter.

Any broker answers: it asks all others how far their copies are.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping

from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.shard_copies import Copy, ShardCopies
from diskless_core.cluster.operations import Refusal
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from diskless_core.shards import CLUSTER, CLUSTER_SHARD, SHARD_KINDS

_HIGHEST_EPOCH = 2**31 - 1
_UNKNOWN = -1

Topic = DescribeQuorumResponse.TopicData
Partition = Topic.PartitionData
Node = DescribeQuorumResponse.Node


async def describe_quorum(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Handle DescribeQuorum of `__cluster_metadata-0`; or, beside Apache Kafka, of any other shards.

    Topics whose partitions are such shards can be asked for without naming partitions: then all are meant.
    """
    asked = [ShardId(topic.topic_name, one.partition_index) for topic in request.topics for one in topic.partitions]
    of_others = {kind.topic for kind in SHARD_KINDS if kind is not CLUSTER}
    if asked != [CLUSTER_SHARD] and not all(topic.topic_name in of_others for topic in request.topics):
        return _unknown(request)
    found = {one.shard: one for one in await context.services.shard_copies.all()}
    now_ms = context.services.clock.now_ms()
    topics = [
        Topic(topic_name=name, partitions=[_quorum(shard.index, found.get(shard), now_ms) for shard in shards])
        for name, shards in _asked_shards(request, found).items()
    ]
    return DescribeQuorumResponse(
        error_code=int(ErrorCode.NONE), error_message="", topics=topics, nodes=_nodes(context)
    )


def _asked_shards(request: DescribeQuorumRequest, known: Iterable[ShardId]) -> Mapping[str, Collection[ShardId]]:
    """The shards that are asked for, by topic, each once however often it is named: each is much to answer."""
    asked: dict[str, dict[ShardId, None]] = {}
    for topic in request.topics:
        shards = asked.setdefault(topic.topic_name, {})
        shards.update((ShardId(topic.topic_name, one.partition_index), None) for one in topic.partitions)
    whole = {topic.topic_name for topic in request.topics if not topic.partitions}
    return {
        name: sorted(shard for shard in known if shard.topic == name) if name in whole else shards
        for name, shards in asked.items()
    }


def _quorum(index: int, found: ShardCopies | None, now_ms: int) -> Partition:
    if found is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if found.leader is None:
        return _refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return Partition(
        partition_index=index,
        error_code=int(ErrorCode.NONE),
        error_message="",
        leader_id=found.leader,
        leader_epoch=min(found.term, _HIGHEST_EPOCH),
        high_watermark=found.high_watermark,
        current_voters=[_replica(node_id, copy, found, now_ms) for node_id, copy in found.copies.items()],
        observers=[],
    )


def _replica(node_id: int, copy: Copy | None, of: ShardCopies, now_ms: int) -> Partition.ReplicaState:
    """A broker's copy as it is now. When one that does not answer was heard of last is not known."""
    return Partition.ReplicaState(
        replica_id=node_id,
        replica_directory_id=None,
        log_end_offset=copy.next_offset if copy is not None else _UNKNOWN,
        last_fetch_timestamp=now_ms if copy is not None else _UNKNOWN,
        last_caught_up_timestamp=now_ms if of.lag(node_id) == 0 else _UNKNOWN,
    )


def _nodes(context: RequestContext) -> list[Node]:
    return [
        Node(
            node_id=one.endpoint.node_id,
            listeners=[Node.Listener(name=context.listener, host=one.endpoint.host, port=one.endpoint.port)],
        )
        for one in context.services.known_brokers(context.listener, with_fenced=True)
    ]


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

"""A request for every API that is served, such as a client might send it: in any version, about a topic that exists."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest

from diskless_core.protocol import messages
from diskless_core.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from tests.support.admin_requests import (
    CLIENT_ID,
    EXACT,
    SET,
    TOPIC,
    alter_configs_request,
    alter_quotas_request,
    alter_reassignments_request,
    alter_replica_log_dirs_request,
    alter_scram_request,
    create_acls_request,
    create_partitions_request,
    delete_acls_request,
    delete_groups_request,
    describe_acls_request,
    describe_cluster_request,
    describe_configs_request,
    describe_groups_request,
    describe_log_dirs_request,
    describe_producers_request,
    describe_quorum_request,
    describe_quotas_request,
    describe_scram_request,
    elect_leaders_request,
    grown,
    incremental_request,
    list_config_resources_request,
    list_groups_request,
    list_reassignments_request,
    offset_delete_request,
    update_features_request,
)
from tests.support.batches import batch_of
from tests.support.requests import fetch_request, new_topic, produce_request

_FOLDER_ID = uuid.UUID(int=7)


class Place:
    """What the requests are about."""

    def __init__(self, topic: str, topic_id: uuid.UUID, group: str) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.group = group


def _produce(place: Place, version: int) -> Any:
    return produce_request(place.topic, {0: batch_of(b"v%d" % version)}, topic_id=place.topic_id)


def _fetch(place: Place, version: int) -> Any:
    return fetch_request(place.topic, {0: 0}, topic_id=place.topic_id)


def _list_offsets(place: Place, version: int) -> Any:
    asked = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=-1
    )
    topic = ListOffsetsRequest.ListOffsetsTopic(name=place.topic, partitions=[asked])
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic], timeout_ms=1000)


def _metadata(place: Place, version: int) -> Any:
    topic = MetadataRequest.MetadataRequestTopic(name=place.topic, topic_id=None)
    return MetadataRequest(topics=[topic], allow_auto_topic_creation=False)


def _offset_commit(place: Place, version: int) -> Any:
    partition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_leader_epoch=-1, committed_metadata="m"
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(
        name=place.topic, topic_id=place.topic_id, partitions=[partition]
    )
    return OffsetCommitRequest(
        group_id=place.group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[topic],
    )


def _offset_fetch(place: Place, version: int) -> Any:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=place.topic, partition_indexes=[0])
    by_group = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [
        by_group.OffsetFetchRequestTopics(name=place.topic, topic_id=place.topic_id, partition_indexes=[0]),
    ]
    group = by_group(group_id=place.group, member_id=None, member_epoch=-1, topics=topics)
    return OffsetFetchRequest(group_id=place.group, topics=[topic], groups=[group], require_stable=False)


def _find_coordinator(place: Place, version: int) -> Any:
    return FindCoordinatorRequest(key=place.group, key_type=0, coordinator_keys=[place.group])


def _join_group(place: Place, version: int) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    return JoinGroupRequest(
        group_id=place.group,
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[protocol],
        reason=None,
    )


def _sync_group(place: Place, version: int) -> Any:
    return SyncGroupRequest(
        group_id=place.group,
        generation_id=1,
        member_id="nobody",
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )


def _heartbeat(place: Place, version: int) -> Any:
    return HeartbeatRequest(group_id=place.group, generation_id=1, member_id="nobody", group_instance_id=None)


def _consumer_group_heartbeat(place: Place, version: int) -> Any:
    return ConsumerGroupHeartbeatRequest(
        group_id=place.group,
        member_id=f"member-{version}",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[place.topic],
        topic_partitions=[],
    )


def _consumer_group_describe(place: Place, version: int) -> Any:
    return ConsumerGroupDescribeRequest(group_ids=[place.group], include_authorized_operations=True)


def _leave_group(place: Place, version: int) -> Any:
    member = LeaveGroupRequest.MemberIdentity(member_id="nobody", group_instance_id=None, reason=None)
    return LeaveGroupRequest(group_id=place.group, member_id="nobody", members=[member])


def _api_versions(place: Place, version: int) -> Any:
    return ApiVersionsRequest(client_software_name="wire", client_software_version="1")


def _create_topics(place: Place, version: int) -> Any:
    topic = new_topic(f"{place.topic}-created", 1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True)


def _delete_topics(place: Place, version: int) -> Any:
    states = [DeleteTopicsRequest.DeleteTopicState(name=f"{place.topic}-absent", topic_id=None)]
    return DeleteTopicsRequest(topics=states, topic_names=[f"{place.topic}-absent"], timeout_ms=1000)


def _init_producer_id(place: Place, version: int) -> Any:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1)


def _offset_for_leader_epoch(place: Place, version: int) -> Any:
    topic_class = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = topic_class.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic_class(topic=place.topic, partitions=[partition])])


def _describe_topic_partitions(place: Place, version: int) -> Any:
    asked = DescribeTopicPartitionsRequest.TopicRequest(name=place.topic)
    return DescribeTopicPartitionsRequest(topics=[asked], response_partition_limit=10, cursor=None)


def _delete_records(place: Place, version: int) -> Any:
    topic_class = DeleteRecordsRequest.DeleteRecordsTopic
    partition = topic_class.DeleteRecordsPartition(partition_index=0, offset=0)
    return DeleteRecordsRequest(topics=[topic_class(name=place.topic, partitions=[partition])], timeout_ms=1000)


def _add_partitions_to_txn(place: Place, version: int) -> Any:
    request = messages.AddPartitionsToTxnRequest
    transaction = request.AddPartitionsToTxnTransaction
    return request(
        v3_and_below_transactional_id="t",
        v3_and_below_topics=[request.AddPartitionsToTxnTopic(name=place.topic, partitions=[0])],
        transactions=[
            transaction(
                transactional_id="t",
                topics=[transaction.AddPartitionsToTxnTopic(name=place.topic, partitions=[0])],
            )
        ],
    )


def _txn_offset_commit(place: Place, version: int) -> Any:
    topic = messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata=None)
    return messages.TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=place.group,
        producer_id=1,
        producer_epoch=0,
        topics=[topic(name=place.topic, partitions=[partition])],
    )


def _share_state(request: Any, data: str, place: Place) -> Any:
    topic = getattr(request, data)
    partition = topic.PartitionData(partition=0)
    return request(group_id=place.group, topics=[topic(topic_id=place.topic_id, partitions=[partition])])


REQUESTS: dict[int, Callable[[Place, int], Any]] = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: _metadata,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _join_group,
    12: _heartbeat,
    13: _leave_group,
    14: _sync_group,
    15: lambda place, _: describe_groups_request(place.group, operations=True),
    16: lambda place, _: list_groups_request(["Empty"], ["classic"]),
    17: lambda *_: messages.SaslHandshakeRequest(mechanism="PLAIN"),
    18: _api_versions,
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    22: _init_producer_id,
    23: _offset_for_leader_epoch,
    24: _add_partitions_to_txn,
    25: lambda place, _: messages.AddOffsetsToTxnRequest(
        transactional_id="t", producer_id=1, producer_epoch=0, group_id=place.group
    ),
    26: lambda *_: messages.EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True),
    28: _txn_offset_commit,
    29: lambda *_: describe_acls_request(),
    30: lambda place, _: create_acls_request(place.topic),
    31: lambda place, _: delete_acls_request(place.topic),
    32: lambda place, _: describe_configs_request(TOPIC, place.topic),
    33: lambda place, _: alter_configs_request(TOPIC, place.topic, {"retention.ms": "5"}),
    34: lambda place, _: alter_replica_log_dirs_request("/elsewhere", {place.topic: [0]}),
    35: lambda place, _: describe_log_dirs_request({place.topic: [0]}),
    36: lambda *_: messages.SaslAuthenticateRequest(auth_bytes=b"secret"),
    37: lambda place, version: create_partitions_request(grown(place.topic, 2 + version)),
    38: lambda *_: messages.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
    39: lambda *_: messages.RenewDelegationTokenRequest(hmac=b"h", renew_period_ms=-1),
    40: lambda *_: messages.ExpireDelegationTokenRequest(hmac=b"h", expiry_time_period_ms=-1),
    41: lambda *_: messages.DescribeDelegationTokenRequest(owners=None),
    42: lambda place, _: delete_groups_request(place.group),
    43: lambda place, _: elect_leaders_request({place.topic: [0]}),
    44: lambda place, _: incremental_request(TOPIC, place.topic, ("retention.ms", SET, "5")),
    45: lambda place, _: alter_reassignments_request({place.topic: {0: [1]}}),
    46: lambda place, _: list_reassignments_request({place.topic: [0]}),
    47: lambda place, _: offset_delete_request(place.group, {place.topic: [0]}),
    48: lambda place, _: describe_quotas_request((CLIENT_ID, EXACT, place.topic)),
    49: lambda place, _: alter_quotas_request(({CLIENT_ID: place.topic}, {"producer_byte_rate": 1e9})),
    50: lambda place, _: describe_scram_request("somebody"),
    51: lambda *_: alter_scram_request("somebody"),
    55: lambda *_: describe_quorum_request(),
    57: lambda *_: update_features_request(("group.version", 1)),
    60: lambda place, _: describe_cluster_request(operations=True),
    61: lambda place, _: describe_producers_request(place.topic, 0),
    64: lambda *_: messages.UnregisterBrokerRequest(broker_id=77),
    65: lambda *_: messages.DescribeTransactionsRequest(transactional_ids=["t"]),
    66: lambda *_: messages.ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=-1),
    68: _consumer_group_heartbeat,
    69: _consumer_group_describe,
    74: lambda place, _: list_config_resources_request(),
    75: _describe_topic_partitions,
    76: lambda place, _: messages.ShareGroupHeartbeatRequest(group_id=place.group, member_id="m"),
    77: lambda place, _: messages.ShareGroupDescribeRequest(group_ids=[place.group]),
    78: lambda place, _: messages.ShareFetchRequest(group_id=place.group, member_id="m"),
    79: lambda place, _: messages.ShareAcknowledgeRequest(group_id=place.group, member_id="m"),
    80: lambda *_: messages.AddRaftVoterRequest(
        cluster_id=None, voter_id=2, voter_directory_id=_FOLDER_ID, listeners=[]
    ),
    81: lambda *_: messages.RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=_FOLDER_ID),
    83: lambda place, _: _share_state(messages.InitializeShareGroupStateRequest, "InitializeStateData", place),
    84: lambda place, _: _share_state(messages.ReadShareGroupStateRequest, "ReadStateData", place),
    85: lambda place, _: _share_state(messages.WriteShareGroupStateRequest, "WriteStateData", place),
    86: lambda place, _: _share_state(messages.DeleteShareGroupStateRequest, "DeleteStateData", place),
    87: lambda place, _: _share_state(messages.ReadShareGroupStateSummaryRequest, "ReadStateSummaryData", place),
    88: lambda place, _: messages.StreamsGroupHeartbeatRequest(group_id=place.group, member_id="m"),
    89: lambda place, _: messages.StreamsGroupDescribeRequest(group_ids=[place.group]),
    90: lambda place, _: messages.DescribeShareGroupOffsetsRequest(
        groups=[
            messages.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(
                group_id=place.group, topics=None
            )
        ]
    ),
    91: lambda place, _: messages.AlterShareGroupOffsetsRequest(group_id=place.group, topics=[]),
    92: lambda place, _: messages.DeleteShareGroupOffsetsRequest(group_id=place.group, topics=[]),
}
"""By api key; each makes a request for any version."""

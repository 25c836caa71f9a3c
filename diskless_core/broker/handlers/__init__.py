"""The handlers of Kafka's APIs, thin: decode, call, encode. `HANDLERS` is the table of what is served."""

from __future__ import annotations

from collections.abc import Mapping

from diskless_core.broker.dispatch import Handler
from diskless_core.broker.handlers import (
    api_versions,
    client_quotas,
    configs,
    delete_records,
    describe_cluster,
    diskless_coordinator,
    find_coordinator,
    group_administration,
    groups,
    leader_epochs,
    list_offsets,
    log_dirs,
    metadata,
    partitions,
    producer_id,
    scram,
    throttling,
    topics,
)
from diskless_core.protocol.messages import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    ApiVersionsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    DescribeUserScramCredentialsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListConfigResourcesRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    SyncGroupRequest,
)

HANDLERS: dict[int, Handler] = {
    ProduceRequest.API_KEY: throttling.produce,
    FetchRequest.API_KEY: throttling.fetch,
    ListOffsetsRequest.API_KEY: list_offsets.list_offsets,
    MetadataRequest.API_KEY: metadata.metadata,
    OffsetCommitRequest.API_KEY: groups.offset_commit,
    OffsetFetchRequest.API_KEY: groups.offset_fetch,
    FindCoordinatorRequest.API_KEY: find_coordinator.find_coordinator,
    JoinGroupRequest.API_KEY: groups.join_group,
    HeartbeatRequest.API_KEY: groups.heartbeat,
    LeaveGroupRequest.API_KEY: groups.leave_group,
    SyncGroupRequest.API_KEY: groups.sync_group,
    CreateTopicsRequest.API_KEY: topics.create_topics,
    DeleteTopicsRequest.API_KEY: topics.delete_topics,
    DeleteRecordsRequest.API_KEY: delete_records.delete_records,
    InitProducerIdRequest.API_KEY: producer_id.init_producer_id,
    OffsetForLeaderEpochRequest.API_KEY: leader_epochs.offset_for_leader_epoch,
    DescribeGroupsRequest.API_KEY: group_administration.describe_groups,
    ListGroupsRequest.API_KEY: group_administration.list_groups,
    DescribeConfigsRequest.API_KEY: configs.describe_configs,
    AlterConfigsRequest.API_KEY: configs.alter_configs,
    DescribeLogDirsRequest.API_KEY: log_dirs.describe_log_dirs,
    CreatePartitionsRequest.API_KEY: partitions.create_partitions,
    DeleteGroupsRequest.API_KEY: group_administration.delete_groups,
    ConsumerGroupHeartbeatRequest.API_KEY: groups.consumer_group_heartbeat,
    ConsumerGroupDescribeRequest.API_KEY: group_administration.consumer_group_describe,
    IncrementalAlterConfigsRequest.API_KEY: configs.incremental_alter_configs,
    ListPartitionReassignmentsRequest.API_KEY: partitions.list_partition_reassignments,
    OffsetDeleteRequest.API_KEY: group_administration.offset_delete,
    DescribeClientQuotasRequest.API_KEY: client_quotas.describe_client_quotas,
    AlterClientQuotasRequest.API_KEY: client_quotas.alter_client_quotas,
    DescribeUserScramCredentialsRequest.API_KEY: scram.describe_user_scram_credentials,
    DescribeClusterRequest.API_KEY: describe_cluster.describe_cluster,
    DescribeProducersRequest.API_KEY: partitions.describe_producers,
    ListConfigResourcesRequest.API_KEY: configs.list_config_resources,
    DescribeTopicPartitionsRequest.API_KEY: metadata.describe_topic_partitions,
}


def all_handlers() -> Mapping[int, Handler]:
    """The table of client listeners, with ApiVersions, which has to know it."""
    return _with_api_versions(HANDLERS)


def inter_broker_handlers() -> Mapping[int, Handler]:
    """The table of the inter-broker listener, which has all that clients have, and the Diskless coordinator's APIs."""
    return _with_api_versions(HANDLERS | diskless_coordinator.HANDLERS)


def _with_api_versions(handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
    return {**handlers, ApiVersionsRequest.API_KEY: api_versions.handler_for(handlers)}

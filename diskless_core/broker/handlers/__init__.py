"""The handlers of Kafka's APIs, thin: decode, call, encode. `HANDLERS` is the table of what is served."""

from __future__ import annotations

from collections.abc import Mapping

from diskless_core.broker.dispatch import Handler
from diskless_core.broker.handlers import (
    api_versions,
    configs,
    delete_records,
    describe_cluster,
    fetch,
    group_administration,
    groups,
    leader_epochs,
    list_offsets,
    metadata,
    partitions,
    produce,
    producer_id,
    topics,
)
from diskless_core.protocol.messages import (
    AlterConfigsRequest,
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
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
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    SyncGroupRequest,
)

HANDLERS: dict[int, Handler] = {
    ProduceRequest.API_KEY: produce.produce,
    FetchRequest.API_KEY: fetch.fetch,
    ListOffsetsRequest.API_KEY: list_offsets.list_offsets,
    MetadataRequest.API_KEY: metadata.metadata,
    OffsetCommitRequest.API_KEY: groups.offset_commit,
    OffsetFetchRequest.API_KEY: groups.offset_fetch,
    FindCoordinatorRequest.API_KEY: groups.find_coordinator,
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
    CreatePartitionsRequest.API_KEY: partitions.create_partitions,
    DeleteGroupsRequest.API_KEY: group_administration.delete_groups,
    IncrementalAlterConfigsRequest.API_KEY: configs.incremental_alter_configs,
    OffsetDeleteRequest.API_KEY: group_administration.offset_delete,
    DescribeClusterRequest.API_KEY: describe_cluster.describe_cluster,
    DescribeProducersRequest.API_KEY: partitions.describe_producers,
    ListConfigResourcesRequest.API_KEY: configs.list_config_resources,
    DescribeTopicPartitionsRequest.API_KEY: metadata.describe_topic_partitions,
}


def all_handlers() -> Mapping[int, Handler]:
    """The table, with ApiVersions, which has to know it."""
    return HANDLERS | {ApiVersionsRequest.API_KEY: api_versions.handler_for(HANDLERS)}

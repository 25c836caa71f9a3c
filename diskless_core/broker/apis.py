"""The APIs that a broker serves, each declared here and nowhere else.

An entry names the request's class, the newest version served, and a handler that takes such a request, which type
checkers verify. Dispatch, decoding, ApiVersions and docs/protocol_support.md follow from the entries. Their versions
are the newest stable ones of Apache Kafka 4.2, whatever newer ones the schemas have.
"""

from __future__ import annotations

from diskless_core.broker.authorization import AclOperation
from diskless_core.broker.dispatch import Api, Listeners, by_key
from diskless_core.broker.handlers import (
    api_versions,
    client_quotas,
    configs,
    delete_records,
    describe_cluster,
    diskless_coordinator,
    fetch,
    find_coordinator,
    group_administration,
    groups,
    leader_epochs,
    list_offsets,
    log_dirs,
    metadata,
    partitions,
    produce,
    producer_id,
    scram,
    topics,
)
from diskless_core.broker.handlers.throttling import by_fetch_quota, by_produce_quota
from diskless_core.diskless import service as coordinator_service
from diskless_core.protocol import messages

_LOWEST_FOR_LIBRDKAFKA = 0
"""librdkafka takes a higher minimum for a broker without compression codecs (KAFKA-18659); older ones are refused."""

APIS = (
    Api(messages.ProduceRequest, 13, by_produce_quota(produce.produce), advertised_oldest=_LOWEST_FOR_LIBRDKAFKA),
    Api(messages.FetchRequest, 18, by_fetch_quota(fetch.fetch)),
    Api(messages.ListOffsetsRequest, 11, list_offsets.list_offsets),
    Api(messages.MetadataRequest, 13, metadata.metadata),
    Api(messages.OffsetCommitRequest, 10, groups.offset_commit),
    Api(messages.OffsetFetchRequest, 10, groups.offset_fetch),
    Api(messages.FindCoordinatorRequest, 6, find_coordinator.find_coordinator),
    Api(messages.JoinGroupRequest, 9, groups.join_group),
    Api(messages.HeartbeatRequest, 4, groups.heartbeat),
    Api(messages.LeaveGroupRequest, 5, groups.leave_group),
    Api(messages.SyncGroupRequest, 5, groups.sync_group),
    Api(messages.DescribeGroupsRequest, 6, group_administration.describe_groups),
    Api(messages.ListGroupsRequest, 5, group_administration.list_groups),
    Api(messages.ApiVersionsRequest, 4, api_versions.api_versions),
    Api(messages.CreateTopicsRequest, 7, topics.create_topics),
    Api(messages.DeleteTopicsRequest, 6, topics.delete_topics),
    Api(messages.DeleteRecordsRequest, 2, delete_records.delete_records),
    Api(messages.InitProducerIdRequest, 5, producer_id.init_producer_id),
    Api(messages.OffsetForLeaderEpochRequest, 4, leader_epochs.offset_for_leader_epoch),
    Api(messages.DescribeConfigsRequest, 4, configs.describe_configs),
    Api(messages.AlterConfigsRequest, 2, configs.alter_configs),
    Api(messages.DescribeLogDirsRequest, 5, log_dirs.describe_log_dirs),
    Api(messages.CreatePartitionsRequest, 3, partitions.create_partitions),
    Api(messages.DeleteGroupsRequest, 2, group_administration.delete_groups),
    Api(messages.IncrementalAlterConfigsRequest, 1, configs.incremental_alter_configs),
    Api(messages.ListPartitionReassignmentsRequest, 0, partitions.list_partition_reassignments),
    Api(messages.OffsetDeleteRequest, 0, group_administration.offset_delete),
    Api(messages.DescribeClientQuotasRequest, 1, client_quotas.describe_client_quotas),
    Api(messages.AlterClientQuotasRequest, 1, client_quotas.alter_client_quotas),
    Api(messages.DescribeUserScramCredentialsRequest, 0, scram.describe_user_scram_credentials),
    Api(messages.DescribeClusterRequest, 2, describe_cluster.describe_cluster),
    Api(messages.DescribeProducersRequest, 0, partitions.describe_producers),
    Api(messages.ConsumerGroupHeartbeatRequest, 1, groups.consumer_group_heartbeat),
    Api(messages.ConsumerGroupDescribeRequest, 1, group_administration.consumer_group_describe),
    Api(messages.ListConfigResourcesRequest, 1, configs.list_config_resources),
    Api(messages.DescribeTopicPartitionsRequest, 0, metadata.describe_topic_partitions),
    # Whatever `CoordinatorService` answers (KIP-1164, "Diskless coordinator API").
    *(
        Api(
            request,
            0,
            diskless_coordinator.answer,
            listeners=Listeners.INTER_BROKER,
            needs=AclOperation.CLUSTER_ACTION,
        )
        for request in coordinator_service.DISKLESS_REQUESTS
    ),
)

CLIENT_APIS = by_key(api for api in APIS if api.listeners is Listeners.ALL)
"""What the listeners of clients serve."""

INTER_BROKER_APIS = by_key(APIS)
"""What the inter-broker listener serves: all that clients have, and the Diskless coordinator's."""

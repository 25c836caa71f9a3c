"""The APIs that a broker serves, each declared here and nowhere else.

An entry names the request's class, the newest version served, and a handler that takes such a request, which type
checkers verify. Dispatch, decoding, ApiVersions and docs/protocol_support.md follow from the entries. Their versions
are the newest stable ones of Apache Kafka 4.2, whatever newer ones the schemas have, and unstable ones of KIPs where
an operator has enabled these.
"""

from __future__ import annotations

from diskless_core.broker.authorization import AclOperation
from diskless_core.broker.dispatch import Api, Listeners, by_key
from diskless_core.broker.handlers import (
    acls,
    api_versions,
    broker_registration,
    by_controller,
    client_quotas,
    configs,
    delegation_tokens,
    delete_records,
    describe_cluster,
    describe_shards,
    diskless_coordinator,
    elections,
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
    quorum,
    read_object,
    reassignments,
    sasl,
    scram,
    share_groups,
    share_state,
    streams_groups,
    topics,
    transactions,
    update_features,
)
from diskless_core.broker.handlers.by_controller import ByController
from diskless_core.broker.handlers.throttling import by_fetch_quota, by_produce_quota
from diskless_core.diskless import service as coordinator_service
from diskless_core.protocol import messages

_LOWEST_FOR_LIBRDKAFKA = 0
"""librdkafka takes a higher minimum for a broker without compression codecs (KAFKA-18659); older ones are refused."""

APIS = (
    Api(messages.ProduceRequest, 13, by_produce_quota(produce.produce), advertised_oldest=_LOWEST_FOR_LIBRDKAFKA),
    Api(messages.FetchRequest, 18, by_fetch_quota(fetch.fetch)),
    Api(messages.ListOffsetsRequest, 11, list_offsets.list_offsets),
    Api(messages.MetadataRequest, 13, metadata.metadata, unstable_newest=14),
    Api(messages.OffsetCommitRequest, 10, groups.offset_commit),
    Api(messages.OffsetFetchRequest, 10, groups.offset_fetch),
    Api(messages.FindCoordinatorRequest, 6, find_coordinator.find_coordinator),
    Api(messages.JoinGroupRequest, 9, groups.join_group),
    Api(messages.HeartbeatRequest, 4, groups.heartbeat),
    Api(messages.LeaveGroupRequest, 5, groups.leave_group),
    Api(messages.SyncGroupRequest, 5, groups.sync_group),
    Api(messages.DescribeGroupsRequest, 6, group_administration.describe_groups),
    Api(messages.ListGroupsRequest, 5, group_administration.list_groups),
    Api(messages.SaslHandshakeRequest, 1, sasl.sasl_handshake),
    Api(messages.ApiVersionsRequest, 4, api_versions.api_versions),
    Api(messages.CreateTopicsRequest, 7, ByController(topics.create_topics)),
    Api(messages.DeleteTopicsRequest, 6, ByController(topics.delete_topics)),
    Api(messages.DeleteRecordsRequest, 2, delete_records.delete_records),
    Api(messages.InitProducerIdRequest, 5, producer_id.init_producer_id),
    Api(messages.OffsetForLeaderEpochRequest, 4, leader_epochs.offset_for_leader_epoch),
    Api(messages.AddPartitionsToTxnRequest, 5, transactions.add_partitions_to_txn),
    Api(messages.AddOffsetsToTxnRequest, 4, transactions.add_offsets_to_txn),
    Api(messages.EndTxnRequest, 5, transactions.end_txn),
    Api(messages.TxnOffsetCommitRequest, 5, transactions.txn_offset_commit),
    Api(messages.DescribeAclsRequest, 3, acls.describe_acls),
    Api(messages.CreateAclsRequest, 3, acls.create_acls),
    Api(messages.DeleteAclsRequest, 3, acls.delete_acls),
    Api(messages.DescribeConfigsRequest, 4, configs.describe_configs),
    Api(messages.AlterConfigsRequest, 2, ByController(configs.alter_configs)),
    Api(messages.AlterReplicaLogDirsRequest, 2, log_dirs.alter_replica_log_dirs),
    Api(messages.DescribeLogDirsRequest, 5, log_dirs.describe_log_dirs),
    Api(messages.SaslAuthenticateRequest, 2, sasl.sasl_authenticate),
    Api(messages.CreatePartitionsRequest, 3, ByController(partitions.create_partitions)),
    Api(messages.CreateDelegationTokenRequest, 3, delegation_tokens.create_delegation_token),
    Api(messages.RenewDelegationTokenRequest, 2, delegation_tokens.renew_delegation_token),
    Api(messages.ExpireDelegationTokenRequest, 2, delegation_tokens.expire_delegation_token),
    Api(messages.DescribeDelegationTokenRequest, 3, delegation_tokens.describe_delegation_token),
    Api(messages.DeleteGroupsRequest, 2, group_administration.delete_groups),
    Api(messages.ElectLeadersRequest, 2, elections.elect_leaders),
    Api(messages.IncrementalAlterConfigsRequest, 1, ByController(configs.incremental_alter_configs)),
    Api(messages.AlterPartitionReassignmentsRequest, 1, reassignments.alter_partition_reassignments),
    Api(messages.ListPartitionReassignmentsRequest, 0, reassignments.list_partition_reassignments),
    Api(messages.OffsetDeleteRequest, 0, group_administration.offset_delete),
    Api(messages.DescribeClientQuotasRequest, 1, client_quotas.describe_client_quotas),
    Api(messages.AlterClientQuotasRequest, 1, ByController(client_quotas.alter_client_quotas)),
    Api(messages.DescribeUserScramCredentialsRequest, 0, scram.describe_user_scram_credentials),
    Api(messages.AlterUserScramCredentialsRequest, 0, scram.alter_user_scram_credentials),
    Api(messages.DescribeQuorumRequest, 2, quorum.describe_quorum),
    Api(messages.UpdateFeaturesRequest, 2, ByController(update_features.update_features)),
    Api(messages.DescribeClusterRequest, 2, describe_cluster.describe_cluster),
    Api(messages.DescribeProducersRequest, 0, partitions.describe_producers),
    Api(messages.UnregisterBrokerRequest, 0, ByController(broker_registration.unregister_broker)),
    Api(messages.DescribeTransactionsRequest, 0, transactions.describe_transactions),
    Api(messages.ListTransactionsRequest, 2, transactions.list_transactions),
    Api(messages.ConsumerGroupHeartbeatRequest, 1, groups.consumer_group_heartbeat),
    Api(messages.ConsumerGroupDescribeRequest, 1, group_administration.consumer_group_describe),
    Api(messages.ListConfigResourcesRequest, 1, configs.list_config_resources),
    Api(messages.DescribeTopicPartitionsRequest, 0, metadata.describe_topic_partitions, unstable_newest=1),
    Api(messages.ShareGroupHeartbeatRequest, 1, share_groups.share_group_heartbeat),
    Api(messages.ShareGroupDescribeRequest, 1, share_groups.share_group_describe),
    Api(messages.ShareFetchRequest, 2, share_groups.share_fetch),
    Api(messages.ShareAcknowledgeRequest, 2, share_groups.share_acknowledge),
    Api(messages.AddRaftVoterRequest, 1, quorum.add_raft_voter),
    Api(messages.RemoveRaftVoterRequest, 0, quorum.remove_raft_voter),
    Api(messages.InitializeShareGroupStateRequest, 0, share_state.initialize_share_group_state),
    Api(messages.ReadShareGroupStateRequest, 0, share_state.read_share_group_state),
    Api(messages.WriteShareGroupStateRequest, 1, share_state.write_share_group_state),
    Api(messages.DeleteShareGroupStateRequest, 0, share_state.delete_share_group_state),
    Api(messages.ReadShareGroupStateSummaryRequest, 1, share_state.read_share_group_state_summary),
    Api(messages.StreamsGroupHeartbeatRequest, 0, streams_groups.streams_group_heartbeat),
    Api(messages.StreamsGroupDescribeRequest, 0, streams_groups.streams_group_describe),
    Api(messages.DescribeShareGroupOffsetsRequest, 1, share_groups.describe_share_group_offsets),
    Api(messages.AlterShareGroupOffsetsRequest, 0, share_groups.alter_share_group_offsets),
    Api(messages.DeleteShareGroupOffsetsRequest, 0, share_groups.delete_share_group_offsets),
    Api(
        messages.BrokerRegistrationRequest,
        0,
        broker_registration.broker_registration,
        listeners=Listeners.INTER_BROKER,
        needs=AclOperation.CLUSTER_ACTION,
    ),
    Api(
        messages.BrokerHeartbeatRequest,
        0,
        broker_registration.broker_heartbeat,
        listeners=Listeners.INTER_BROKER,
        needs=AclOperation.CLUSTER_ACTION,
    ),
    Api(
        messages.AllocateProducerIdsRequest,
        0,
        broker_registration.allocate_producer_ids,
        listeners=Listeners.INTER_BROKER,
        needs=AclOperation.CLUSTER_ACTION,
    ),
    Api(
        messages.DisklessReadObjectRequest,
        0,
        read_object.read_object,
        listeners=Listeners.INTER_BROKER,
        needs=AclOperation.CLUSTER_ACTION,
    ),
    Api(
        messages.DisklessAllocateNodeIdRequest,
        0,
        broker_registration.allocate_node_id,
        listeners=Listeners.INTER_BROKER,
        needs=AclOperation.CLUSTER_ACTION,
    ),
    Api(
        messages.DisklessIdentifyBrokerRequest,
        0,
        broker_registration.identify_broker,
        listeners=Listeners.INTER_BROKER,
        needs=AclOperation.CLUSTER_ACTION,
    ),
    Api(
        messages.EnvelopeRequest,
        0,
        by_controller.envelope,
        listeners=Listeners.INTER_BROKER,
        needs=AclOperation.CLUSTER_ACTION,
    ),
    Api(
        messages.DisklessDescribeShardsRequest,
        0,
        describe_shards.describe_shards,
        listeners=Listeners.INTER_BROKER,
        needs=AclOperation.CLUSTER_ACTION,
    ),
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

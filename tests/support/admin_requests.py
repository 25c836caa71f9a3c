"""Administrators' requests that tests send over a `WireClient`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    CreatePartitionsRequest,
    DeleteGroupsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeUserScramCredentialsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    ListGroupsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.consumer.group import OffsetDeleteRequest

from diskless_core.protocol import messages
from tests.support.wire import WireClient

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
EXACT, DEFAULT, SPECIFIED = range(3)
USER, CLIENT_ID = "user", "client-id"

_Grown = CreatePartitionsRequest.CreatePartitionsTopic


def grown(topic: str, count: int, assignments: Sequence[Sequence[int]] | None = None) -> Any:
    """A topic for CreatePartitions."""
    wanted = None
    if assignments is not None:
        wanted = [_Grown.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments]
    return _Grown(name=topic, count=count, assignments=wanted)


def create_partitions_request(*topics: Any, validate_only: bool = False) -> Any:
    return CreatePartitionsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


def create_partitions(
    wire: WireClient, *topics: Any, validate_only: bool = False, version: int = 3
) -> list[tuple[int, str | None]]:
    """Error code and message for each topic."""
    response = wire.call(create_partitions_request(*topics, validate_only=validate_only), version)
    return [(result.error_code, result.error_message) for result in response.results]


def describe_cluster_request(*, operations: bool = False, endpoint_type: int = 1) -> Any:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=operations, endpoint_type=endpoint_type, include_fenced_brokers=False
    )


def describe_configs_request(
    resource_type: int,
    name: str,
    keys: Sequence[str] | None = None,
    *,
    synonyms: bool = True,
    documentation: bool = True,
) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=list(keys) if keys is not None else None
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms, include_documentation=documentation)


def describe_configs(
    wire: WireClient, resource_type: int, name: str, keys: Sequence[str] | None = None, version: int = 4
) -> dict[str, Any]:
    """All settings of a resource by name."""
    [result] = wire.call(describe_configs_request(resource_type, name, keys), version).results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def alter_configs_request(
    resource_type: int, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
) -> Any:
    resource_class = AlterConfigsRequest.AlterConfigsResource
    entries = [resource_class.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = resource_class(resource_type=resource_type, resource_name=name, configs=entries)
    return AlterConfigsRequest(resources=[resource], validate_only=validate_only)


def incremental_request(
    resource_type: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Any:
    resource_class = IncrementalAlterConfigsRequest.AlterConfigsResource
    entries = [
        resource_class.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = resource_class(resource_type=resource_type, resource_name=name, configs=entries)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def alter(
    wire: WireClient,
    resource_type: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
    version: int = 1,
) -> tuple[int, str | None]:
    """IncrementalAlterConfigs of one resource: error code and message."""
    request = incremental_request(resource_type, name, *changes, validate_only=validate_only)
    [answer] = wire.call(request, version).responses
    return answer.error_code, answer.error_message


def list_config_resources_request(*types: int) -> Any:
    return ListConfigResourcesRequest(resource_types=list(types))


def describe_producers_request(topic: str, *partitions: int) -> Any:
    asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(partitions))
    return DescribeProducersRequest(topics=[asked])


def list_groups_request(states: Sequence[str] = (), types: Sequence[str] = ()) -> Any:
    return ListGroupsRequest(states_filter=list(states), types_filter=list(types))


def describe_groups_request(*groups: str, operations: bool = False) -> Any:
    return DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)


def delete_groups_request(*groups: str) -> Any:
    return DeleteGroupsRequest(groups_names=list(groups))


def offset_delete_request(group: str, partitions: Mapping[str, Sequence[int]]) -> Any:
    topic_class = OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics = [
        topic_class(
            name=topic,
            partitions=[topic_class.OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
        )
        for topic, indexes in partitions.items()
    ]
    return OffsetDeleteRequest(group_id=group, topics=topics)


def describe_log_dirs_request(partitions: Mapping[str, Sequence[int]] | None = None) -> Any:
    """DescribeLogDirs of some partitions; None asks for all."""
    topic_class = DescribeLogDirsRequest.DescribableLogDirTopic
    topics = None
    if partitions is not None:
        topics = [topic_class(topic=topic, partitions=list(indexes)) for topic, indexes in partitions.items()]
    return DescribeLogDirsRequest(topics=topics)


def describe_quotas_request(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
    """DescribeClientQuotas with a filter of (entity type, match type, match)."""
    component_class = DescribeClientQuotasRequest.ComponentData
    return DescribeClientQuotasRequest(
        components=[
            component_class(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )


def describe_scram_request(*users: str) -> Any:
    """DescribeUserScramCredentials of some users; without one, of all."""
    names = [DescribeUserScramCredentialsRequest.UserName(name=user) for user in users]
    return DescribeUserScramCredentialsRequest(users=names or None)


def alter_scram_request(*users: str) -> Any:
    """AlterUserScramCredentials that gives each user the same password, and takes it from them first."""
    request = messages.AlterUserScramCredentialsRequest
    return request(
        deletions=[request.ScramCredentialDeletion(name=user, mechanism=1) for user in users],
        upsertions=[
            request.ScramCredentialUpsertion(
                name=user, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
            )
            for user in users
        ],
    )


_ANY_ACL = {"operation": 1, "permission_type": 1}


def describe_acls_request() -> Any:
    """DescribeAcls of all."""
    return messages.DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        **_ANY_ACL,
    )


def create_acls_request(*topics: str) -> Any:
    """CreateAcls that lets somebody read each topic."""
    creation = messages.CreateAclsRequest.AclCreation
    return messages.CreateAclsRequest(
        creations=[
            creation(
                resource_type=TOPIC,
                resource_name=topic,
                resource_pattern_type=3,
                principal="User:somebody",
                host="*",
                operation=3,
                permission_type=3,
            )
            for topic in topics
        ]
    )


def delete_acls_request(*topics: str) -> Any:
    """DeleteAcls of all that each topic has."""
    filter_class = messages.DeleteAclsRequest.DeleteAclsFilter
    return messages.DeleteAclsRequest(
        filters=[
            filter_class(
                resource_type_filter=TOPIC,
                resource_name_filter=topic,
                pattern_type_filter=3,
                principal_filter=None,
                host_filter=None,
                **_ANY_ACL,
            )
            for topic in topics
        ]
    )


PREFERRED, UNCLEAN = 0, 1


def elect_leaders_request(partitions: Mapping[str, Sequence[int]] | None, election_type: int = PREFERRED) -> Any:
    """ElectLeaders of partitions by topic; None for all."""
    asked = None
    if partitions is not None:
        asked = [
            messages.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=list(indexes))
            for topic, indexes in partitions.items()
        ]
    return messages.ElectLeadersRequest(election_type=election_type, topic_partitions=asked, timeout_ms=10_000)


def alter_reassignments_request(replicas: Mapping[str, Mapping[int, Sequence[int] | None]]) -> Any:
    """AlterPartitionReassignments to replicas by topic and partition; None cancels."""
    topic_class = messages.AlterPartitionReassignmentsRequest.ReassignableTopic
    return messages.AlterPartitionReassignmentsRequest(
        timeout_ms=10_000,
        topics=[
            topic_class(
                name=topic,
                partitions=[
                    topic_class.ReassignablePartition(partition_index=index, replicas=wanted)
                    for index, wanted in partitions.items()
                ],
            )
            for topic, partitions in replicas.items()
        ],
    )


def alter_replica_log_dirs_request(path: str, partitions: Mapping[str, Sequence[int]]) -> Any:
    """AlterReplicaLogDirs of partitions by topic to one folder."""
    folder = messages.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topics = [
        folder.AlterReplicaLogDirTopic(name=topic, partitions=list(indexes)) for topic, indexes in partitions.items()
    ]
    return messages.AlterReplicaLogDirsRequest(dirs=[folder(path=path, topics=topics)])


def describe_quorum_request(*partitions: tuple[str, int]) -> Any:
    """DescribeQuorum of partitions, by default of the metadata's."""
    topic_class = messages.DescribeQuorumRequest.TopicData
    return messages.DescribeQuorumRequest(
        topics=[
            topic_class(topic_name=topic, partitions=[topic_class.PartitionData(partition_index=index)])
            for topic, index in partitions or [("__cluster_metadata", 0)]
        ]
    )


def update_features_request(*levels: tuple[str, int], upgrade_type: int = 1) -> Any:
    """UpdateFeatures to levels by feature."""
    update = messages.UpdateFeaturesRequest.FeatureUpdateKey
    return messages.UpdateFeaturesRequest(
        timeout_ms=10_000,
        feature_updates=[
            update(feature=feature, max_version_level=level, allow_downgrade=False, upgrade_type=upgrade_type)
            for feature, level in levels
        ],
        validate_only=False,
    )


def list_reassignments_request(partitions: Mapping[str, Sequence[int]] | None = None) -> Any:
    """ListPartitionReassignments of partitions by topic; by default of all."""
    named = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    asked = [named(name=topic, partition_indexes=list(indexes)) for topic, indexes in (partitions or {}).items()]
    return ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=asked if partitions is not None else None)


Entity = Mapping[str, str | None]


def alter_quotas_request(*alterations: tuple[Entity, Mapping[str, float | None]], validate_only: bool = False) -> Any:
    """AlterClientQuotas of entities, each with new values by key; None removes one."""
    entry_class = AlterClientQuotasRequest.EntryData
    entries = [
        entry_class(
            entity=[entry_class.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[entry_class.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
        )
        for entity, ops in alterations
    ]
    return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)


def alter_quotas(wire: WireClient, entity: Entity, **quotas: float | None) -> tuple[int, str | None]:
    """AlterClientQuotas of one entity: error code and message."""
    [answer] = wire.call(alter_quotas_request((entity, quotas)), 1).entries
    return answer.error_code, answer.error_message


def describe_quotas(
    wire: WireClient, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[frozenset[tuple[str, str | None]], dict[str, float]]:
    """Quotas by the parts of their entities."""
    response = wire.call(describe_quotas_request(*components, strict=strict), 1)
    assert response.error_code == 0, response.error_message
    return {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            one.key: one.value for one in entry.values
        }
        for entry in response.entries
    }

"""Which versions of which API are spoken, and which are advertised in ApiVersions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from diskless_core.protocol.messages import (
    REQUESTS,
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    ApiVersionsRequest,
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

_NEWEST = {
    request.API_KEY: version
    for request, version in (
        (ProduceRequest, 13),
        (FetchRequest, 18),
        (ListOffsetsRequest, 11),
        (MetadataRequest, 13),
        (OffsetCommitRequest, 10),
        (OffsetFetchRequest, 10),
        (FindCoordinatorRequest, 6),
        (JoinGroupRequest, 9),
        (HeartbeatRequest, 4),
        (LeaveGroupRequest, 5),
        (SyncGroupRequest, 5),
        (ApiVersionsRequest, 4),
        (CreateTopicsRequest, 7),
        (DeleteTopicsRequest, 6),
        (DeleteRecordsRequest, 2),
        (InitProducerIdRequest, 5),
        (OffsetForLeaderEpochRequest, 4),
        (DescribeGroupsRequest, 6),
        (ListGroupsRequest, 5),
        (DescribeConfigsRequest, 4),
        (AlterConfigsRequest, 2),
        (DescribeLogDirsRequest, 5),
        (CreatePartitionsRequest, 3),
        (DeleteGroupsRequest, 2),
        (IncrementalAlterConfigsRequest, 1),
        (ListPartitionReassignmentsRequest, 0),
        (OffsetDeleteRequest, 0),
        (DescribeClientQuotasRequest, 1),
        (AlterClientQuotasRequest, 1),
        (DescribeUserScramCredentialsRequest, 0),
        (DescribeClusterRequest, 2),
        (DescribeProducersRequest, 0),
        (ListConfigResourcesRequest, 1),
        (DescribeTopicPartitionsRequest, 0),
    )
}
"""Newest stable versions of Apache Kafka 4.2, whatever newer ones the schemas have."""

_ADVERTISED_OLDEST = {ProduceRequest.API_KEY: 0}
"""librdkafka takes a higher minimum for a broker without compression codecs (KAFKA-18659); older ones are refused."""


class ApiVersionRange(NamedTuple):
    """Versions of an API, both ends inclusive."""

    api_key: int
    min_version: int
    max_version: int


def advertised(served: Iterable[int]) -> list[ApiVersionRange]:
    """What ApiVersions says of the api keys that a listener serves, by ascending key.

    Raises:
        KeyError: there are no messages for an api key.
    """
    return [_advertised(api_key) for api_key in sorted(served)]


def _advertised(api_key: int) -> ApiVersionRange:
    supported = supported_versions(api_key)
    return supported._replace(min_version=_ADVERTISED_OLDEST.get(api_key, supported.min_version))


def supported_versions(api_key: int) -> ApiVersionRange:
    """The versions of an API that requests may use.

    Raises:
        KeyError: there are no messages for the api key.
    """
    oldest, newest = REQUESTS[api_key].request.valid_versions
    return ApiVersionRange(api_key, oldest, min(newest, _NEWEST.get(api_key, newest)))


def is_supported(api_key: int, version: int) -> bool:
    """Whether a request of this api key and version can be decoded and answered."""
    if api_key not in REQUESTS:
        return False
    _, oldest, newest = supported_versions(api_key)
    return oldest <= version <= newest

"""All messages and records that Diskless speaks, and which request answers to which api key.

Apache Kafka's own come from kafka-python. Those of KIP-1164, KRaft's and the group coordinator's records and our
extensions are JSON schemas in this folder. A `uuid` field that holds the zero id decodes to None.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsRequest,
    AlterConfigsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.consumer import FetchResponse as _StockFetchResponse
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse, ProduceResponse

from diskless_core.protocol.codec import ApiMessage, CompiledRecord, Piece, SpliceBuffer, patch_records
from diskless_core.protocol.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from diskless_core.protocol.messages.diskless import (
    DisklessCommitFileRequest,
    DisklessCommitFileResponse,
    DisklessCreatePartitionsRequest,
    DisklessCreatePartitionsResponse,
    DisklessDeleteRecordsRequest,
    DisklessDeleteRecordsResponse,
    DisklessDeleteTopicsRequest,
    DisklessDeleteTopicsResponse,
    DisklessDescribeFilesRequest,
    DisklessDescribeFilesResponse,
    DisklessFindBatchesRequest,
    DisklessFindBatchesResponse,
    DisklessHandOverFilesRequest,
    DisklessHandOverFilesResponse,
    DisklessListOffsetsRequest,
    DisklessListOffsetsResponse,
    DisklessRaiseHorizonRequest,
    DisklessRaiseHorizonResponse,
)
from diskless_core.protocol.messages.records import (
    METADATA_RECORDS,
    ClientQuotaRecord,
    ClusterNamedRecord,
    ConfigRecord,
    CoordinatorClaimRecord,
    CoordinatorEntryRecord,
    CoordinatorNoOpRecord,
    CoordinatorSnapshotRecord,
    DisklessFileCommittedRecord,
    DisklessFileDeletedRecord,
    DisklessFileForgottenRecord,
    DisklessFileHandedOverRecord,
    DisklessFileReceivedRecord,
    DisklessHorizonRaisedRecord,
    DisklessPartitionAdoptedRecord,
    DisklessPartitionCreatedRecord,
    DisklessRecordsDeletedRecord,
    DisklessRecordsTieredRecord,
    DisklessRemoteLogMetadataRecord,
    DisklessTopicDeletedRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

__all__ = [
    "DISKLESS_APIS",
    "KAFKA_APIS",
    "METADATA_RECORDS",
    "REQUESTS",
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "Api",
    "ApiMessage",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ClientQuotaRecord",
    "ClusterNamedRecord",
    "CompiledRecord",
    "ConfigRecord",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "CoordinatorClaimRecord",
    "CoordinatorEntryRecord",
    "CoordinatorNoOpRecord",
    "CoordinatorSnapshotRecord",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "DisklessCommitFileRequest",
    "DisklessCommitFileResponse",
    "DisklessCreatePartitionsRequest",
    "DisklessCreatePartitionsResponse",
    "DisklessDeleteRecordsRequest",
    "DisklessDeleteRecordsResponse",
    "DisklessDeleteTopicsRequest",
    "DisklessDeleteTopicsResponse",
    "DisklessDescribeFilesRequest",
    "DisklessDescribeFilesResponse",
    "DisklessFileCommittedRecord",
    "DisklessFileDeletedRecord",
    "DisklessFileForgottenRecord",
    "DisklessFileHandedOverRecord",
    "DisklessFileReceivedRecord",
    "DisklessFindBatchesRequest",
    "DisklessFindBatchesResponse",
    "DisklessHandOverFilesRequest",
    "DisklessHandOverFilesResponse",
    "DisklessHorizonRaisedRecord",
    "DisklessListOffsetsRequest",
    "DisklessListOffsetsResponse",
    "DisklessPartitionAdoptedRecord",
    "DisklessPartitionCreatedRecord",
    "DisklessRaiseHorizonRequest",
    "DisklessRaiseHorizonResponse",
    "DisklessRecordsDeletedRecord",
    "DisklessRecordsTieredRecord",
    "DisklessRemoteLogMetadataRecord",
    "DisklessTopicDeletedRecord",
    "FetchRequest",
    "FetchResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListConfigResourcesRequest",
    "ListConfigResourcesResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "OffsetCommitKey",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetCommitValue",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "PartitionRecord",
    "ProduceRequest",
    "ProduceResponse",
    "ProducerIdsRecord",
    "RemoveTopicRecord",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "TopicRecord",
]


class ProduceRequest(ApiMessage):
    """Produce, whose records decode to memoryviews of the frame."""

    @classmethod
    def json_patch(cls, json: dict[str, Any]) -> dict[str, Any]:
        return patch_records(json)


class FetchResponse(ApiMessage):
    """Fetch's answer, whose records may be None, a buffer, or a list of buffers that follow one another."""

    @classmethod
    def json_patch(cls, json: dict[str, Any]) -> dict[str, Any]:
        return patch_records(json)

    def encode_spliced(self, version: int) -> list[Piece]:
        """The encoded body in pieces; the buffers given as records are among them as they are."""
        flexible = self.flexible_version_q(version)
        out = SpliceBuffer()
        self._struct.compiled_encode_into(version, compact=flexible, tagged=flexible)(self, out)
        return out.pieces()


# Defining a response registers it for kafka-python's clients in this process: theirs stays the stock one.
ResponseClassRegistry.register_response_class(_StockFetchResponse)


class Api(NamedTuple):
    """Request and response of one api key. Each class serves all versions."""

    request: type[ApiMessage]
    response: type[ApiMessage]


def _by_key(*apis: Api) -> dict[int, Api]:
    return {api.request.API_KEY: api for api in apis}


KAFKA_APIS = _by_key(
    Api(ProduceRequest, ProduceResponse),
    Api(FetchRequest, FetchResponse),
    Api(ListOffsetsRequest, ListOffsetsResponse),
    Api(MetadataRequest, MetadataResponse),
    Api(OffsetCommitRequest, OffsetCommitResponse),
    Api(OffsetFetchRequest, OffsetFetchResponse),
    Api(FindCoordinatorRequest, FindCoordinatorResponse),
    Api(JoinGroupRequest, JoinGroupResponse),
    Api(HeartbeatRequest, HeartbeatResponse),
    Api(LeaveGroupRequest, LeaveGroupResponse),
    Api(SyncGroupRequest, SyncGroupResponse),
    Api(ApiVersionsRequest, ApiVersionsResponse),
    Api(CreateTopicsRequest, CreateTopicsResponse),
    Api(DeleteTopicsRequest, DeleteTopicsResponse),
    Api(DeleteRecordsRequest, DeleteRecordsResponse),
    Api(InitProducerIdRequest, InitProducerIdResponse),
    Api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    Api(DescribeGroupsRequest, DescribeGroupsResponse),
    Api(ListGroupsRequest, ListGroupsResponse),
    Api(DescribeConfigsRequest, DescribeConfigsResponse),
    Api(AlterConfigsRequest, AlterConfigsResponse),
    Api(DescribeLogDirsRequest, DescribeLogDirsResponse),
    Api(CreatePartitionsRequest, CreatePartitionsResponse),
    Api(DeleteGroupsRequest, DeleteGroupsResponse),
    Api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    Api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    Api(OffsetDeleteRequest, OffsetDeleteResponse),
    Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    Api(AlterClientQuotasRequest, AlterClientQuotasResponse),
    Api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
    Api(DescribeClusterRequest, DescribeClusterResponse),
    Api(DescribeProducersRequest, DescribeProducersResponse),
    Api(ListConfigResourcesRequest, ListConfigResourcesResponse),
    Api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    Api(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    Api(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
)
"""Apache Kafka's APIs by api key."""

DISKLESS_APIS = _by_key(
    Api(DisklessCreatePartitionsRequest, DisklessCreatePartitionsResponse),
    Api(DisklessDeleteTopicsRequest, DisklessDeleteTopicsResponse),
    Api(DisklessCommitFileRequest, DisklessCommitFileResponse),
    Api(DisklessDeleteRecordsRequest, DisklessDeleteRecordsResponse),
    Api(DisklessListOffsetsRequest, DisklessListOffsetsResponse),
    Api(DisklessFindBatchesRequest, DisklessFindBatchesResponse),
    Api(DisklessHandOverFilesRequest, DisklessHandOverFilesResponse),
    Api(DisklessDescribeFilesRequest, DisklessDescribeFilesResponse),
    Api(DisklessRaiseHorizonRequest, DisklessRaiseHorizonResponse),
)
"""KIP-1164's APIs, with the extensions to them, by api key, for the inter-broker listener. On a client listener these
keys mean what Kafka means."""

REQUESTS = KAFKA_APIS | DISKLESS_APIS
"""Both, by api key."""

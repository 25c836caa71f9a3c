"""Every API in every version that ApiVersions names is answered, and the answer is a message of that version."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest, DescribeTopicPartitionsRequest
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

from diskless_core.protocol.errors import ErrorCode
from tests.support.admin_requests import (
    SET,
    TOPIC,
    alter_configs_request,
    create_partitions_request,
    delete_groups_request,
    describe_cluster_request,
    describe_configs_request,
    describe_groups_request,
    describe_producers_request,
    grown,
    incremental_request,
    list_config_resources_request,
    list_groups_request,
    offset_delete_request,
)
from tests.support.batches import batch_of
from tests.support.requests import append, create_topic, fetch_request, new_topic, produce_request

UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION)
SERVED = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 10),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    22: (0, 5),
    23: (2, 4),
    15: (0, 6),
    16: (0, 5),
    32: (1, 4),
    33: (0, 2),
    37: (0, 3),
    42: (0, 2),
    44: (0, 1),
    47: (0, 0),
    60: (0, 2),
    61: (0, 0),
    74: (0, 1),
    75: (0, 0),
}
"""What Apache Kafka 4.1 advertises of the APIs that are served here."""


OLDEST_PRODUCE_VERSION = 3
"""Older ones are advertised only for librdkafka to see that there is compression (KAFKA-18659)."""


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
    18: _api_versions,
    19: _create_topics,
    20: _delete_topics,
    22: _init_producer_id,
    23: _offset_for_leader_epoch,
    15: lambda place, _: describe_groups_request(place.group, operations=True),
    16: lambda place, _: list_groups_request(["Empty"], ["classic"]),
    32: lambda place, _: describe_configs_request(TOPIC, place.topic),
    33: lambda place, _: alter_configs_request(TOPIC, place.topic, {"retention.ms": "5"}),
    37: lambda place, version: create_partitions_request(grown(place.topic, 2 + version)),
    42: lambda place, _: delete_groups_request(place.group),
    44: lambda place, _: incremental_request(TOPIC, place.topic, ("retention.ms", SET, "5")),
    47: lambda place, _: offset_delete_request(place.group, {place.topic: [0]}),
    60: lambda place, _: describe_cluster_request(operations=True),
    61: lambda place, _: describe_producers_request(place.topic, 0),
    74: lambda place, _: list_config_resources_request(),
    75: _describe_topic_partitions,
}

UNKNOWN_MEMBER = {25}
UNKNOWN_GROUP = {69}
EXPECTED_ERRORS = {
    11: {0, 79},
    12: UNKNOWN_MEMBER,
    13: {0} | UNKNOWN_MEMBER,
    14: UNKNOWN_MEMBER,
    15: {0} | UNKNOWN_GROUP,
    20: {3},
    42: UNKNOWN_GROUP,
    47: UNKNOWN_GROUP,
}
"""Error codes that the plausible request gets, where it is not 0."""


def _error_codes(message: Any) -> set[int]:
    """Every error code anywhere in a response."""
    if isinstance(message, dict):
        own = {value for key, value in message.items() if key == "error_code"}
        return own.union(*map(_error_codes, message.values()))
    if isinstance(message, list):
        return set().union(*map(_error_codes, message))
    return set()


def test_the_apis_and_versions_of_apache_kafka_4_1_are_advertised(wire):
    response = wire.call(ApiVersionsRequest(client_software_name="wire", client_software_version="1"), 4)

    assert response.error_code == 0
    assert {api.api_key: (api.min_version, api.max_version) for api in response.api_keys} == SERVED


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (key, version)
        for key, (oldest, newest) in SERVED.items()
        for version in range(OLDEST_PRODUCE_VERSION if key == 0 else oldest, newest + 1)
    ],
)
def test_each_advertised_version_is_answered_in_that_version(wire, topic, api_key, version):
    place = Place(topic, create_topic(wire, topic), f"group-of-{topic}")
    append(wire, topic, batch_of(b"first"))
    request = REQUESTS[api_key](place, version)

    response = wire.call(request, version)

    assert _error_codes(response.to_dict()) <= EXPECTED_ERRORS.get(api_key, {0})


@pytest.mark.parametrize("version", range(OLDEST_PRODUCE_VERSION))
def test_produce_versions_that_are_advertised_for_compression_only_are_refused_as_kafka_does(wire, topic, version):
    create_topic(wire, topic)

    wire.send(produce_request(topic, {0: batch_of(b"v")}), version)

    assert wire.is_closed()


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(wire, version):
    wire.send_bytes(struct.pack(">ihhih4sb", 15, 18, version, 77, 4, b"wire", 0))

    frame = wire.receive_frame()

    assert frame is not None
    correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error_code, count) == (77, UNSUPPORTED_VERSION, len(SERVED))
    assert len(frame) == 10 + 6 * count


def test_a_connection_goes_on_after_an_unknown_version_of_api_versions(wire):
    wire.send_bytes(struct.pack(">ihhih4sb", 15, 18, 50, 77, 4, b"wire", 0))
    wire.receive_frame()

    assert wire.call(ApiVersionsRequest(), 0).error_code == 0


def test_answers_come_in_the_order_of_the_requests_though_a_slow_one_is_first(wire, topic):
    create_topic(wire, topic)
    wire.send(fetch_request(topic, {0: 0}, max_wait_ms=400), 12)
    wire.send(ApiVersionsRequest(), 0)
    wire.send(_metadata(Place(topic, uuid.uuid4(), ""), 9), 9)

    assert type(wire.receive()).__name__ == "FetchResponse"
    assert len(wire.receive().api_keys) == len(SERVED)
    assert wire.receive().topics[0].name == topic


def test_requests_of_one_connection_are_processed_concurrently(broker, wire, topic):
    create_topic(wire, topic)
    wire.send(fetch_request(topic, {0: 0}, max_wait_ms=15_000), 12)
    wire.send(produce_request(topic, {0: batch_of(b"wakes the fetch before it")}), 9)

    fetched = wire.receive()

    assert fetched.responses[0].partitions[0].high_watermark == 1
    assert wire.receive().responses[0].partition_responses[0].base_offset == 0


def test_produced_batches_of_one_connection_keep_their_order(wire, topic):
    create_topic(wire, topic)
    for number in range(50):
        wire.send(produce_request(topic, {0: batch_of(b"%d" % number)}), 9)

    offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(50)]

    assert offsets == list(range(50))


@pytest.mark.parametrize("version", range(3, 14))
def test_no_leader_hints_are_in_produce_answers(wire, topic, version):
    topic_id = create_topic(wire, topic)
    response = wire.call(produce_request(topic, {0: batch_of(b"v"), 7: batch_of(b"v")}, topic_id=topic_id), version)

    assert [answer.error_code for answer in response.responses[0].partition_responses] == [0, 3]
    if version >= 10:
        assert response.node_endpoints in (None, [])
        hints = [answer.current_leader for answer in response.responses[0].partition_responses]
        assert all(hint is None or hint.leader_id == -1 for hint in hints)

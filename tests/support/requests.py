"""Requests that many tests send over a `WireClient`, and the one or two fields of the answers that they look at."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from tests.support.wire import WireClient

PRODUCE_VERSION = 9
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 11
CREATE_TOPICS_VERSION = 7
ALL_BYTES = 50 << 20

NewTopic = CreateTopicsRequest.CreatableTopic
_ProduceTopic = ProduceRequest.TopicProduceData
_FetchTopic = FetchRequest.FetchTopic
_ListTopic = ListOffsetsRequest.ListOffsetsTopic
_EpochTopic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic


def new_topic(
    name: str, partitions: int = 1, configs: Mapping[str, str | None] | None = None, *, replication_factor: int = -1
) -> Any:
    """A topic for CreateTopics."""
    entries = [NewTopic.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    return NewTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, assignments=[], configs=entries
    )


def create_topics(
    wire: WireClient, *topics: Any, validate_only: bool = False, version: int = CREATE_TOPICS_VERSION
) -> list[Any]:
    """The answers for all topics."""
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
    answers: list[Any] = wire.call(request, version).topics
    return answers


def create_topic(wire: WireClient, name: str, partitions: int = 1, **configs: str) -> uuid.UUID:
    """Create a topic and return its id. Settings are written with underscores for dots."""
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    [answer] = create_topics(wire, new_topic(name, partitions, dotted))
    assert answer.error_code == 0, answer.error_message
    topic_id: uuid.UUID = answer.topic_id
    return topic_id


def delete_topic(wire: WireClient, name: str) -> int:
    """The error code."""
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=10_000)
    code: int = wire.call(request, 6).responses[0].error_code
    return code


def metadata_request(*names: str, create: bool = False) -> Any:
    """Metadata of topics by name."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name, topic_id=None) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def produce_request(
    topic: str,
    records: Mapping[int, bytes | None] | Sequence[tuple[int, bytes | None]],
    *,
    acks: int = -1,
    topic_id: uuid.UUID | None = None,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> Any:
    """Produce to partitions of one topic."""
    pairs = records.items() if isinstance(records, Mapping) else records
    data = [_ProduceTopic.PartitionProduceData(index=index, records=batch) for index, batch in pairs]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[_ProduceTopic(name=topic, topic_id=topic_id, partition_data=data)],
    )


def produce(wire: WireClient, topic: str, batch: bytes, partition: int = 0, *, version: int = PRODUCE_VERSION) -> Any:
    """Produce one batch, and return the partition's answer."""
    response = wire.call(produce_request(topic, {partition: batch}), version)
    return response.responses[0].partition_responses[0]


def append(wire: WireClient, topic: str, *batches: bytes, partition: int = 0) -> list[int]:
    """Produce batches one after the other, each of which has to be accepted; their base offsets."""
    offsets = []
    for batch in batches:
        answer = produce(wire, topic, batch, partition)
        assert answer.error_code == 0, answer.error_message
        offsets.append(answer.base_offset)
    return offsets


def new_producer_id(wire: WireClient) -> int:
    """An id for an idempotent producer; its epoch is 0."""
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    response = wire.call(request, 4)
    assert (response.error_code, response.producer_epoch) == (0, 0)
    producer_id: int = response.producer_id
    return producer_id


def fetch_request(
    topic: str,
    offsets: Mapping[int, int] | Sequence[tuple[int, int]],
    *,
    topic_id: uuid.UUID | None = None,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = ALL_BYTES,
    partition_max_bytes: int = ALL_BYTES,
    session: tuple[int, int] = (0, -1),
) -> Any:
    """Fetch from partitions of one topic, each with the offset to begin at."""
    pairs = offsets.items() if isinstance(offsets, Mapping) else offsets
    partitions = [
        _FetchTopic.FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=partition_max_bytes,
        )
        for partition, offset in pairs
    ]
    session_id, session_epoch = session
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[_FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)],
        forgotten_topics_data=[],
        rack_id="",
    )


def fetch(wire: WireClient, topic: str, offset: int, partition: int = 0, **options: Any) -> Any:
    """Fetch from one partition, and return its answer."""
    response = wire.call(fetch_request(topic, {partition: offset}, **options), FETCH_VERSION)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def list_offset(
    wire: WireClient, topic: str, timestamp: int, partition: int = 0, *, version: int = LIST_OFFSETS_VERSION
) -> Any:
    """ListOffsets of one partition, and its answer."""
    asked = _ListTopic.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[_ListTopic(name=topic, partitions=[asked])], timeout_ms=10_000
    )
    return wire.call(request, version).topics[0].partitions[0]


def end_offset(
    wire: WireClient, topic: str, leader_epoch: int, *, partition: int = 0, current_leader_epoch: int = -1
) -> tuple[int, int, int]:
    """OffsetForLeaderEpoch of one partition: error code, leader epoch and its end."""
    asked = _EpochTopic.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
    )
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[_EpochTopic(topic=topic, partitions=[asked])])
    answer = wire.call(request, 4).topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch, answer.end_offset


def commit_offset(
    wire: WireClient, group: str, topic: str, offset: int, *, topic_id: uuid.UUID | None = None, version: int = 9
) -> int:
    """Commit the offset of partition 0 for a group without members; the error code. From version 10 on by id."""
    topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic_class.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic_class(name=topic, topic_id=topic_id, partitions=[partition])],
    )
    code: int = wire.call(request, version).topics[0].partitions[0].error_code
    return code


def committed_offset(
    wire: WireClient, group: str, topic: str, *, topic_id: uuid.UUID | None = None, version: int = 9
) -> tuple[int, int]:
    """Error code and committed offset of partition 0, -1 without one. From version 10 on by id."""
    group_class = OffsetFetchRequest.OffsetFetchRequestGroup
    asked = group_class.OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[0])
    by_group = group_class(group_id=group, member_id=None, member_epoch=-1, topics=[asked])
    request = OffsetFetchRequest(groups=[by_group], require_stable=False)
    [answer] = wire.call(request, version).groups[0].topics[0].partitions
    return answer.error_code, answer.committed_offset

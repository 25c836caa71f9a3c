"""The records of the cluster shard as plain data; on the log they are KRaft's metadata records. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from diskless_core.cluster.membership import records as brokers
from diskless_core.cluster.membership.records import (
    BrokerChanged,
    BrokerRecord,
    BrokerRegistered,
    BrokerUnregistered,
    NodeIdAllocated,
)
from diskless_core.cluster.nominations import Nomination
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol import messages, record_frames
from diskless_core.protocol.codec import CompiledRecord
from diskless_core.protocol.record_batch import RecordData
from diskless_core.protocol.record_frames import RecordFormatError
from diskless_core.quotas.entities import Entity, entity_of

PARTITIONS_IN_ONE_RECORD = 4096
"""That one record places at most: what it takes to replay it is a slice of work."""


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNamed:
    """The cluster's id, drawn once."""

    cluster_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorsCounted:
    """How many shards of a kind there are, by the kind's topic."""

    topic: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated:
    topic_id: bytes
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsPlaced:
    """The next partitions of a topic, each with its diskless shard, for good.

    (KIP-1164, "Partitioning of __diskless_metadata".)
    """

    topic_id: bytes
    shards: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRemoved:
    """Its partitions and settings go with it."""

    topic_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettled:
    """The Diskless shards have done what was decided about a topic.

    Attributes:
        partition_count: how many partitions the topic had when they were done; 0 when it was removed.
    """

    topic_id: bytes
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSet:
    """A setting of a resource; None removes it."""

    resource_type: ResourceType
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsTaken:
    """A broker took the ids below `next_producer_id` that nobody had taken before."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSet:
    """A quota of clients; None removes it."""

    entity: Entity
    key: str
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderNominated:
    """Who should lead a coordinator from now on."""

    nomination: Nomination


_OtherRecord = (
    ClusterNamed
    | CoordinatorsCounted
    | TopicCreated
    | PartitionsPlaced
    | TopicRemoved
    | TopicSettled
    | ConfigSet
    | ProducerIdsTaken
    | QuotaSet
    | LeaderNominated
)

ClusterRecord = _OtherRecord | BrokerRecord


def encode(record: ClusterRecord) -> RecordData:
    """The record as it stands in the log: no key, KRaft's framing."""
    if isinstance(record, BrokerRegistered | BrokerChanged | BrokerUnregistered | NodeIdAllocated):
        return RecordData(key=None, value=brokers.encode(record))
    return RecordData(key=None, value=record_frames.encode_record(_message(record)))


def decode(data: RecordData) -> ClusterRecord:
    """The record back.

    Raises:
        RecordFormatError: it is no record of the cluster shard.
    """
    if data.value is None:
        raise RecordFormatError("a record of the cluster shard cannot be a tombstone")
    message = record_frames.decode_record(data.value)
    match message:
        case messages.ClusterNamedRecord():
            return ClusterNamed(cluster_id=message.cluster_id)
        case messages.CoordinatorsCountedRecord():
            return CoordinatorsCounted(topic=message.topic, count=message.partition_count)
        case messages.TopicRecord():
            return TopicCreated(topic_id=record_frames.required_id(message.topic_id).bytes, name=message.name)
        case messages.PartitionsPlacedRecord():
            return PartitionsPlaced(
                topic_id=record_frames.required_id(message.topic_id).bytes, shards=tuple(message.shards)
            )
        case messages.RemoveTopicRecord():
            return TopicRemoved(topic_id=record_frames.required_id(message.topic_id).bytes)
        case messages.TopicSettledRecord():
            return TopicSettled(
                topic_id=record_frames.required_id(message.topic_id).bytes, partition_count=message.partition_count
            )
        case messages.ConfigRecord():
            return ConfigSet(
                resource_type=ResourceType(message.resource_type),
                resource_name=message.resource_name,
                name=message.name,
                value=message.value,
            )
        case messages.ProducerIdsRecord():
            return ProducerIdsTaken(
                broker_id=message.broker_id,
                broker_epoch=message.broker_epoch,
                next_producer_id=message.next_producer_id,
            )
        case messages.ClientQuotaRecord():
            return QuotaSet(
                entity=entity_of({part.entity_type: part.entity_name for part in message.entity}),
                key=message.key,
                value=None if message.remove else message.value,
            )
        case messages.CoordinatorNominationRecord():
            return LeaderNominated(
                nomination=Nomination(
                    shard=ShardId(message.topic, message.partition_id),
                    generation=message.generation,
                    leader=message.leader,
                    followers=tuple(message.followers),
                )
            )
        case messages.RegisterBrokerRecord():
            return brokers.registered(message)
        case messages.BrokerRegistrationChangeRecord():
            return brokers.changed(message)
        case messages.UnregisterBrokerRecord():
            return brokers.unregistered(message)
        case messages.NodeIdAllocatedRecord():
            return brokers.allocated(message)
    raise RecordFormatError(f"a {type(message).__name__} does not belong to the cluster shard")


def _message(record: _OtherRecord) -> CompiledRecord:
    match record:
        case ClusterNamed():
            return messages.ClusterNamedRecord(cluster_id=record.cluster_id)
        case CoordinatorsCounted():
            return messages.CoordinatorsCountedRecord(topic=record.topic, partition_count=record.count)
        case TopicCreated():
            return messages.TopicRecord(topic_id=uuid.UUID(bytes=record.topic_id), name=record.name)
        case PartitionsPlaced():
            return messages.PartitionsPlacedRecord(
                topic_id=uuid.UUID(bytes=record.topic_id), shards=list(record.shards)
            )
        case TopicRemoved():
            return messages.RemoveTopicRecord(topic_id=uuid.UUID(bytes=record.topic_id))
        case TopicSettled():
            return messages.TopicSettledRecord(
                topic_id=uuid.UUID(bytes=record.topic_id), partition_count=record.partition_count
            )
        case ConfigSet():
            return messages.ConfigRecord(
                resource_type=int(record.resource_type),
                resource_name=record.resource_name,
                name=record.name,
                value=record.value,
            )
        case ProducerIdsTaken():
            return messages.ProducerIdsRecord(
                broker_id=record.broker_id,
                broker_epoch=record.broker_epoch,
                next_producer_id=record.next_producer_id,
            )
        case QuotaSet():
            return messages.ClientQuotaRecord(
                entity=[
                    messages.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in record.entity
                ],
                key=record.key,
                value=0.0 if record.value is None else record.value,
                remove=record.value is None,
            )
        case LeaderNominated(nomination=nomination):
            return messages.CoordinatorNominationRecord(
                topic=nomination.shard.topic,
                partition_id=nomination.shard.index,
                generation=nomination.generation,
                leader=nomination.leader,
                followers=list(nomination.followers),
            )

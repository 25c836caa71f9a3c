"""The state of the cluster shard, and the only code that changes it: `replay`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diskless_core.cluster import records
from diskless_core.cluster.membership import tables as brokers
from diskless_core.cluster.membership.records import BrokerChanged, BrokerRegistered, BrokerUnregistered
from diskless_core.cluster.records import (
    ClusterNamed,
    ClusterRecord,
    ConfigSet,
    CoordinatorsCounted,
    LeaderNominated,
    PartitionPlaced,
    ProducerIdsTaken,
    QuotaSet,
    ResourceType,
    TopicCreated,
    TopicRemoved,
)
from diskless_core.cluster.tables import (
    CLIENT_QUOTAS,
    CLUSTER,
    CLUSTER_ID,
    CONFIGS,
    NEXT_PRODUCER_ID,
    NOMINATIONS,
    ONLY_ROW,
    PLACEMENTS,
    TOPIC_IDS,
    TOPICS,
    ClusterTopic,
    coordinator_count_key,
    nomination_key,
)
from diskless_core.coordinator.state_machine import StateMachine
from diskless_core.coordinator.tables import Table, Transaction
from diskless_core.protocol.record_batch import RecordData
from diskless_core.quotas.entities import encode_entity


class ClusterMachine(StateMachine[ClusterRecord]):
    """The shard of `__cluster_metadata`."""

    tables: Sequence[Table[Any]] = (
        CLUSTER,
        TOPICS,
        TOPIC_IDS,
        PLACEMENTS,
        CONFIGS,
        CLIENT_QUOTAS,
        NEXT_PRODUCER_ID,
        NOMINATIONS,
        brokers.BROKERS,
        brokers.LAST_BROKER_EPOCH,
    )

    def encode(self, record: ClusterRecord) -> RecordData:
        return records.encode(record)

    def decode(self, data: RecordData) -> ClusterRecord:
        return records.decode(data)

    def replay(self, record: ClusterRecord, tx: Transaction) -> None:
        match record:
            case ClusterNamed():
                tx.put(CLUSTER, CLUSTER_ID, record.cluster_id)
            case CoordinatorsCounted():
                tx.put(CLUSTER, coordinator_count_key(record.topic), str(record.count))
            case TopicCreated():
                tx.put(TOPICS, (record.topic_id,), ClusterTopic(record.name, 0))
                tx.put(TOPIC_IDS, (record.name,), record.topic_id)
            case PartitionPlaced():
                _partition_placed(record, tx)
            case TopicRemoved():
                _topic_removed(record, tx)
            case ConfigSet():
                _config_set(record, tx)
            case ProducerIdsTaken():
                tx.put(NEXT_PRODUCER_ID, ONLY_ROW, record.next_producer_id)
            case QuotaSet():
                _quota_set(record, tx)
            case LeaderNominated():
                tx.put(NOMINATIONS, nomination_key(record.nomination.shard), record.nomination)
            case BrokerRegistered() | BrokerChanged() | BrokerUnregistered():
                brokers.replay(record, tx)


def _partition_placed(record: PartitionPlaced, tx: Transaction) -> None:
    topic = tx.get(TOPICS, (record.topic_id,))
    if topic is not None:
        tx.put(TOPICS, (record.topic_id,), topic._replace(partition_count=topic.partition_count + 1))
        tx.put(PLACEMENTS, (record.topic_id, record.partition), record.shard)


def _topic_removed(record: TopicRemoved, tx: Transaction) -> None:
    topic = tx.get(TOPICS, (record.topic_id,))
    if topic is None:
        return
    tx.delete(TOPICS, (record.topic_id,))
    tx.delete(TOPIC_IDS, (topic.name,))
    for partition in range(topic.partition_count):
        tx.delete(PLACEMENTS, (record.topic_id, partition))
    tx.delete(CONFIGS, (int(ResourceType.TOPIC), topic.name))


def _config_set(record: ConfigSet, tx: Transaction) -> None:
    key = (int(record.resource_type), record.resource_name)
    known = tx.get(CONFIGS, key)
    settings = dict(known) if known is not None else {}
    if record.value is None:
        settings.pop(record.name, None)
    else:
        settings[record.name] = record.value
    if settings:
        tx.put(CONFIGS, key, settings)
    else:
        tx.delete(CONFIGS, key)


def _quota_set(record: QuotaSet, tx: Transaction) -> None:
    key = (encode_entity(record.entity),)
    known = tx.get(CLIENT_QUOTAS, key)
    quotas = dict(known) if known is not None else {}
    if record.value is None:
        quotas.pop(record.key, None)
    else:
        quotas[record.key] = record.value
    if quotas:
        tx.put(CLIENT_QUOTAS, key, quotas)
    else:
        tx.delete(CLIENT_QUOTAS, key)

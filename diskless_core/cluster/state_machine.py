"""The state of the cluster shard, and the only code that changes it: `replay`. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from diskless_core.cluster import records
from diskless_core.cluster.membership import tables as brokers
from diskless_core.cluster.membership.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    NodeIdAllocated,
)
from diskless_core.cluster.records import (
    PARTITIONS_IN_ONE_RECORD,
    ClusterNamed,
    ClusterRecord,
    ConfigSet,
    CoordinatorsCounted,
    LeaderNominated,
    PartitionsPlaced,
    ProducerIdsTaken,
    QuotaSet,
    ResourceType,
    TopicCreated,
    TopicRemoved,
    TopicSettled,
)
from diskless_core.cluster.tables import (
    CLIENT_QUOTAS,
    CLUSTER,
    CLUSTER_ID,
    CONFIGS,
    LOADS,
    NEXT_PRODUCER_ID,
    NOMINATIONS,
    ONLY_ROW,
    PLACEMENTS,
    REMOVED,
    TOPIC_IDS,
    TOPICS,
    UNSETTLED,
    ClusterTopic,
    RemovedTopic,
    coordinator_count_key,
    nomination_key,
)
from diskless_core.coordinator.slices import Slices
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
        LOADS,
        UNSETTLED,
        REMOVED,
        CONFIGS,
        CLIENT_QUOTAS,
        NEXT_PRODUCER_ID,
        NOMINATIONS,
        *brokers.TABLES,
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
            case PartitionsPlaced():
                _partitions_placed(record, tx)
            case TopicRemoved():
                _topic_removed(record, tx)
            case TopicSettled():
                _topic_settled(record, tx)
            case ConfigSet():
                _config_set(record, tx)
            case ProducerIdsTaken():
                tx.put(NEXT_PRODUCER_ID, ONLY_ROW, record.next_producer_id)
            case QuotaSet():
                _quota_set(record, tx)
            case LeaderNominated():
                tx.put(NOMINATIONS, nomination_key(record.nomination.shard), record.nomination)
            case BrokerRegistered() | BrokerChanged() | BrokerUnregistered() | NodeIdAllocated():
                brokers.replay(record, tx)

    def replay_in_slices(self, record: ClusterRecord, tx: Transaction) -> Slices[None]:
        self.replay(record, tx)
        if isinstance(record, PartitionsPlaced) and len(record.shards) == PARTITIONS_IN_ONE_RECORD:
            yield  # there are more of them


def _partitions_placed(record: PartitionsPlaced, tx: Transaction) -> None:
    topic = tx.get(TOPICS, (record.topic_id,))
    if topic is None:
        return
    if tx.get(UNSETTLED, (record.topic_id,)) is None:
        tx.put(UNSETTLED, (record.topic_id,), topic.partition_count)
    placed = (*(tx.get(PLACEMENTS, (record.topic_id,)) or ()), *record.shards)
    tx.put(TOPICS, (record.topic_id,), topic._replace(partition_count=len(placed)))
    tx.put(PLACEMENTS, (record.topic_id,), placed)
    for shard, count in Counter(record.shards).items():
        tx.put(LOADS, (shard,), (tx.get(LOADS, (shard,)) or 0) + count)


def _topic_removed(record: TopicRemoved, tx: Transaction) -> None:
    topic = tx.get(TOPICS, (record.topic_id,))
    if topic is None:
        return
    tx.delete(TOPICS, (record.topic_id,))
    tx.delete(TOPIC_IDS, (topic.name,))
    loads = Counter(tx.get(PLACEMENTS, (record.topic_id,)))
    tx.delete(UNSETTLED, (record.topic_id,))
    tx.put(REMOVED, (record.topic_id,), RemovedTopic(topic.name, tuple(sorted(loads))))
    for shard, count in loads.items():
        left = (tx.get(LOADS, (shard,)) or 0) - count
        if left:
            tx.put(LOADS, (shard,), left)
        else:
            tx.delete(LOADS, (shard,))
    tx.delete(PLACEMENTS, (record.topic_id,))
    tx.delete(CONFIGS, (int(ResourceType.TOPIC), topic.name))


def _topic_settled(record: TopicSettled, tx: Transaction) -> None:
    topic = tx.get(TOPICS, (record.topic_id,))
    if topic is not None and topic.partition_count == record.partition_count:
        tx.delete(UNSETTLED, (record.topic_id,))
    if topic is None and record.partition_count == 0:
        tx.delete(REMOVED, (record.topic_id,))


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

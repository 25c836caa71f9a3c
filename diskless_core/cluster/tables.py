"""The tables of the cluster shard and what their rows hold. All of them are resident."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from diskless_core.cluster.nominations import Nomination
from diskless_core.coordinator.tables import Table
from diskless_core.plugin.coordinator_store import Column, ColumnType, TableSpec
from diskless_core.plugin.shard import ShardId
from diskless_core.snapshot import placements_layout

Placements = tuple[int, ...]
"""The Diskless shard of each partition of a topic, by the partitions' numbers."""


class ClusterTopic(NamedTuple):
    """A topic. `partition_count` counts those placed so far."""

    name: str
    partition_count: int


_TOPIC_ID = Column("topic_id", ColumnType.BLOB)
_NAME = Column("name", ColumnType.TEXT)

CLUSTER: Table[str] = Table(
    spec=TableSpec(name="cluster", key=(_NAME,), values=(Column("value", ColumnType.TEXT),)),
    encode=lambda value: (value,),
    decode=lambda row: row[1],
)
CLUSTER_ID = ("cluster.id",)


def coordinator_count_key(topic: str) -> tuple[str]:
    """The key of the row in `CLUSTER` that says how many shards a kind has, by the kind's topic."""
    return (f"coordinators of {topic}",)


def former_count_key(topic: str) -> tuple[str]:
    """The key of the row in `CLUSTER` that says how many there were before the latest move to another log."""
    return (f"coordinators of {topic} before the log was moved",)


TOPICS: Table[ClusterTopic] = Table(
    spec=TableSpec(name="topics", key=(_TOPIC_ID,), values=(_NAME, Column("partition_count", ColumnType.INTEGER))),
    encode=lambda topic: topic,
    decode=lambda row: ClusterTopic._make(row[1:]),
)
TOPIC_IDS: Table[bytes] = Table(
    spec=TableSpec(name="topic_ids", key=(_NAME,), values=(_TOPIC_ID,)),
    encode=lambda topic_id: (topic_id,),
    decode=lambda row: row[1],
)
PLACEMENTS: Table[Placements] = Table(
    spec=TableSpec(name="placements", key=(_TOPIC_ID,), values=(Column("shards", ColumnType.BLOB),)),
    encode=lambda placements: (placements_layout.pack(placements),),
    decode=lambda row: placements_layout.unpack(row[1]),
)
LOADS: Table[int] = Table(
    spec=TableSpec(
        name="loads",
        key=(Column("shard", ColumnType.INTEGER),),
        values=(Column("partition_count", ColumnType.INTEGER),),
    ),
    encode=lambda partition_count: (partition_count,),
    decode=lambda row: row[1],
)
"""How many partitions each Diskless shard has, of all topics: what `PLACEMENTS` add up to. A shard without any has no
row."""

UNSETTLED: Table[int] = Table(
    spec=TableSpec(name="unsettled_topics", key=(_TOPIC_ID,), values=(Column("first_partition", ColumnType.INTEGER),)),
    encode=lambda first_partition: (first_partition,),
    decode=lambda row: row[1],
)
"""Topics with partitions that their Diskless shards may lack: the first one of these. The others have no row."""


class RemovedTopic(NamedTuple):
    """A topic that is gone, and the Diskless shards that its partitions were placed on."""

    name: str
    shards: tuple[int, ...]


REMOVED: Table[RemovedTopic] = Table(
    spec=TableSpec(name="removed_topics", key=(_TOPIC_ID,), values=(_NAME, Column("shards", ColumnType.BLOB))),
    encode=lambda topic: (topic.name, placements_layout.pack(topic.shards)),
    decode=lambda row: RemovedTopic(row[1], placements_layout.unpack(row[2])),
)
"""Topics that are gone and of which a Diskless shard, or whoever is told of deletions, may still have something."""

CONFIGS: Table[Mapping[str, str]] = Table(
    spec=TableSpec(
        name="configs",
        key=(Column("resource_type", ColumnType.INTEGER), Column("resource_name", ColumnType.TEXT)),
        values=(Column("settings", ColumnType.TEXT),),
    ),
    encode=lambda settings: (json.dumps(settings, sort_keys=True),),
    decode=lambda row: json.loads(row[2]),
)
CLIENT_QUOTAS: Table[Mapping[str, float]] = Table(
    spec=TableSpec(
        name="client_quotas",
        key=(Column("entity", ColumnType.TEXT),),
        values=(Column("quotas", ColumnType.TEXT),),
    ),
    encode=lambda quotas: (json.dumps(quotas, sort_keys=True),),
    decode=lambda row: json.loads(row[1]),
)
"""Keyed by `encode_entity`."""

NEXT_PRODUCER_ID: Table[int] = Table(
    spec=TableSpec(
        name="next_producer_id",
        key=(Column("id", ColumnType.INTEGER),),
        values=(Column("next_producer_id", ColumnType.INTEGER),),
    ),
    encode=lambda value: (value,),
    decode=lambda row: row[1],
)
ONLY_ROW = (0,)

NOMINATIONS: Table[Nomination] = Table(
    spec=TableSpec(
        name="nominations",
        key=(Column("topic", ColumnType.TEXT), Column("shard", ColumnType.INTEGER)),
        values=(
            Column("generation", ColumnType.INTEGER),
            Column("leader", ColumnType.INTEGER),
            Column("followers", ColumnType.TEXT),
        ),
    ),
    encode=lambda one: (one.generation, one.leader, json.dumps(one.followers)),
    decode=lambda row: Nomination(
        shard=ShardId(row[0], row[1]), generation=row[2], leader=row[3], followers=tuple(json.loads(row[4]))
    ),
)
"""Who should lead which coordinator, by `nomination_key`."""


def nomination_key(shard: ShardId) -> tuple[str, int]:
    """The key of a shard's row in `NOMINATIONS`."""
    return shard.topic, shard.index

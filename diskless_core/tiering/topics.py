"""Topics and partitions as tiered storage sees them: what it asks of the cluster's topics, and what it calls them.

Only interfaces of the topics are here. The topics themselves are above: they know of tiered storage.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Protocol

from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import TOPICS
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.tiering.planning import TopicTiering


class UnknownTopicError(Exception):
    """There is no topic of that name."""


class TopicNames(Protocol):
    """Which topics there are."""

    def name_of(self, topic_id: uuid.UUID) -> str | None: ...

    def id_of(self, name: str) -> uuid.UUID | None: ...


class TopicView(Protocol):
    """A topic."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> uuid.UUID: ...

    @property
    def partition_count(self) -> int: ...


class TieredTopics(TopicNames, Protocol):
    """All topics, and where their partitions are. Every method answers at once, from what this node knows."""

    def all(self) -> Iterable[TopicView]:
        """Every topic, by name."""

    def by_name(self, name: str) -> TopicView | None: ...

    def shard_of(self, partition: PartitionKey) -> int | None:
        """Which diskless shard a partition belongs to."""

    def replica_of(self, partition: PartitionKey) -> DisklessShard | None:
        """The replica on this node of a partition's shard."""

    def tiering_of(self, partition: PartitionKey) -> TopicTiering | None:
        """What a partition's topic says of its segments; None when there is no such topic."""


def key_of(partition: TopicIdPartition) -> PartitionKey:
    """A partition as the coordinators know it."""
    return PartitionKey(partition.topic_id.bytes, partition.partition)


def topic_id_partition(shard: DisklessShard, partition: PartitionKey) -> TopicIdPartition | None:
    """A partition of a shard as KIP-405 names it; None where the shard knows no such topic (any more)."""
    topic = shard.state.committed(TOPICS, (partition.topic_id,))
    if topic is None:
        return None
    return TopicIdPartition(uuid.UUID(bytes=partition.topic_id), topic.name, partition.partition)

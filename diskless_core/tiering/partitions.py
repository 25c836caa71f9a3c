"""Partitions as KIP-405 names them."""

from __future__ import annotations

import uuid

from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import TOPICS
from diskless_core.remote_log.metadata import TopicIdPartition


def topic_id_partition(shard: DisklessShard, partition: PartitionKey) -> TopicIdPartition | None:
    """A partition of a shard, with its topic's name; None where the shard knows no such topic (any more)."""
    topic = shard.state.committed(TOPICS, (partition.topic_id,))
    if topic is None:
        return None
    return TopicIdPartition(uuid.UUID(bytes=partition.topic_id), topic.name, partition.partition)

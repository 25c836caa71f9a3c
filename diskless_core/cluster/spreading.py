"""Which Diskless coordinators new partitions are given to (KIP-1164, "Partitioning of __diskless_metadata"). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diskless_core.cluster.records import ClusterRecord
from diskless_core.cluster.tables import PLACEMENTS
from diskless_core.coordinator.state_machine import Command


def shards_of_new_partitions(
    count: int, shard_count: int, of_topic: Mapping[int, int], in_all: Mapping[int, int]
) -> Sequence[int]:
    """A shard for each of `count` new partitions of a topic.

    Each goes to the shard with fewest partitions of the topic, of such to the one with fewest in all, of such to the
    first. So the load of one large topic is shared by all shards, and so is that of many small ones; shards that were
    added fill up.

    Args:
        of_topic: how many partitions of the topic each shard has; 0 where a shard is missing.
        in_all: how many partitions.
    """
    loads = [(of_topic.get(shard, 0), in_all.get(shard, 0), shard) for shard in range(shard_count)]
    chosen = []
    for _ in range(count):
        own, total, shard = min(loads)
        loads[shard] = (own + 1, total + 1, shard)
        chosen.append(shard)
    return chosen


def place(command: Command[ClusterRecord], topic_id: bytes, count: int, shard_count: int) -> Sequence[int]:
    """Shards for `count` new partitions of a topic, as things are when everything pending has committed."""
    of_topic, in_all = dict[int, int](), dict[int, int]()
    for key in command.tx.keys(PLACEMENTS, ()):
        shard = command.get(PLACEMENTS, key)
        if shard is not None:
            in_all[shard] = in_all.get(shard, 0) + 1
            if key[0] == topic_id:
                of_topic[shard] = of_topic.get(shard, 0) + 1
    return shards_of_new_partitions(count, shard_count, of_topic, in_all)

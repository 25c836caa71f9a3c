"""Which Diskless coordinators new partitions are given to (KIP-1164, "Partitioning of __diskless_metadata"). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import cycle, islice

from diskless_core.cluster.records import ClusterRecord
from diskless_core.cluster.tables import LOADS, PLACEMENTS
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
    level = max(loads)[0]
    heapify(loads)
    chosen = list[int]()
    while len(chosen) < count and loads[0][0] < level:
        own, total, shard = loads[0]
        heapreplace(loads, (own + 1, total + 1, shard))
        chosen.append(shard)
    # All have as many of the topic now. Whoever is chosen is so again once the others were, and in the same order.
    turns = cycle(shard for _, _, shard in sorted(loads))
    chosen.extend(islice(turns, count - len(chosen)))
    return chosen


def place(command: Command[ClusterRecord], topic_id: bytes, count: int, shard_count: int) -> Sequence[int]:
    """Shards for `count` new partitions of a topic, as things are when everything pending has committed.

    What it costs follows the topic's partitions, however many there are in all.
    """
    of_topic = Counter(command.get(PLACEMENTS, (topic_id,)))
    in_all = {shard: command.get(LOADS, (shard,)) or 0 for shard in range(shard_count)}
    return shards_of_new_partitions(count, shard_count, of_topic, in_all)

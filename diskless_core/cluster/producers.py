"""Which idempotent producers a partition remembers, from the windows of its diskless shard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from diskless_core.diskless import producer_state
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import PRODUCERS


class Producer(NamedTuple):
    """A producer as one partition knows it. `last_append_time` is the commit clock, in milliseconds."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_append_time: int


class Placement(Protocol):
    """Where partitions are."""

    def replica_of(self, partition: PartitionKey) -> DisklessShard | None: ...


def describe(
    partitions: Iterable[PartitionKey], placement: Placement, now_ms: int, expiration_ms: int
) -> dict[PartitionKey, list[Producer]]:
    """The producers of each partition by their ids, without those silent for longer than `expiration_ms`.

    A partition that is nowhere is not in the result. The cost follows the number of all producers of the shards.
    """
    found: dict[PartitionKey, list[Producer]] = {}
    shards: set[DisklessShard] = set()
    for key in partitions:
        shard = placement.replica_of(key)
        if shard is not None and shard.head(key) is not None:
            found[key] = []
            shards.add(shard)
    for shard in shards:
        for (topic_id, partition, producer_id), window in shard.state.rows(PRODUCERS):
            producers = found.get(PartitionKey(topic_id, partition))
            if producers is not None and producer_state.unless_expired(window, now_ms, expiration_ms) is not None:
                last = window.batches[-1]
                producers.append(Producer(producer_id, window.epoch, last.last_sequence, window.last_append_time))
    return {key: sorted(producers) for key, producers in found.items()}

"""Which idempotent producers a partition remembers, from the windows of its diskless shard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from diskless_core.diskless import producer_state
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.producer_state import ProducerWindow
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


def describe(partitions: Iterable[PartitionKey], placement: Placement) -> dict[PartitionKey, list[Producer]]:
    """The producers of each partition by their ids. A partition that is nowhere is not in the result."""
    found: dict[PartitionKey, list[Producer]] = {}
    for key in partitions:
        shard = placement.replica_of(key)
        if shard is not None and shard.head(key) is not None:
            windows = shard.state.group(PRODUCERS, key)
            found[key] = sorted(_producer(*item) for item in windows.items())
    return found


def _producer(producer_id: int, window: ProducerWindow) -> Producer:
    last = producer_state.last_batch(window)
    return Producer(producer_id, producer_state.epoch_of(window), last.last_sequence, last.append_time)

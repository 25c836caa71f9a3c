"""The name of one coordinator shard, as log and store plugins see it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ShardKind(StrEnum):
    """What a shard coordinates; the value is the Kafka topic that its log corresponds to."""

    CLUSTER = "__cluster_metadata"
    DISKLESS = "__diskless_metadata"
    GROUPS = "__consumer_offsets"


@dataclass(frozen=True, slots=True, order=True)
class ShardId:
    """One shard: a partition of one of the three metadata topics. `str()` gives Kafka's `topic-partition`."""

    kind: ShardKind
    index: int

    def __str__(self) -> str:
        return f"{self.kind.value}-{self.index}"

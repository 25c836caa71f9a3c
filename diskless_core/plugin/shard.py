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

    @property
    def short_name(self) -> str:
        """The name that operators use, such as `diskless-0`."""
        return f"{self.kind.name.lower()}-{self.index}"


CLUSTER_SHARD = ShardId(ShardKind.CLUSTER, 0)
"""The one that has the topics."""


def parse_shard(text: str) -> ShardId:
    """Read `diskless-0`, or Kafka's `__diskless_metadata-0`.

    Raises:
        ValueError: it is neither.
    """
    kind, _, index = text.rpartition("-")
    kinds = {name: member for member in ShardKind for name in (member.value, member.name.lower())}
    if kind not in kinds or not (index.isascii() and index.isdigit()):
        raise ValueError(f"{text!r} is no shard: they are called cluster-0, diskless-0 and so on, and groups-0")
    return ShardId(kinds[kind], int(index))

"""Which kinds of coordinator shards there are, and what operators call a shard. Pure.

`SHARD_KINDS` is the one table of kinds: a new kind is one more entry. Logs and stores need not know it.
"""

from __future__ import annotations

from dataclasses import dataclass

from diskless_core.plugin.shard import ShardId, parse_shard_id
from diskless_core.protocol.record_frames import GROUP_RECORDS, KeyedRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardKind:
    """What shards coordinate.

    Attributes:
        name: what operators call it, the part of `diskless-0` before the dash.
        topic: the Kafka topic whose partitions the logs of its shards correspond to.
        count_setting: field of the broker's settings that says how many shards there are; None where there is one.
        count_is_recorded: whether the cluster shard has the number for good, from the cluster's first start on. The
            setting says what it is then, and may say nothing.
        keyed_records: how its records are written where they have keys, as in Kafka's own topics; None where they
            stand in KRaft's framing.
    """

    name: str
    topic: str
    count_setting: str | None = None
    count_is_recorded: bool = False
    keyed_records: KeyedRecords | None = None

    def shard(self, index: int) -> ShardId:
        """One shard of this kind."""
        return ShardId(self.topic, index)


CLUSTER = ShardKind(name="cluster", topic="__cluster_metadata")
DISKLESS = ShardKind(
    name="diskless", topic="__diskless_metadata", count_setting="diskless_metadata_topic_num_partitions"
)
GROUPS = ShardKind(
    name="groups",
    topic="__consumer_offsets",
    count_setting="offsets_topic_num_partitions",
    count_is_recorded=True,
    keyed_records=GROUP_RECORDS,
)

SHARD_KINDS = (CLUSTER, DISKLESS, GROUPS)

CLUSTER_SHARD = CLUSTER.shard(0)
"""The one that has the topics."""

SHARD_NAMES = " or ".join(
    ", ".join(f"{kind.name}-{'N' if kind.count_setting else 0}" for kind in kinds)
    for kinds in (SHARD_KINDS[:-1], SHARD_KINDS[-1:])
)
"""What operators may call a shard, for lines of help."""

_BY_TOPIC = {kind.topic: kind for kind in SHARD_KINDS}
_TOPICS = {kind.name: kind.topic for kind in SHARD_KINDS}


def kind_of(shard: ShardId) -> ShardKind:
    """The kind of a shard that a cluster can have."""
    return _BY_TOPIC[shard.topic]


def short_name(shard: ShardId) -> str:
    """The name that operators use, such as `diskless-0`."""
    return f"{kind_of(shard).name}-{shard.index}"


def parse_shard(text: str) -> ShardId:
    """Read `diskless-0`, or Kafka's `__diskless_metadata-0`.

    Raises:
        ValueError: it is neither.
    """
    name, _, index = text.rpartition("-")
    shard = parse_shard_id(f"{_TOPICS.get(name, name)}-{index}")
    if shard is None or shard.topic not in _BY_TOPIC:
        *others, last = (f"{kind.name}-0{' and so on' if kind.count_setting else ''}" for kind in SHARD_KINDS)
        raise ValueError(f"{text!r} is no shard: they are called {', '.join(others)}, and {last}")
    return shard

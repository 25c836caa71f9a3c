"""The name of one coordinator shard, as log and store plugins see it."""

from __future__ import annotations

from dataclasses import dataclass

_INTERNAL = "__"


@dataclass(frozen=True, slots=True, order=True)
class ShardId:
    """One shard. `str()` gives Kafka's `topic-partition`, which `parse_shard_id` reads.

    What a shard coordinates means nothing to a plugin: a broker may have shards of topics that are not known yet.

    Attributes:
        topic: the internal topic of Kafka that the shard's log corresponds to, such as `__diskless_metadata`. Its name
            begins with two underscores.
        index: the partition of that topic.
    """

    topic: str
    index: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


def parse_shard_id(text: str) -> ShardId | None:
    """Read `str(ShardId)`, such as the name of a folder that a plugin gave a shard; None if it is none."""
    topic, _, index = text.rpartition("-")
    if not (topic.startswith(_INTERNAL) and index.isascii() and index.isdigit()):
        return None
    return ShardId(topic, int(index))

"""The name of one coordinator shard, as log and store plugins see it."""

from __future__ import annotations

from dataclasses import dataclass

_INTERNAL = "__"
_INDEX_DIGITS = 10
"""Of an int32. Python takes no text of thousands of digits for a number."""


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
    is_index = index.isascii() and index.isdigit() and len(index) <= _INDEX_DIGITS
    if not (topic.startswith(_INTERNAL) and is_index):
        return None
    return ShardId(topic, int(index))

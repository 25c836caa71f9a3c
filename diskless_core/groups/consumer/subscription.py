"""What a group subscribes to, as the cluster has it now: ids, partition counts, and a hash that tells of changes."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.groups.topics import TopicCatalog

_HASH_BYTES = 8


class TopicMetadata(NamedTuple):
    """A topic that exists."""

    topic_id: uuid.UUID
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedTopics:
    """Those of the names that a group subscribes to which are topics."""

    by_name: Mapping[str, TopicMetadata]

    @classmethod
    def look_up(cls, names: Iterable[str], topics: TopicCatalog) -> SubscribedTopics:
        """The topics as of now."""
        found: dict[str, TopicMetadata] = {}
        for name in sorted(names):
            topic_id, count = topics.id_of(name), topics.partition_count(name)
            if topic_id is not None and count is not None:
                found[name] = TopicMetadata(topic_id, count)
        return cls(by_name=found)

    @property
    def hash(self) -> int:
        """Differs, but for chance, whenever a topic comes, goes, is another one, or has more partitions; 0 for none."""
        if not self.by_name:
            return 0
        digest = hashlib.blake2b(digest_size=_HASH_BYTES)
        for name, topic in self.by_name.items():
            digest.update(f"{name}\0{topic.topic_id}\0{topic.partition_count}\0".encode())
        return int.from_bytes(digest.digest(), "big", signed=True)

    @property
    def partition_counts(self) -> Mapping[uuid.UUID, int]:
        return {topic.topic_id: topic.partition_count for topic in self.by_name.values()}

    def ids(self, names: Iterable[str]) -> frozenset[uuid.UUID]:
        """Ids of those names that are topics."""
        return frozenset(self.by_name[name].topic_id for name in names if name in self.by_name)

"""Committed offsets by group, and which of them have outlived their use. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from diskless_core.coordinator.tables import Writes
from diskless_core.groups.classic import ClassicGroup
from diskless_core.groups.consumer.model import ConsumerGroup
from diskless_core.groups.effects import GroupState
from diskless_core.groups.model import NO_TIMESTAMP, CommittedOffset, PersistedGroup
from diskless_core.groups.subscription import SubscriptionError, subscribed_topics
from diskless_core.groups.tables import GROUP_OFFSETS
from diskless_core.passed_time import Passed

TopicPartition = tuple[str, int]

CONSUMER_PROTOCOL_TYPE = "consumer"


class OffsetIndex:
    """The rows of `GROUP_OFFSETS` that are committed, by group; and which groups have any of a topic."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._counts: dict[str, dict[str, int]] = {}
        """By topic and group."""

    def reset(self, rows: Iterable[tuple[Any, CommittedOffset]]) -> None:
        """Forget everything and take these rows."""
        self._groups, self._counts = {}, {}
        self.apply({GROUP_OFFSETS: dict(rows)})

    def apply(self, writes: Writes) -> None:
        """Follow what a command did."""
        changed: Mapping[Any, CommittedOffset | None] = writes.get(GROUP_OFFSETS, {})
        for (group_id, topic, partition), value in changed.items():
            offsets = self._groups.setdefault(group_id, {})
            before = len(offsets)
            if value is None:
                offsets.pop((topic, partition), None)
            else:
                offsets[topic, partition] = value
            if len(offsets) != before:
                self._count(topic, group_id, len(offsets) - before)
            if not offsets:
                del self._groups[group_id]

    def _count(self, topic: str, group_id: str, change: int) -> None:
        counts = self._counts.setdefault(topic, {})
        counts[group_id] = counts.get(group_id, 0) + change
        if not counts[group_id]:
            del counts[group_id]
            if not counts:
                del self._counts[topic]

    def of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """All offsets of a group."""
        return self._groups.get(group_id, {})

    def groups_of(self, topic: str) -> Sequence[str]:
        """The groups that have offsets of a topic, or of others that had its name."""
        return list(self._counts.get(topic, ()))

    def __iter__(self) -> Iterator[str]:
        """The groups that have offsets."""
        return iter(list(self._groups))

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups


def expired_offsets(
    group: ClassicGroup | ConsumerGroup | None,
    persisted: PersistedGroup | None,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    passed: Passed,
    retention_ms: int,
) -> list[TopicPartition]:
    """Which offsets of a group go.

    In a group of the consumer protocol, those of topics that it does not subscribe to go a retention time after the
    commit. In one of the classic protocol retention counts from when the group became empty; in a group of simple
    consumers, and for topics that a stable group of consumers does not subscribe to, from the commit. A client's own
    expiry time goes before all that. While a classic group rebalances, or does not say what it subscribes to, nothing
    goes.
    """
    in_use = group.subscribed_topics if isinstance(group, ConsumerGroup) else topics_in_use(group)
    if in_use is None:
        return []
    became_empty_ms = _became_empty_ms(group, persisted) if isinstance(group, ClassicGroup) else None
    return [
        topic_partition
        for topic_partition, offset in offsets.items()
        if topic_partition[0] not in in_use and _has_expired(offset, became_empty_ms, passed, retention_ms)
    ]


def _has_expired(offset: CommittedOffset, became_empty_ms: int | None, passed: Passed, retention_ms: int) -> bool:
    since_ms = offset.commit_timestamp_ms
    if offset.expire_timestamp_ms != NO_TIMESTAMP:
        retention_ms = offset.expire_timestamp_ms - since_ms
    elif became_empty_ms is not None:
        since_ms = became_empty_ms
    return passed.since(since_ms) >= retention_ms


def _became_empty_ms(group: ClassicGroup, persisted: PersistedGroup | None) -> int | None:
    is_empty = group.protocol_type is not None and group.state is GroupState.EMPTY
    if not is_empty or persisted is None or persisted.state_timestamp_ms == NO_TIMESTAMP:
        return None
    return persisted.state_timestamp_ms


def topics_in_use(group: ClassicGroup | None) -> frozenset[str] | None:
    """Topics whose offsets must stay; None when all must."""
    if group is None or group.protocol_type is None or group.state is GroupState.EMPTY:
        return frozenset()
    if group.state is not GroupState.STABLE or group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    try:
        return frozenset().union(*(subscribed_topics(member.metadata(group.protocol)) for member in group.roster))
    except SubscriptionError:
        return None

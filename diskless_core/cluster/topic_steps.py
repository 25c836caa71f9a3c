"""What is left to do for a topic once the cluster shard has decided about it, as the shard's tables say. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from diskless_core.cluster.tables import PLACEMENTS, REMOVED, TOPICS, UNSETTLED, RemovedTopic
from diskless_core.coordinator.tables import State, Writes

LISTENERS = -1
"""The step of whoever is told of deletions. The others are a Diskless coordinator's each, by its index."""


class TopicSteps(NamedTuple):
    """What is left to do for one topic.

    Attributes:
        partition_count: how many partitions the topic has; 0 when it was removed.
        left: the partitions to create, by the step that has to do it; none where it has to delete.
    """

    name: str
    partition_count: int
    left: dict[int, list[int]]


def creation(state: State, topic_id: bytes) -> TopicSteps | None:
    """The partitions that coordinators may lack; None when they have them all, or there is no such topic."""
    topic, first = state.committed(TOPICS, (topic_id,)), state.committed(UNSETTLED, (topic_id,))
    if topic is None or first is None:
        return None
    left: dict[int, list[int]] = {}
    placements = state.committed(PLACEMENTS, (topic_id,)) or ()
    for partition in range(first, len(placements)):
        left.setdefault(placements[partition], []).append(partition)
    return TopicSteps(topic.name, topic.partition_count, left)


def deletion(removed: RemovedTopic) -> TopicSteps:
    """Telling of it, and the partitions that coordinators may still have."""
    return TopicSteps(removed.name, 0, {step: [] for step in (LISTENERS, *removed.shards)})


def is_unsettled(state: State, topic_id: bytes) -> bool:
    """Whether something may be left to do for a topic, or for one that is gone."""
    key = (topic_id,)
    return state.committed(UNSETTLED, key) is not None or state.committed(REMOVED, key) is not None


def partition_count(state: State, topic_id: bytes) -> int:
    """How many partitions a topic has; 0 when there is none, or none any more."""
    topic = state.committed(TOPICS, (topic_id,))
    return topic.partition_count if topic is not None else 0


def all_unsettled(state: State) -> Iterator[tuple[bytes, TopicSteps]]:
    """All topics that something may be left to do for."""
    for (topic_id,), removed in state.rows(REMOVED):
        yield topic_id, deletion(removed)
    for (topic_id,), _ in state.rows(UNSETTLED):
        steps = creation(state, topic_id)
        if steps is not None:
            yield topic_id, steps


def newly_decided(state: State, writes: Writes) -> Iterator[tuple[bytes, TopicSteps]]:
    """The topics that an entry decided about. Its writes are in `state` already."""
    for (topic_id,), removed in writes.get(REMOVED, {}).items():
        if removed is not None:
            yield topic_id, deletion(removed)
    for (topic_id,), placements in writes.get(PLACEMENTS, {}).items():
        steps = creation(state, topic_id) if placements is not None else None
        if steps is not None:
            yield topic_id, steps

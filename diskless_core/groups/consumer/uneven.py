"""The uniform assignor's harder half: members that do not all subscribe to the same topics."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from diskless_core.groups.consumer.model import TopicIdPartition

_Owned = dict[str, set[TopicIdPartition]]


def assign_unevenly(
    kept: Mapping[str, set[TopicIdPartition]],
    subscribed: Mapping[str, frozenset[uuid.UUID]],
    counts: Mapping[uuid.UUID, int],
) -> _Owned:
    """Give what nobody has to the least loaded subscriber, then even out.

    In the end no partition has an owner with two partitions more than another subscriber of its topic. Every move
    brings two loads closer to each other, so the number of moves is limited.
    """
    owned: _Owned = {member_id: set(partitions) for member_id, partitions in kept.items()}
    subscribers = {
        topic_id: [member_id for member_id in owned if topic_id in subscribed[member_id]]
        for topic_id in {topic for topics in subscribed.values() for topic in topics}
    }
    # Topics that few can take go first, while those few are still free.
    topics = sorted(subscribers, key=lambda topic_id: (len(subscribers[topic_id]), topic_id))
    taken = set().union(*owned.values())
    for topic_id in topics:
        for number in range(counts[topic_id]):
            partition = TopicIdPartition(topic_id, number)
            if partition not in taken:
                owned[_least_loaded(owned, subscribers[topic_id])].add(partition)
    while any(_even_out(topic_id, subscribers[topic_id], owned) for topic_id in topics):
        pass
    return owned


def _least_loaded(owned: _Owned, members: list[str]) -> str:
    return min(members, key=lambda member_id: len(owned[member_id]))


def _even_out(topic_id: uuid.UUID, subscribers: list[str], owned: _Owned) -> bool:
    """Move partitions of one topic to less loaded subscribers; whether there were any to move."""
    moved = False
    of_topic = {
        member_id: sorted((one for one in owned[member_id] if one.topic_id == topic_id), reverse=True)
        for member_id in subscribers
    }
    while True:
        giver = max(
            (member_id for member_id in subscribers if of_topic[member_id]),
            key=lambda member_id: len(owned[member_id]),
            default=None,
        )
        taker = _least_loaded(owned, subscribers)
        if giver is None or len(owned[giver]) - len(owned[taker]) < 2:
            return moved
        partition = of_topic[giver].pop(0)
        owned[giver].remove(partition)
        owned[taker].add(partition)
        of_topic[taker].append(partition)
        moved = True

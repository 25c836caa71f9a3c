"""Server-side assignors: which member is to own which partition. Pure, deterministic, sticky to the last target.

Both give every partition of a subscribed topic to exactly one member that subscribes to it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from diskless_core.groups.consumer.model import Partitions, TopicIdPartition
from diskless_core.groups.consumer.uneven import assign_unevenly


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as an assignor sees it.

    Attributes:
        instance_id: of a static member; such members keep their place in the order of members when their id changes.
        topics: ids of existing topics that it subscribes to.
        target: what it was to own so far.
    """

    instance_id: str | None = None
    topics: frozenset[uuid.UUID]
    target: Partitions = frozenset()


Assignor = Callable[[Mapping[str, Subscriber], Mapping[uuid.UUID, int]], dict[str, Partitions]]
"""From at least one member and the partition counts of their topics to what each member is to own."""


def uniform(members: Mapping[str, Subscriber], counts: Mapping[uuid.UUID, int]) -> dict[str, Partitions]:
    """Members that could share a partition differ by at most one partition in all; beyond that nothing moves."""
    kept = {member_id: set(_kept(members[member_id], counts)) for member_id in _in_order(members)}
    if len({member.topics for member in members.values()}) > 1:
        subscribed = {member_id: member.topics for member_id, member in members.items()}
        return _frozen(assign_unevenly(kept, subscribed, counts))
    return _frozen(_assign_evenly(kept, _wanted(members, counts)))


def assign_by_range(members: Mapping[str, Subscriber], counts: Mapping[uuid.UUID, int]) -> dict[str, Partitions]:
    """Topic by topic, so that equal topics with the same subscribers are assigned alike, which joins need."""
    assigned: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
    order = _in_order(members)
    for topic_id in sorted({topic for member in members.values() for topic in member.topics}):
        subscribers = [member_id for member_id in order if topic_id in members[member_id].topics]
        kept = {
            member_id: sorted(
                one.partition
                for one in members[member_id].target
                if one.topic_id == topic_id and one.partition < counts[topic_id]
            )
            for member_id in subscribers
        }
        for member_id, numbers in _ranges(kept, counts[topic_id]):
            assigned[member_id].update(TopicIdPartition(topic_id, number) for number in numbers)
    return _frozen(assigned)


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": assign_by_range}
"""All assignors by the name that clients and settings use."""


def _in_order(members: Mapping[str, Subscriber]) -> list[str]:
    """Static members first, by instance id; the others by member id."""

    def key(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or member_id

    return sorted(members, key=key)


def _kept(member: Subscriber, counts: Mapping[uuid.UUID, int]) -> Iterator[TopicIdPartition]:
    return (one for one in member.target if one.topic_id in member.topics and one.partition < counts[one.topic_id])


def _wanted(members: Mapping[str, Subscriber], counts: Mapping[uuid.UUID, int]) -> list[TopicIdPartition]:
    topics = sorted({topic for member in members.values() for topic in member.topics})
    return [TopicIdPartition(topic, number) for topic in topics for number in range(counts[topic])]


def _frozen(assigned: Mapping[str, set[TopicIdPartition]]) -> dict[str, Partitions]:
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _assign_evenly(
    kept: Mapping[str, set[TopicIdPartition]], wanted: Sequence[TopicIdPartition]
) -> dict[str, set[TopicIdPartition]]:
    """All members subscribe to the same: each gets its share, and who has one too many already is let keep it."""
    share, extra = divmod(len(wanted), len(kept))
    by_load = sorted(kept, key=lambda member_id: -len(kept[member_id]))
    quotas = {member_id: share + (place < extra) for place, member_id in enumerate(by_load)}
    assigned = {member_id: _at_most(partitions, quotas[member_id]) for member_id, partitions in kept.items()}
    taken = set().union(*assigned.values())
    free = iter([one for one in wanted if one not in taken])
    for member_id, partitions in assigned.items():
        partitions.update(islice(free, quotas[member_id] - len(partitions)))
    return assigned


def _at_most(partitions: set[TopicIdPartition], count: int) -> set[TopicIdPartition]:
    return partitions if len(partitions) <= count else set(sorted(partitions)[:count])


def _ranges(kept: Mapping[str, list[int]], count: int) -> Iterator[tuple[str, list[int]]]:
    """Shares of one topic: of what it has, a member keeps up to its share; the rest goes out in ranges."""
    share, extra = divmod(count, len(kept))
    quotas = {}
    for member_id, numbers in kept.items():
        has_extra = extra > 0 and len(numbers) > share
        quotas[member_id] = share + has_extra
        extra -= has_extra
    for member_id in kept:
        if extra and quotas[member_id] == share:
            quotas[member_id] += 1
            extra -= 1
    retained = {member_id: numbers[: quotas[member_id]] for member_id, numbers in kept.items()}
    taken = {number for numbers in retained.values() for number in numbers}
    free = [number for number in range(count) if number not in taken]
    for member_id, numbers in retained.items():
        missing = quotas[member_id] - len(numbers)
        yield member_id, numbers + free[:missing]
        free = free[missing:]

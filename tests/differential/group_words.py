"""The requests of consumer groups in few words."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.differential.language import Answer, Ask, Step, The, ask
from tests.differential.words import on, saving, until

TOPIC_ID = The("id")
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 27, 79


def subscription(*topics: str) -> bytes:
    """What a consumer tells about itself in JoinGroup, version 0."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def join(member: Any = "", *, group: str = "$", instance: str | None = None, **options: Any) -> Ask:
    fields = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription()}],
        "reason": None,
    }
    return ask("JoinGroup", **(fields | options))


def sync(
    member: Any,
    generation: int = 1,
    assignments: Sequence[tuple[Any, bytes]] = (),
    *,
    group: str = "$",
    **options: Any,
) -> Ask:
    fields = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": found, "assignment": data} for found, data in assignments],
    }
    return ask("SyncGroup", **(fields | options))


def heartbeat(member: Any, generation: int = 1, *, group: str = "$", instance: str | None = None) -> Ask:
    return ask("Heartbeat", group_id=group, generation_id=generation, member_id=member, group_instance_id=instance)


def leave(*members: Any, group: str = "$") -> Ask:
    """LeaveGroup of members by their ids, or by pairs of member id and instance id."""
    pairs = [member if isinstance(member, tuple) else (member, None) for member in members]
    listed = [{"member_id": member, "group_instance_id": instance, "reason": None} for member, instance in pairs]
    return ask("LeaveGroup", group_id=group, member_id=pairs[0][0] if pairs else "", members=listed)


def member(name: str = "m", *, group: str = "$", **options: Any) -> tuple[Step, ...]:
    """The first member of a group, which is stable then, at generation 1; its id is saved."""
    first = saving(join(group=group, **options), **{name: "member_id"})
    return (
        replace(first, version=9, shown=False),
        replace(join(The(name), group=group, **options), version=9, shown=False),
        replace(sync(The(name), assignments=[(The(name), b"mine")], group=group), version=5, shown=False),
    )


def second_member(name: str = "n", *, first: str = "m", group: str = "$") -> tuple[Step, ...]:
    """Another member begins to join on a connection of its own, and the first one has heard of it."""
    return (
        replace(on(name, saving(join(group=group), **{name: "member_id"})), version=9, shown=False),
        replace(on(name, join(The(name), group=group)), version=9, answer=Answer.LATER),
        until(heartbeat(The(first), group=group), {"error_code": REBALANCE_IN_PROGRESS}, shown=True),
    )


def commit(
    offsets: Mapping[int, int],
    *,
    member: Any = "",
    generation: int = -1,
    group: str = "$",
    topic: str = "$",
    topic_id: Any = TOPIC_ID,
    epoch: int = -1,
    metadata: str | None = "m",
    **options: Any,
) -> Ask:
    """OffsetCommit for partitions of one topic; without a member it is a simple consumer's."""
    partitions = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "committed_metadata": metadata,
        }
        for partition, offset in offsets.items()
    ]
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": [{"name": topic, "topic_id": topic_id, "partitions": partitions}],
    }
    return ask("OffsetCommit", **(fields | options))


def committed(*partitions: int, group: str = "$", topic: str = "$", topic_id: Any = TOPIC_ID, **options: Any) -> Ask:
    """OffsetFetch of partitions of one topic."""
    topics = [{"name": topic, "topic_id": topic_id, "partition_indexes": list(partitions)}]
    return _committed(group, topics, options)


def all_committed(group: str = "$", **options: Any) -> Ask:
    return _committed(group, None, options)


def _committed(group: str, topics: list[dict[str, Any]] | None, options: Mapping[str, Any]) -> Ask:
    of_group = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics} | options
    plain = None
    if topics is not None:
        plain = [{"name": topic["name"], "partition_indexes": topic["partition_indexes"]} for topic in topics]
    return ask("OffsetFetch", group_id=group, topics=plain, groups=[of_group], require_stable=False)


def describe_groups(*groups: str, operations: bool = False) -> Ask:
    return ask("DescribeGroups", groups=list(groups), include_authorized_operations=operations)


def list_groups(states: Sequence[str] = (), types: Sequence[str] = ()) -> Ask:
    listed = ask("ListGroups", states_filter=list(states), types_filter=list(types))
    return replace(listed, only_own=True)


def delete_groups(*groups: str) -> Ask:
    return ask("DeleteGroups", groups_names=list(groups))


def delete_offsets(*partitions: int, group: str = "$", topic: str = "$") -> Ask:
    indexes = [{"partition_index": partition} for partition in partitions]
    return ask("OffsetDelete", group_id=group, topics=[{"name": topic, "partitions": indexes}])

"""Between ConsumerGroupHeartbeat and ConsumerGroupDescribe as messages and the values that the protocol works with."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable
from itertools import groupby

from diskless_core.groups.consumer.changes import preferred_assignor
from diskless_core.groups.consumer.model import ConsumerGroup, TopicIdPartition
from diskless_core.groups.consumer.requests import Heartbeat, HeartbeatAnswer, HeartbeatRefusedError
from diskless_core.groups.topics import TopicCatalog
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode

DescribedGroup = messages.ConsumerGroupDescribeResponse.DescribedGroup
Assignment = DescribedGroup.Member.Assignment

_NO_TOPIC = uuid.UUID(int=0)
_CONSUMER_MEMBER = 1
_NO_EPOCH = 0
_REGEX_SINCE = 1


def heartbeat_of(
    request: messages.ConsumerGroupHeartbeatRequest,
    version: int,
    *,
    new_member_id: str,
    client_id: str,
    client_host: str,
) -> Heartbeat:
    """A decoded ConsumerGroupHeartbeat request as a value."""
    owned = request.topic_partitions
    names = request.subscribed_topic_names
    return Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        new_member_id=new_member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=frozenset(names) if names is not None else None,
        topic_regex=request.subscribed_topic_regex if version >= _REGEX_SINCE else None,
        server_assignor=request.server_assignor,
        owned=frozenset(
            TopicIdPartition(topic.topic_id or _NO_TOPIC, number) for topic in owned for number in topic.partitions
        )
        if owned is not None
        else None,
        client_id=client_id,
        client_host=client_host,
    )


def heartbeat_response(answer: HeartbeatAnswer, interval_ms: int) -> messages.ConsumerGroupHeartbeatResponse:
    """What a member hears."""
    response_class = messages.ConsumerGroupHeartbeatResponse
    assignment = None
    if answer.assignment is not None:
        topics = _by_topic(answer.assignment)
        topic_class = response_class.Assignment.TopicPartitions
        entries = [topic_class(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics]
        assignment = response_class.Assignment(topic_partitions=entries)
    return response_class(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=interval_ms if answer.epoch >= 0 else 0,
        assignment=assignment,
    )


def heartbeat_error(code: ErrorCode, message: str | None = None) -> messages.ConsumerGroupHeartbeatResponse:
    """What somebody hears who may not be a member, or not now."""
    return messages.ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=code,
        error_message=message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
        assignment=None,
    )


def refused(error: HeartbeatRefusedError) -> messages.ConsumerGroupHeartbeatResponse:
    return heartbeat_error(error.code, str(error))


def not_described(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    """The entry of a group that cannot be described."""
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=_NO_EPOCH,
        assignment_epoch=_NO_EPOCH,
        assignor_name="",
        members=[],
        authorized_operations=None,
    )


def described(
    group_id: str,
    group: ConsumerGroup,
    assignors: tuple[str, ...],
    topics: TopicCatalog,
    operations: Collection[int] | None,
) -> DescribedGroup:
    """A group with its members. Partitions of topics that are gone are left out."""
    return DescribedGroup(
        error_code=0,
        error_message=None,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group, assignors),
        members=[_member(group, member_id, topics.name_of) for member_id in sorted(group.members)],
        authorized_operations=operations,
    )


def _member(group: ConsumerGroup, member_id: str, name_of: Callable[[uuid.UUID], str | None]) -> DescribedGroup.Member:
    metadata, current = group.members[member_id], group.current_of(member_id)
    return DescribedGroup.Member(
        member_id=member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.topic_names),
        subscribed_topic_regex=metadata.topic_regex or "",
        assignment=_assignment(current.assigned, name_of),
        target_assignment=_assignment(group.target_of(member_id), name_of),
        member_type=_CONSUMER_MEMBER,
    )


def _assignment(partitions: Iterable[TopicIdPartition], name_of: Callable[[uuid.UUID], str | None]) -> Assignment:
    entries = [
        Assignment.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
        for topic_id, numbers in _by_topic(partitions)
        if (name := name_of(topic_id)) is not None
    ]
    return Assignment(topic_partitions=entries)


def _by_topic(partitions: Iterable[TopicIdPartition]) -> list[tuple[uuid.UUID, list[int]]]:
    return [
        (topic_id, [one.partition for one in of_topic])
        for topic_id, of_topic in groupby(sorted(partitions), key=lambda one: one.topic_id)
    ]

"""What an administrator asks of groups: to list and describe them, to delete them, or some of their offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.state_machine import Command
from diskless_core.groups.classic import ClassicGroup
from diskless_core.groups.consumer.model import ConsumerGroup
from diskless_core.groups.consumer.records import tombstones
from diskless_core.groups.effects import GroupState
from diskless_core.groups.offsets import CONSUMER_PROTOCOL_TYPE, topics_in_use
from diskless_core.groups.records import GroupRecord, GroupsRecord, OffsetRecord
from diskless_core.groups.registry import GroupRegistry
from diskless_core.groups.roster import Member
from diskless_core.groups.shard import GroupsShard
from diskless_core.groups.tables import CONSUMER_GROUPS, GROUP_OFFSETS, GROUPS
from diskless_core.groups.topics import TopicCatalog
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode

_NOT_FOUND_SINCE = 6
_CLASSIC, _CONSUMER = "classic", "consumer"
ALL_GROUP_OPERATIONS = frozenset({3, 6, 8, 10, 11})
"""Kafka's AclOperation codes for a group: READ, DELETE, DESCRIBE, and the configs'."""

ListedGroup = messages.ListGroupsResponse.ListedGroup
DescribedGroup = messages.DescribeGroupsResponse.DescribedGroup
AskedTopic = messages.OffsetDeleteRequest.OffsetDeleteRequestTopic
OffsetsTopic = messages.OffsetDeleteResponse.OffsetDeleteResponseTopic


class GroupAdministration:
    """Answers ListGroups, DescribeGroups, DeleteGroups and OffsetDelete."""

    def __init__(self, shard: GroupsShard, registry: GroupRegistry) -> None:
        self._shard = shard
        self._registry = registry

    # --- looking -------------------------------------------------------------------------------------------------

    async def list(self, request: messages.ListGroupsRequest) -> Sequence[ListedGroup] | ErrorCode:
        """All groups in one of the states and of one of the types, written in any case; no filter lets all pass."""
        try:
            await self._registry.require_loaded()
        except CoordinatorError as error:
            return error.code
        states = {state.lower() for state in request.states_filter or ()}
        types = {kind.lower() for kind in request.types_filter or ()}
        return [
            group
            for group_id in self._registry
            for group in self._listed(group_id)
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
        ]

    def _listed(self, group_id: str) -> Iterator[ListedGroup]:
        consumers, classic = self._committed_consumers(group_id), self._find(group_id)
        if consumers is not None:
            yield ListedGroup(
                group_id=group_id,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                group_state=consumers.state.value,
                group_type=_CONSUMER,
            )
        elif classic is not None:
            yield ListedGroup(
                group_id=group_id,
                protocol_type=classic.protocol_type or "",
                group_state=classic.state.value,
                group_type=_CLASSIC,
            )

    def _committed_consumers(self, group_id: str) -> ConsumerGroup | None:
        return self._shard.state.committed(CONSUMER_GROUPS, (group_id,))

    async def describe(self, group_id: str, version: int, with_operations: bool) -> DescribedGroup:
        """A group with its members. One that does not exist is a dead one; since version 6 also an error."""
        operations = ALL_GROUP_OPERATIONS if with_operations else None
        try:
            await self._registry.require_loaded()
        except CoordinatorError as error:
            return _described(group_id, operations, error=error.code)
        return self._describe(group_id, operations, version)

    def _describe(self, group_id: str, operations: Collection[int] | None, version: int) -> DescribedGroup:
        group = self._find(group_id)
        if group is not None:
            return _described(group_id, operations, group)
        is_consumers = self._committed_consumers(group_id) is not None
        if version < _NOT_FOUND_SINCE:
            return _described(group_id, operations, state=GroupState.DEAD)
        return _described(
            group_id,
            operations,
            state=GroupState.DEAD,
            error=ErrorCode.GROUP_ID_NOT_FOUND,
            message=f"Group {group_id} is not a classic group." if is_consumers else f"Group {group_id} not found.",
        )

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._registry.find(group_id)
        return group if group is not None and group.state is not GroupState.DEAD else None

    # --- deleting ------------------------------------------------------------------------------------------------

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, its offsets too. Answered once that is committed to the shard."""
        try:
            await self._registry.require_loaded()
            error = await self._shard.submit(partial(self._delete_group, group_id))
        except CoordinatorError as failure:
            return failure.code
        if error is ErrorCode.NONE:
            self._registry.forget_if_empty(group_id)
        return error

    def _delete_group(self, group_id: str, command: Command[GroupsRecord]) -> ErrorCode:
        offsets = list(command.tx.keys(GROUP_OFFSETS, (group_id,)))
        consumers, group = command.get(CONSUMER_GROUPS, (group_id,)), self._find(group_id)
        if consumers is None and group is None and not offsets:
            return ErrorCode.GROUP_ID_NOT_FOUND
        has_members = group is not None and group.state is not GroupState.EMPTY
        if has_members or (consumers is not None and consumers.members):
            return ErrorCode.NON_EMPTY_GROUP
        for record in tombstones(group_id, consumers) if consumers is not None else ():
            command.emit(record)
        for _, topic, partition in offsets:
            command.emit(OffsetRecord(group_id=group_id, topic=topic, partition=partition, value=None))
        if command.get(GROUPS, (group_id,)) is not None:
            command.emit(GroupRecord(group_id=group_id, value=None))
        return ErrorCode.NONE

    async def delete_offsets(
        self, request: messages.OffsetDeleteRequest, topics: TopicCatalog
    ) -> messages.OffsetDeleteResponse:
        """Delete committed offsets of topics that nobody in the group subscribes to. One without offset is fine."""
        group_id = request.group_id
        if not group_id:
            return messages.OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, throttle_time_ms=0, topics=[])
        known = [topic for topic in request.topics if topics.partition_count(topic.name) is not None]
        outcome: dict[str, ErrorCode] | ErrorCode = {}
        try:
            await self._registry.require_loaded()
            if known:
                outcome = await self._shard.submit(partial(self._delete_offsets, group_id, known))
        except CoordinatorError as failure:
            outcome = failure.code
        if isinstance(outcome, ErrorCode):
            return messages.OffsetDeleteResponse(error_code=outcome, throttle_time_ms=0, topics=[])
        errors = {topic.name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in request.topics} | outcome
        return messages.OffsetDeleteResponse(
            error_code=0,
            throttle_time_ms=0,
            topics=[
                _offsets_deleted(topic, errors[topic.name], topics.partition_count(topic.name) or 0)
                for topic in request.topics
            ],
        )

    def _delete_offsets(
        self, group_id: str, topics: Sequence[AskedTopic], command: Command[GroupsRecord]
    ) -> dict[str, ErrorCode] | ErrorCode:
        consumers, group = command.get(CONSUMER_GROUPS, (group_id,)), self._find(group_id)
        in_use: Collection[str] | None
        if consumers is not None:
            in_use = consumers.subscribed_topics
        elif group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP
        else:
            in_use = topics_in_use(group)
        errors = {}
        for topic in topics:
            is_subscribed = in_use is None or topic.name in in_use
            errors[topic.name] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
            for partition in [] if is_subscribed else topic.partitions:
                index = partition.partition_index
                if command.get(GROUP_OFFSETS, (group_id, topic.name, index)) is not None:
                    command.emit(OffsetRecord(group_id=group_id, topic=topic.name, partition=index, value=None))
        return errors


def _described(
    group_id: str,
    operations: Collection[int] | None,
    group: ClassicGroup | None = None,
    *,
    state: str = "",
    error: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
) -> DescribedGroup:
    protocol = group.protocol if group is not None and group.state is GroupState.STABLE else None
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=group.state.value if group is not None else str(state),
        protocol_type=(group.protocol_type or "") if group is not None else "",
        protocol_data=protocol or "",
        members=[_member(member, protocol) for member in group.roster] if group is not None else [],
        authorized_operations=operations,
    )


def _member(member: Member, protocol: str | None) -> DescribedGroup.DescribedGroupMember:
    """A member; what it subscribes to and has been assigned counts only in a stable group."""
    return DescribedGroup.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol),
        member_assignment=member.assignment,
    )


def _offsets_deleted(topic: AskedTopic, error: ErrorCode, partition_count: int) -> OffsetsTopic:
    partitions = []
    for one in topic.partitions:
        is_there = 0 <= one.partition_index < partition_count
        code = error if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions.append(
            OffsetsTopic.OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=code)
        )
    return OffsetsTopic(name=topic.name, partitions=partitions)

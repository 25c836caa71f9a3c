"""OffsetFetch: what is found, and the two shapes in which its versions answer it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.groups.consumer.offset_checks import check_fetch
from diskless_core.groups.model import NO_LEADER_EPOCH, CommittedOffset
from diskless_core.groups.offsets import TopicPartition
from diskless_core.groups.registry import GroupRegistry
from diskless_core.groups.shard import GroupsShard
from diskless_core.groups.topics import TOPIC_IDS_SINCE, CatchUp, TopicCatalog, may_mean_others, resolve
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode

AskedGroup = messages.OffsetFetchRequest.OffsetFetchRequestGroup
AskedTopic = messages.OffsetFetchRequest.OffsetFetchRequestTopic | AskedGroup.OffsetFetchRequestTopics
AnsweredGroup = messages.OffsetFetchResponse.OffsetFetchResponseGroup
GroupedTopic = AnsweredGroup.OffsetFetchResponseTopics
FlatTopic = messages.OffsetFetchResponse.OffsetFetchResponseTopic
PartitionT = TypeVar("PartitionT")

NO_OFFSET = -1
_GROUP_ERROR_SINCE = 2
_MEMBER_EPOCH_SINCE = 9

_Found = Sequence[tuple[int, CommittedOffset | None]]
"""Partitions, each with its offset, None where the group has none."""


@dataclass(frozen=True, slots=True)
class _Topic:
    """What is answered of a topic."""

    name: str
    topic_id: uuid.UUID | None
    found: _Found
    error: ErrorCode = ErrorCode.NONE


class OffsetFetcher:
    """Answers OffsetFetch."""

    def __init__(self, shard: GroupsShard, registry: GroupRegistry, catch_up: CatchUp) -> None:
        self._shard = shard
        self._registry = registry
        self._catch_up = catch_up

    async def fetch(
        self, request: messages.OffsetFetchRequest, version: int, topics: TopicCatalog
    ) -> messages.OffsetFetchResponse:
        """The answer of versions below 8, which have one group.

        It is what is known to be committed by a leader that has just proved to be one still. There are no
        transactions, so every offset is as stable as `require_stable` may ask for.
        """
        error = await self._read_barrier(by_name=True)
        if error is not ErrorCode.NONE:
            return _refusal(request, version, error)
        found = self._find(request.group_id, request.topics, version, topics)
        return messages.OffsetFetchResponse(topics=[_flat_topic(topic) for topic in found])

    async def fetch_of_groups(
        self, groups: Sequence[AskedGroup], version: int, topics: TopicCatalog
    ) -> Sequence[AnsweredGroup]:
        """The same for the groups of later versions."""
        by_name = any(group.topics is None or may_mean_others(group.topics, version, topics) for group in groups)
        error = await self._read_barrier(by_name=by_name)
        return [self._answer_group(group, version, topics, error) for group in groups]

    async def _read_barrier(self, *, by_name: bool) -> ErrorCode:
        """Get to know all that was committed, and where topics are named, which topics have the names."""
        try:
            await self._registry.require_loaded()
            if by_name:
                await self._catch_up()
            await self._shard.barrier()
        except CoordinatorError as error:
            return error.code
        return ErrorCode.NONE

    def _answer_group(self, group: AskedGroup, version: int, topics: TopicCatalog, error: ErrorCode) -> AnsweredGroup:
        if error is not ErrorCode.NONE:
            return AnsweredGroup(group_id=group.group_id, topics=[], error_code=error)
        error = self._check_member(group, version)
        if error is not ErrorCode.NONE:
            return AnsweredGroup(group_id=group.group_id, topics=[], error_code=error)
        found = self._find(group.group_id, group.topics, version, topics)
        return AnsweredGroup(group_id=group.group_id, topics=[_grouped_topic(topic) for topic in found])

    def _check_member(self, group: AskedGroup, version: int) -> ErrorCode:
        if version < _MEMBER_EPOCH_SINCE:
            return ErrorCode.NONE
        consumers = self._registry.find_consumer(group.group_id)
        return check_fetch(consumers, group.member_id, group.member_epoch) if consumers is not None else ErrorCode.NONE

    def _find(
        self, group_id: str, wanted: Iterable[AskedTopic] | None, version: int, topics: TopicCatalog
    ) -> Sequence[_Topic]:
        offsets = self._registry.offsets.of(group_id)
        if wanted is None:
            return _all_topics(offsets, version, topics)
        return [_wanted_topic(topic, offsets, version, topics) for topic in wanted]


def _all_topics(
    offsets: Mapping[TopicPartition, CommittedOffset], version: int, topics: TopicCatalog
) -> Sequence[_Topic]:
    answered = []
    for name, rows in groupby(sorted(offsets), key=lambda topic_partition: topic_partition[0]):
        topic_id = topics.id_of(name)
        found = [(index, offsets[name, index]) for _, index in rows if _is_of(topic_id, offsets[name, index])]
        if found and (topic_id is not None or version < TOPIC_IDS_SINCE):
            answered.append(_Topic(name, topic_id, found))
    return answered


def _wanted_topic(
    topic: AskedTopic, offsets: Mapping[TopicPartition, CommittedOffset], version: int, topics: TopicCatalog
) -> _Topic:
    asked_id = topic.topic_id if isinstance(topic, AskedGroup.OffsetFetchRequestTopics) else None
    name, topic_id, error = resolve(topic.name, asked_id, version, topics)
    if name is None:
        return _Topic("", topic_id, [(index, None) for index in topic.partition_indexes], error)
    found = []
    for index in topic.partition_indexes:
        offset = offsets.get((name, index))
        found.append((index, offset if offset is not None and _is_of(topic_id, offset) else None))
    return _Topic(name, topic_id, found)


def _is_of(topic_id: uuid.UUID | None, offset: CommittedOffset) -> bool:
    """Whether an offset was committed for the topic that has the name now, not for one deleted since."""
    return None in (topic_id, offset.topic_id) or topic_id == offset.topic_id


def _refusal(request: messages.OffsetFetchRequest, version: int, error: ErrorCode) -> messages.OffsetFetchResponse:
    """The answer of versions below 8 to a group-wide error. Version 1 has no place for it but the partitions."""
    if version >= _GROUP_ERROR_SINCE:
        return messages.OffsetFetchResponse(topics=[], error_code=error)
    refused = [
        _Topic(topic.name, None, [(index, None) for index in topic.partition_indexes], error)
        for topic in request.topics or ()
    ]
    return messages.OffsetFetchResponse(topics=[_flat_topic(topic) for topic in refused])


def _flat_topic(topic: _Topic) -> FlatTopic:
    partitions = _partitions(FlatTopic.OffsetFetchResponsePartition, topic)
    return FlatTopic(name=topic.name, partitions=partitions)


def _grouped_topic(topic: _Topic) -> GroupedTopic:
    partitions = _partitions(GroupedTopic.OffsetFetchResponsePartitions, topic)
    return GroupedTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _partitions(partition_class: Callable[..., PartitionT], topic: _Topic) -> list[PartitionT]:
    return [
        partition_class(
            partition_index=index,
            committed_offset=offset.offset if offset is not None else NO_OFFSET,
            committed_leader_epoch=offset.leader_epoch if offset is not None else NO_LEADER_EPOCH,
            metadata=offset.metadata if offset is not None else "",
            error_code=topic.error,
        )
        for index, offset in topic.found
    ]

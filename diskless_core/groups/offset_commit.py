"""OffsetCommit: which of its offsets may be stored, and their records."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.state_machine import Command
from diskless_core.groups.consumer.model import TopicIdPartition
from diskless_core.groups.consumer.offset_checks import check_commit
from diskless_core.groups.model import NO_LEADER_EPOCH, NO_TIMESTAMP, CommittedOffset
from diskless_core.groups.records import GroupsRecord, OffsetRecord
from diskless_core.groups.registry import GroupRegistry
from diskless_core.groups.settings import GroupSettings
from diskless_core.groups.shard import GroupsShard
from diskless_core.groups.topics import CatchUp, TopicCatalog, may_mean_others, resolve
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode

AskedTopic = messages.OffsetCommitRequest.OffsetCommitRequestTopic
AnsweredTopic = messages.OffsetCommitResponse.OffsetCommitResponseTopic

_GROUP_ID_NOT_FOUND_SINCE = 9


@dataclass(slots=True)
class _Part:
    """One partition of a request, and what becomes of it."""

    topic: str
    topic_id: uuid.UUID | None
    request: AskedTopic.OffsetCommitRequestPartition
    error: ErrorCode = ErrorCode.NONE


class OffsetCommitter:
    """Answers OffsetCommit."""

    def __init__(self, shard: GroupsShard, registry: GroupRegistry, settings: GroupSettings, catch_up: CatchUp) -> None:
        self._shard = shard
        self._registry = registry
        self._settings = settings
        self._catch_up = catch_up

    async def commit(
        self, request: messages.OffsetCommitRequest, version: int, topics: TopicCatalog
    ) -> messages.OffsetCommitResponse:
        """Answer once the offsets are committed to the shard, all of them in one entry.

        An offset stands under the id of its topic. So what a name means is looked up when this node knows all topics
        that the client may know: under the id of one that was deleted since, the offset would go with that one.
        """
        behind = ErrorCode.NONE
        if self._registry.is_loaded and may_mean_others(request.topics, version, topics):
            try:
                await self._catch_up()
            except CoordinatorError as error:
                behind = error.code
        parts = [_parts(topic, version, topics) for topic in request.topics]
        known = [part for of_topic in parts for part in of_topic if part.error is ErrorCode.NONE]
        if behind is not ErrorCode.NONE:
            _mark((part for of_topic in parts for part in of_topic), behind)
        elif known:
            try:
                await self._store(request, version, known)
            except CoordinatorError as error:
                _mark(known, error.code)
        answers = zip(request.topics, parts, strict=True)
        return messages.OffsetCommitResponse(
            topics=[_answer(topic, of_topic) for topic, of_topic in answers if of_topic]
        )

    async def _store(self, request: messages.OffsetCommitRequest, version: int, parts: Sequence[_Part]) -> None:
        await self._registry.require_loaded()
        error = self._check(request, version, parts)
        if error is not ErrorCode.NONE:
            _mark(parts, error)
            return
        too_large = [part for part in parts if self._has_too_much_metadata(part)]
        _mark(too_large, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        good = [part for part in parts if part.error is ErrorCode.NONE]

        def write(command: Command[GroupsRecord]) -> None:
            for part in good:
                command.emit(_record(request, part, command.now_ms))

        if good:
            await self._shard.submit(write)

    def _check(self, request: messages.OffsetCommitRequest, version: int, parts: Sequence[_Part]) -> ErrorCode:
        generation = request.generation_id_or_member_epoch
        consumers = self._registry.find_consumer(request.group_id)
        if consumers is not None:
            partitions = [
                TopicIdPartition(part.topic_id, part.request.partition_index) for part in parts if part.topic_id
            ]
            return check_commit(consumers, request.member_id, generation, version, partitions)
        group = self._registry.find(request.group_id)
        if group is None:
            if generation < 0:
                return ErrorCode.NONE
            is_new_client = version >= _GROUP_ID_NOT_FOUND_SINCE
            return ErrorCode.GROUP_ID_NOT_FOUND if is_new_client else ErrorCode.ILLEGAL_GENERATION
        error = group.check_commit(request.member_id, request.group_instance_id, generation)
        self._registry.perform(group)
        return error

    def _has_too_much_metadata(self, part: _Part) -> bool:
        return len(part.request.committed_metadata or "") > self._settings.offset_metadata_max_bytes


def _mark(parts: Iterable[_Part], error: ErrorCode) -> None:
    for part in parts:
        part.error = error


def _parts(topic: AskedTopic, version: int, topics: TopicCatalog) -> list[_Part]:
    found = resolve(topic.name, topic.topic_id, version, topics)
    count = topics.partition_count(found.name) if found.name is not None else None
    parts = []
    for partition in topic.partitions:
        part = _Part(found.name or "", found.topic_id, partition, found.error)
        if found.error is ErrorCode.NONE and (count is None or not 0 <= partition.partition_index < count):
            part.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        parts.append(part)
    return parts


def _record(request: messages.OffsetCommitRequest, part: _Part, now_ms: int) -> OffsetRecord:
    retention_ms = request.retention_time_ms
    has_expiry = retention_ms >= 0
    value = CommittedOffset(
        offset=part.request.committed_offset,
        leader_epoch=NO_LEADER_EPOCH if has_expiry else part.request.committed_leader_epoch,
        metadata=part.request.committed_metadata or "",
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=now_ms + retention_ms if has_expiry else NO_TIMESTAMP,
        topic_id=None if has_expiry else part.topic_id,
    )
    partition = part.request.partition_index
    return OffsetRecord(group_id=request.group_id, topic=part.topic, partition=partition, value=value)


def _answer(topic: AskedTopic, parts: Iterable[_Part]) -> AnsweredTopic:
    partitions = [
        AnsweredTopic.OffsetCommitResponsePartition(partition_index=part.request.partition_index, error_code=part.error)
        for part in parts
    ]
    return AnsweredTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

"""Metadata and DescribeTopicPartitions: live brokers, topics, and who is to be taken for the leader of what.

Leaders are chosen for the client that asks; see `leader_choice`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.handlers.authorized_operations import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS, as_bits
from diskless_core.cluster import operations
from diskless_core.cluster.leader_choice import Leaders
from diskless_core.cluster.topics import TopicInfo, Topics
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)

PARTITIONS_IN_A_TURN = 1_000
"""Partitions, or topics without any, that are answered before others have their turn: some milliseconds."""

_ALL_WHEN_EMPTY_UNTIL = 0
_TOPIC_IDS_SINCE = 12
"""Versions 10 and 11 have the fields but not the meaning: Apache Kafka refuses them there (KAFKA-10547)."""

_LEADER_EPOCH = 0
_NOT_SHOWN = -(2**31)
_DEFAULT_PARTITION_LIMIT = 2000

AskedTopic = MetadataRequest.MetadataRequestTopic
MetadataTopic = MetadataResponse.MetadataResponseTopic
MetadataPartition = MetadataTopic.MetadataResponsePartition
DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
DescribedPartition = DescribedTopic.DescribeTopicPartitionsResponsePartition


class _Found(NamedTuple):
    """A topic that was asked for: what is known of it, or why nothing is."""

    error: ErrorCode
    name: str | None
    topic_id: uuid.UUID | None
    info: TopicInfo | None


async def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Handle Metadata; creates the topics asked for by name where client and broker allow it."""
    services, listener = context.services, context.listener
    asked = request.topics
    if asked is None or (not asked and context.api_version == _ALL_WHEN_EMPTY_UNTIL):
        found = [_known(info) for info in context.services.topics.all()]
    else:
        found = await _find_all(context, asked, allow_creation=request.allow_auto_topic_creation)
    leaders = context.leaders(request.rack_id)
    topics, pace = list[MetadataTopic](), 0
    for entry in found:
        shows_operations = request.include_topic_authorized_operations
        topics.append(_metadata_topic(entry, services.topics, leaders, shows_operations=shows_operations))
        pace += 1 + len(topics[-1].partitions)
        if pace >= PARTITIONS_IN_A_TURN:
            pace = 0
            await asyncio.sleep(0)
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=one.endpoint.node_id, host=one.endpoint.host, port=one.endpoint.port, rack=one.rack
            )
            for one in services.known_brokers(listener)
        ],
        cluster_id=context.services.cluster_id,
        controller_id=services.controller_for(listener),
        topics=topics,
        error_code=0,
        authorized_operations=ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else None,
    )


async def _find_all(context: RequestContext, topics: Sequence[AskedTopic], *, allow_creation: bool) -> list[_Found]:
    """Each topic once. Where any topic has an id, ids are all that counts, as in Apache Kafka."""
    asked = [(topic.name, topic.topic_id) for topic in topics]
    if context.api_version < _TOPIC_IDS_SINCE and any(name is None or topic_id for name, topic_id in asked):
        return [_Found(ErrorCode.INVALID_REQUEST, name or "", topic_id, None) for name, topic_id in asked]
    by_id = dict.fromkeys(topic_id for _, topic_id in asked if topic_id is not None)
    if by_id:
        return [_find_by_id(context, topic_id) for topic_id in by_id]
    found: list[_Found] = []
    for name in dict.fromkeys(name for name, _ in asked):
        found.append(await _find_by_name(context, name, allow_creation))
        if len(found) % PARTITIONS_IN_A_TURN == 0:
            await asyncio.sleep(0)
    return found


def _find_by_id(context: RequestContext, topic_id: uuid.UUID | None) -> _Found:
    info = context.services.topics.by_id(topic_id) if topic_id is not None else None
    return _known(info) if info is not None else _Found(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id, None)


async def _find_by_name(context: RequestContext, name: str | None, allow_creation: bool) -> _Found:
    topics = context.services.topics
    if name is None:
        return _find_by_id(context, None)
    info = topics.by_name(name)
    if info is not None:
        return _known(info)
    refusal = operations.check_topic_name(name)
    if refusal is not None:
        return _Found(refusal.code, name, None, None)
    if not (context.services.config.auto_create_topics_enable and allow_creation):
        return _Found(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, None, None)
    if not context.services.config.diskless_auto_create_topics_wait:
        context.services.auto_creation.begin(name, context.services.config.num_partitions, context.caller)
        return _Found(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, None, None)
    try:
        count = context.services.config.num_partitions
        created = await context.services.auto_creation.ensure(name, count, context.caller)
    except CoordinatorError:
        return _Found(ErrorCode.LEADER_NOT_AVAILABLE, name, None, None)
    if isinstance(created, TopicInfo):
        return _known(created)
    return _Found(created.code, name, None, None)


def _known(info: TopicInfo) -> _Found:
    return _Found(ErrorCode.NONE, info.name, info.topic_id, info)


def _leaders_of(info: TopicInfo | None, topics: Topics, leaders: Leaders) -> list[int]:
    """The leader of each partition of a topic."""
    if info is None:
        return []
    if leaders.only is not None:
        return [leaders.only] * info.partition_count
    shards = topics.shards_of(info.topic_id)
    known = [leaders.of(shard) for shard in shards[: info.partition_count]]
    return known + [leaders.of(None)] * (info.partition_count - len(known))


def _metadata_topic(found: _Found, topics: Topics, leaders: Leaders, *, shows_operations: bool) -> MetadataTopic:
    return MetadataTopic(
        error_code=int(found.error),
        name=found.name,
        topic_id=found.topic_id,
        is_internal=False,
        authorized_operations=ALL_TOPIC_OPERATIONS if shows_operations else None,
        partitions=[
            MetadataPartition(
                error_code=0,
                partition_index=partition,
                leader_id=node_id,
                leader_epoch=_LEADER_EPOCH,
                replica_nodes=[node_id],
                isr_nodes=[node_id],
                offline_replicas=[],
            )
            for partition, node_id in enumerate(_leaders_of(found.info, topics, leaders))
        ],
    )


def describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Handle DescribeTopicPartitions: topics by name, from the cursor on, as many partitions as were asked for."""
    leaders = context.leaders(request.rack_id)
    cursor = request.cursor
    asked = [topic.name for topic in request.topics]
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return _refused_description(asked, ErrorCode.INVALID_REQUEST)
    first = (cursor.topic_name, cursor.partition_index) if cursor is not None else ("", 0)
    limit = max(1, min(request.response_partition_limit, _DEFAULT_PARTITION_LIMIT))
    answers: list[DescribedTopic] = []
    next_cursor = None
    for name in _names(context, request.topics, first[0]):
        info = context.services.topics.by_name(name)
        start = first[1] if name == first[0] else 0
        if info is not None and limit == 0:
            next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=start)
            break
        nodes = _leaders_of(info, context.services.topics, leaders)
        count = len(nodes)
        shown = range(start, min(count, start + limit))
        answers.append(_described(name, info, shown, nodes))
        limit -= len(shown)
        if shown.stop < count and info is not None:
            next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=shown.stop)
            break
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=answers, next_cursor=next_cursor)


def _refused_description(names: Sequence[str], error: ErrorCode) -> DescribeTopicPartitionsResponse:
    topics = [
        DescribedTopic(error_code=int(error), name=name, partitions=[], topic_authorized_operations=_NOT_SHOWN)
        for name in names
    ]
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=None)


def _names(
    context: RequestContext, asked: Sequence[DescribeTopicPartitionsRequest.TopicRequest], first: str
) -> list[str]:
    names = {topic.name for topic in asked} or {info.name for info in context.services.topics.all()}
    return sorted(name for name in names if name >= first)


def _described(name: str, info: TopicInfo | None, shown: range, nodes: Sequence[int]) -> DescribedTopic:
    refusal = operations.check_topic_name(name) if info is None else None
    missing = refusal.code if refusal is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribedTopic(
        error_code=int(ErrorCode.NONE if info is not None else missing),
        name=name,
        topic_id=info.topic_id if info is not None else None,
        is_internal=False,
        partitions=[
            DescribedPartition(
                error_code=0,
                partition_index=partition,
                leader_id=nodes[partition],
                leader_epoch=_LEADER_EPOCH,
                replica_nodes=[nodes[partition]],
                isr_nodes=[nodes[partition]],
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[],
            )
            for partition in shown
        ],
        topic_authorized_operations=as_bits(ALL_TOPIC_OPERATIONS) if refusal is None else _NOT_SHOWN,
    )

"""Metadata and DescribeTopicPartitions: brokers, topics, and this broker as the leader of everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from diskless_core.broker.dispatch import RequestContext
from diskless_core.cluster import operations
from diskless_core.cluster.topics import TopicInfo
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DescribeTopicPartitionsResponse, MetadataResponse

_ALL_WHEN_EMPTY_UNTIL = 0
_LEADER_EPOCH = 0
_DEFAULT_PARTITION_LIMIT = 2000

MetadataTopic = MetadataResponse.MetadataResponseTopic
MetadataPartition = MetadataTopic.MetadataResponsePartition
DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
DescribedPartition = DescribedTopic.DescribeTopicPartitionsResponsePartition


class _Found(NamedTuple):
    """A topic that was asked for: what is known of it, or why nothing is."""

    error: ErrorCode
    name: str | None
    topic_id: Any
    info: TopicInfo | None


async def metadata(context: RequestContext, request: Any) -> Any:
    """Handle Metadata; creates the topics asked for by name where client and broker allow it."""
    endpoint = context.services.advertised(context.listener)
    if request.topics is None or (not request.topics and context.api_version == _ALL_WHEN_EMPTY_UNTIL):
        found = [_known(info) for info in context.services.topics.all()]
    else:
        found = [await _find(context, request, asked) for asked in request.topics]
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=endpoint.node_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=context.services.config.broker_rack,
            )
        ],
        cluster_id=context.services.cluster_id,
        controller_id=endpoint.node_id,
        topics=[_metadata_topic(entry, endpoint.node_id) for entry in found],
        error_code=0,
    )


async def _find(context: RequestContext, request: Any, asked: Any) -> _Found:
    topics = context.services.topics
    if asked.name is None:
        info = topics.by_id(asked.topic_id) if asked.topic_id is not None else None
        return _known(info) if info is not None else _Found(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id, None)
    info = topics.by_name(asked.name)
    if info is not None:
        return _known(info)
    refusal = operations.check_topic_name(asked.name)
    if refusal is not None:
        return _Found(refusal.code, asked.name, None, None)
    if not (context.services.config.auto_create_topics_enable and request.allow_auto_topic_creation):
        return _Found(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked.name, None, None)
    try:
        created = await topics.ensure(asked.name, context.services.config.num_partitions)
    except CoordinatorError:
        return _Found(ErrorCode.LEADER_NOT_AVAILABLE, asked.name, None, None)
    if isinstance(created, TopicInfo):
        return _known(created)
    return _Found(created.code, asked.name, None, None)


def _known(info: TopicInfo) -> _Found:
    return _Found(ErrorCode.NONE, info.name, info.topic_id, info)


def _metadata_topic(found: _Found, node_id: int) -> Any:
    count = found.info.partition_count if found.info is not None else 0
    return MetadataTopic(
        error_code=int(found.error),
        name=found.name,
        topic_id=found.topic_id,
        is_internal=False,
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
            for partition in range(count)
        ],
    )


def describe_topic_partitions(context: RequestContext, request: Any) -> Any:
    """Handle DescribeTopicPartitions: topics by name, from the cursor on, as many partitions as were asked for."""
    node_id = context.services.advertised(context.listener).node_id
    cursor = request.cursor
    first = (cursor.topic_name, max(cursor.partition_index, 0)) if cursor is not None else ("", 0)
    limit = request.response_partition_limit if request.response_partition_limit > 0 else _DEFAULT_PARTITION_LIMIT
    limit = min(limit, _DEFAULT_PARTITION_LIMIT)
    answers: list[Any] = []
    next_cursor = None
    for name in _names(context, request.topics, first[0]):
        info = context.services.topics.by_name(name)
        start = first[1] if name == first[0] else 0
        if info is not None and limit == 0:
            next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=start)
            break
        count = info.partition_count if info is not None else 0
        shown = range(start, min(count, start + limit))
        answers.append(_described(name, info, shown, node_id))
        limit -= len(shown)
        if shown.stop < count and info is not None:
            next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=shown.stop)
            break
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=answers, next_cursor=next_cursor)


def _names(context: RequestContext, asked: Sequence[Any], first: str) -> list[str]:
    names = {topic.name for topic in asked} or {info.name for info in context.services.topics.all()}
    return sorted(name for name in names if name >= first)


def _described(name: str, info: TopicInfo | None, shown: range, node_id: int) -> Any:
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
                leader_id=node_id,
                leader_epoch=_LEADER_EPOCH,
                replica_nodes=[node_id],
                isr_nodes=[node_id],
                eligible_leader_replicas=None,
                last_known_elr=None,
                offline_replicas=[],
            )
            for partition in shown
        ],
    )

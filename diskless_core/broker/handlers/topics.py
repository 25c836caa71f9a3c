"""CreateTopics and DeleteTopics."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from diskless_core.broker.dispatch import RequestContext
from diskless_core.cluster import operations, topic_configs
from diskless_core.cluster.config_model import ConfigEntry
from diskless_core.cluster.config_values import InvalidTopicConfigError
from diskless_core.cluster.configs import Configs
from diskless_core.cluster.operations import Refusal
from diskless_core.cluster.topics import TopicInfo, Topics
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from diskless_core.side_by_side import side_by_side

MAX_PARTITIONS_PER_REQUEST = 10_000
"""As in Apache Kafka's controller: what one CreateTopics may ask for, over all its topics."""

_UNSET = -1
_DELETE_BY_ID_SINCE = 6

AskedTopic = CreateTopicsRequest.CreatableTopic
CreatedTopic = CreateTopicsResponse.CreatableTopicResult
CreatedConfig = CreatedTopic.CreatableTopicConfigs
DeletedTopic = DeleteTopicsResponse.DeletableTopicResult


class _Named(NamedTuple):
    """A topic to delete, as the client names it: by one of the two."""

    name: str | None
    topic_id: uuid.UUID | None


async def create_topics(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Handle CreateTopics: each topic by itself, answered when it can be written to."""
    times_named = Counter(topic.name for topic in request.topics)
    too_many = sum(_partition_count(topic, context) for topic in request.topics) > MAX_PARTITIONS_PER_REQUEST

    async def create(topic: AskedTopic) -> CreatedTopic:
        outcome: TopicInfo | Refusal | None = refuse_in_request(times_named[topic.name], too_many=too_many)
        if outcome is None:
            outcome = await _create(context, topic, validate_only=request.validate_only)
        return _created(topic, outcome, context.services.configs)

    distinct = {topic.name: topic for topic in request.topics}
    return CreateTopicsResponse(throttle_time_ms=0, topics=await side_by_side(create, distinct.values()))


def refuse_in_request(times_named: int, *, too_many: bool) -> Refusal | None:
    """Why a topic of a request is not looked at: it is named more than once, or all ask for too many partitions."""
    if times_named > 1:
        return Refusal(code=ErrorCode.INVALID_REQUEST, message="Duplicate topic name.")
    if too_many:
        return Refusal(
            code=ErrorCode.POLICY_VIOLATION,
            message=f"A request may ask for {MAX_PARTITIONS_PER_REQUEST} partitions at most.",
        )
    return None


async def _create(context: RequestContext, topic: AskedTopic, *, validate_only: bool) -> TopicInfo | Refusal:
    refusal = operations.check_topic_name(topic.name) or _check_counts(topic, context)
    if refusal is not None:
        return refusal
    count = _partition_count(topic, context)
    try:
        configs = topic_configs.check({entry.name: entry.value for entry in topic.configs})
        context.services.configs.check_new_topic(configs)
        return await context.services.topics.create(topic.name, count, configs, validate_only=validate_only)
    except InvalidTopicConfigError as error:
        return Refusal(code=ErrorCode.INVALID_CONFIG, message=str(error))
    except CoordinatorError as error:
        return Refusal(code=error.code, message=str(error))


def _partition_count(topic: AskedTopic, context: RequestContext) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return context.services.config.num_partitions if topic.num_partitions == _UNSET else max(topic.num_partitions, 0)


def _check_counts(topic: AskedTopic, context: RequestContext) -> Refusal | None:
    if topic.assignments:
        return _check_assignments(topic, context.services.registered_brokers())
    if topic.num_partitions == 0 or topic.num_partitions < _UNSET:
        return Refusal(
            code=ErrorCode.INVALID_PARTITIONS, message="Number of partitions was set to an invalid non-positive value."
        )
    if topic.replication_factor == 0 or topic.replication_factor < _UNSET:
        return Refusal(
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
            message="Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.replication_factor > 1:
        return Refusal(
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
            message=f"Unable to replicate the partition {topic.replication_factor} time(s): "
            "the object store replicates it, and no broker has a copy. Use 1 or -1.",
        )
    return None


def _check_assignments(topic: AskedTopic, node_ids: Collection[int]) -> Refusal | None:
    if topic.num_partitions != _UNSET or topic.replication_factor != _UNSET:
        return Refusal(
            code=ErrorCode.INVALID_REQUEST,
            message="A manual partition assignment was specified, but numPartitions or replicationFactor was not -1.",
        )
    indexes = sorted(assignment.partition_index for assignment in topic.assignments)
    if indexes != list(range(len(indexes))):
        return Refusal(
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            message="partitions should be a consecutive 0-based integer sequence",
        )
    refusals = (operations.refuse_replicas(assignment.broker_ids, node_ids) for assignment in topic.assignments)
    return next((refusal for refusal in refusals if refusal is not None), None)


def _created(topic: AskedTopic, outcome: TopicInfo | Refusal, configs: Configs) -> CreatedTopic:
    if isinstance(outcome, Refusal):
        return CreatedTopic(
            name=topic.name,
            topic_id=None,
            error_code=int(outcome.code),
            error_message=outcome.message,
            topic_config_error_code=0,
            num_partitions=_UNSET,
            replication_factor=_UNSET,
            configs=[],
        )
    asked = {entry.name: entry.value for entry in topic.configs}
    return CreatedTopic(
        name=topic.name,
        topic_id=outcome.topic_id,
        error_code=0,
        error_message=None,
        topic_config_error_code=0,
        num_partitions=outcome.partition_count,
        replication_factor=1,
        configs=[_config(entry, asked) for entry in configs.with_own(outcome.configs)],
    )


def _config(entry: ConfigEntry, asked: Mapping[str, str | None]) -> CreatedConfig:
    return CreatedConfig(
        name=entry.name,
        value=asked.get(
            entry.name, entry.value
        ),  # as it was written: only DescribeConfigs leaves out spaces, as in Kafka
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.secret,
    )


async def delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Handle DeleteTopics, by name or, since version 6, by id."""
    if context.api_version >= _DELETE_BY_ID_SINCE:
        asked = [_Named(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [_Named(name, None) for name in request.topic_names]

    async def delete(judged: tuple[_Named, str | None]) -> DeletedTopic:
        one, problem = judged
        if problem is not None:
            return _deleted(one.name, one.topic_id, ErrorCode.INVALID_REQUEST, problem)
        return await _delete(context, one)

    judged = _judge(asked, context.services.topics)
    return DeleteTopicsResponse(throttle_time_ms=0, responses=await side_by_side(delete, judged))


def _judge(asked: Sequence[_Named], topics: Topics) -> list[tuple[_Named, str | None]]:
    """Each entry once, with what keeps it from being done. One that an id and a name mean is there by its name."""
    times = Counter(asked)
    known = {one: topics.id_of(one.name) for one in times if one.name is not None and times[one] == 1}
    twice = {one.topic_id for one in times if one.name is None} & set(known.values()) - {None}
    judged: list[tuple[_Named, str | None]] = []
    for one in times:
        if one.name is not None and one.topic_id is not None:
            judged.append((one, "You may not specify both topic name and topic id."))
        elif one.name is None and one.topic_id is None:
            judged.append((one, "Neither topic name nor id were specified."))
        elif times[one] > 1:
            judged.append((one, f"Duplicate topic {'name' if one.name is not None else 'id'}."))
        elif one.name is not None and known[one] in twice:
            message = "The provided topic name maps to an ID that was already supplied."
            judged.append((one._replace(topic_id=known[one]), message))
        elif one.topic_id not in twice:
            judged.append((one, None))
    return judged


async def _delete(context: RequestContext, one: _Named) -> DeletedTopic:
    topics = context.services.topics
    name, topic_id = one
    if name is not None:
        info, missing = topics.by_name(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        info, missing = topics.by_id(topic_id) if topic_id is not None else None, ErrorCode.UNKNOWN_TOPIC_ID
    try:
        if info is None or not await topics.delete(info):
            return _deleted(name, topic_id, missing, None)
    except CoordinatorError as error:
        return _deleted(name, topic_id, error.code, str(error))
    return _deleted(info.name, info.topic_id, ErrorCode.NONE, None)


def _deleted(name: str | None, topic_id: uuid.UUID | None, error: ErrorCode, message: str | None) -> DeletedTopic:
    return DeletedTopic(name=name, topic_id=topic_id, error_code=int(error), error_message=message)

"""CreatePartitions and DescribeProducers."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.handlers.topics import MAX_PARTITIONS_PER_REQUEST, refuse_in_request
from diskless_core.cluster import operations, producers
from diskless_core.cluster.operations import Refusal
from diskless_core.cluster.producers import Producer
from diskless_core.cluster.topics import COPIES_AT_ONCE, Topics
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from diskless_core.side_by_side import side_by_side

PRODUCERS_S = 30.0
"""How long DescribeProducers waits for copies of coordinators. What it lacks then is NOT_LEADER_OR_FOLLOWER."""

_NONE = -1

AskedTopic = CreatePartitionsRequest.CreatePartitionsTopic
CreatedResult = CreatePartitionsResponse.CreatePartitionsTopicResult
ProducersTopic = DescribeProducersResponse.TopicResponse
ProducersPartition = ProducersTopic.PartitionResponse


async def create_partitions(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Handle CreatePartitions: each topic by itself, answered when the new partitions can be written to."""
    times_named = Counter(topic.name for topic in request.topics)
    too_many = sum(_added(context, topic) for topic in request.topics) > MAX_PARTITIONS_PER_REQUEST

    async def create(topic: AskedTopic) -> CreatedResult:
        outcome = refuse_in_request(times_named[topic.name], too_many=too_many)
        if outcome is None:
            outcome = await _create(context, topic, validate_only=request.validate_only)
        return CreatedResult(
            name=topic.name,
            error_code=int(outcome.code if outcome is not None else ErrorCode.NONE),
            error_message=outcome.message if outcome is not None else None,
        )

    distinct = {topic.name: topic for topic in request.topics}
    return CreatePartitionsResponse(throttle_time_ms=0, results=await side_by_side(create, distinct.values()))


def _added(context: RequestContext, topic: AskedTopic) -> int:
    present = context.services.topics.partition_count(topic.name)
    return max(topic.count - present, 0) if present is not None else 0


async def _create(context: RequestContext, topic: AskedTopic, *, validate_only: bool) -> Refusal | None:
    assignments = None if topic.assignments is None else [list(one.broker_ids) for one in topic.assignments]
    services = context.services
    try:
        return await services.topics.add_partitions(
            topic.name, topic.count, assignments, services.registered_brokers(), validate_only=validate_only
        )
    except CoordinatorError as error:
        return Refusal(code=error.code, message=str(error))


async def describe_producers(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Handle DescribeProducers: the idempotent producers whose sequence numbers are remembered."""
    topics = context.services.topics
    keys: dict[tuple[str, int], PartitionKey] = {}
    for topic in request.topics:
        info = topics.by_name(topic.name)
        for partition in topic.partition_indexes:
            key = info.key(partition) if info is not None else None
            if key is not None:
                keys[topic.name, partition] = key
    found: dict[PartitionKey, list[Producer]] = {}
    errors = dict.fromkeys(keys.values(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    by_shard = topics.by_shard(keys.values())
    for _, some in by_shard:
        errors.update(dict.fromkeys(some, ErrorCode.NOT_LEADER_OR_FOLLOWER))

    async def look(of_shard: tuple[DisklessShard, list[PartitionKey]]) -> None:
        shard, some = of_shard
        with suppress(CoordinatorError):
            async with topics.having_copy(shard):
                found.update(producers.describe(some, topics))
                errors.update(dict.fromkeys(some, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    with suppress(TimeoutError):
        async with asyncio.timeout(PRODUCERS_S):
            await side_by_side(look, by_shard, COPIES_AT_ONCE)
    return DescribeProducersResponse(
        throttle_time_ms=0,
        topics=[
            ProducersTopic(
                name=topic.name,
                partitions=[
                    _partition(partition, found.get(key := keys[topic.name, partition]), errors[key])
                    if (topic.name, partition) in keys
                    else _partition(partition, None, *_missing(topic.name, topics))
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ],
    )


def _missing(topic: str, topics: Topics) -> tuple[ErrorCode, str | None]:
    refusal = operations.check_topic_name(topic)
    if refusal is not None:
        return refusal.code, None
    message = "This server does not host this topic-partition." if topics.by_name(topic) is None else None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message


def _partition(
    index: int,
    found: list[Producer] | None,
    missing: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    message: str | None = None,
) -> ProducersPartition:
    return ProducersPartition(
        partition_index=index,
        error_code=int(ErrorCode.NONE if found is not None else missing),
        error_message=message,
        active_producers=[
            ProducersPartition.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_append_time,
                coordinator_epoch=_NONE,
                current_txn_start_offset=_NONE,
            )
            for producer in found or ()
        ],
    )

"""Fetch: by name or by id, always without a session.

A client that asks for a session is answered with session id 0, which is Kafka's way to say that there is none:
it goes on with full requests.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, cast

from diskless_core.broker.dispatch import RequestContext
from diskless_core.coordinator.commands import PartitionKey
from diskless_core.fetch.fetcher import FetchedPartition, FetchPartition, FetchQuery
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import FetchResponse

_BY_ID_SINCE = 13
_FIRST_EPOCH = 0

TopicAnswer = cast("Any", FetchResponse).FetchableTopicResponse
PartitionAnswer = TopicAnswer.PartitionData


async def fetch(context: RequestContext, request: Any) -> Any:
    """Handle Fetch; waits up to `max_wait_ms` for `min_bytes`."""
    if request.session_id and request.session_epoch > _FIRST_EPOCH:
        return _response(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    known: list[FetchPartition] = []
    refused: dict[tuple[int, int], ErrorCode] = {}
    for position, topic in enumerate(request.topics):
        for asked in topic.partitions:
            key = _key(context, topic, asked.partition)
            if isinstance(key, ErrorCode):
                refused[position, asked.partition] = key
            else:
                known.append(FetchPartition(key=key, offset=asked.fetch_offset, max_bytes=asked.partition_max_bytes))
    query = FetchQuery(
        partitions=known,
        max_bytes=request.max_bytes,
        min_bytes=request.min_bytes,
        max_wait_ms=0 if refused else request.max_wait_ms,
    )
    fetched = iter(await context.services.fetcher.fetch(query, context.connection.starved))
    answers = []
    for position, topic in enumerate(request.topics):
        partitions = []
        for asked in topic.partitions:
            error = refused.get((position, asked.partition))
            answer = FetchedPartition(error=error) if error is not None else next(islice(fetched, 1))
            partitions.append(_partition_answer(asked.partition, answer))
        answers.append(
            TopicAnswer(
                topic=topic.topic if context.api_version < _BY_ID_SINCE else "",
                topic_id=topic.topic_id if context.api_version >= _BY_ID_SINCE else None,
                partitions=partitions,
            )
        )
    return _response(ErrorCode.NONE, answers)


def _key(context: RequestContext, topic: Any, partition: int) -> PartitionKey | ErrorCode:
    topics = context.services.topics
    if context.api_version >= _BY_ID_SINCE:
        info = topics.by_id(topic.topic_id) if topic.topic_id is not None else None
        if info is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
    else:
        info = topics.by_name(topic.topic)
    key = info.key(partition) if info is not None else None
    return key if key is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _partition_answer(index: int, answer: FetchedPartition) -> Any:
    return PartitionAnswer(
        partition_index=index,
        error_code=int(answer.error),
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=answer.records,
    )


def _response(error: ErrorCode, answers: list[Any]) -> Any:
    return FetchResponse(throttle_time_ms=0, error_code=int(error), session_id=0, responses=answers)

"""Fetch: by name or by id, always without a session.

A client that asks for a session is answered with session id 0, which is Kafka's way to say that there is none:
it goes on with full requests.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from itertools import islice

from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.handlers import topic_ids
from diskless_core.fetch.query import FetchedPartition, FetchPartition, FetchQuery
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import FetchRequest, FetchResponse

NAMED_IN_A_TURN = 20_000
PARTITIONS_IN_A_TURN = 1_000
"""How much of a large request is done before others have their turn: some milliseconds."""

_FIRST_EPOCH = 0
_LEADER_EPOCH = 0
_READ_COMMITTED = 1
_UNKNOWN = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}

AskedTopic = FetchRequest.FetchTopic
AskedPartition = AskedTopic.FetchPartition
TopicAnswer = FetchResponse.FetchableTopicResponse
PartitionAnswer = TopicAnswer.PartitionData
Aborted = PartitionAnswer.AbortedTransaction


async def fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """Handle Fetch; waits up to `max_wait_ms` for `min_bytes`."""
    topics, version = context.services.topics, context.api_version
    if request.session_epoch > _FIRST_EPOCH:
        return _response(version, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    departure = context.services.departure
    if departure.sends_away:
        departure.sent_away()
    asked_topics = await _each_once(request.topics)
    wanted = [topic_ids.find(topics, version, topic.topic, topic.topic_id) for topic, _ in asked_topics]
    known: list[FetchPartition] = []
    refused: dict[tuple[int, int], ErrorCode] = {}
    for position, (_, partitions) in enumerate(asked_topics):
        for count, asked in enumerate(partitions, start=1):
            if count % PARTITIONS_IN_A_TURN == 0:
                await asyncio.sleep(0)
            found = wanted[position].partition(asked.partition)
            if asked.current_leader_epoch > _LEADER_EPOCH and not isinstance(found, ErrorCode):
                found = ErrorCode.UNKNOWN_LEADER_EPOCH
            if departure.sends_away and not isinstance(found, ErrorCode):
                found = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if isinstance(found, ErrorCode):
                refused[position, asked.partition] = found
            else:
                known.append(
                    FetchPartition(key=found[1], offset=asked.fetch_offset, max_bytes=asked.partition_max_bytes)
                )
    query = FetchQuery(
        partitions=known,
        max_bytes=min(request.max_bytes, context.services.config.fetch_max_bytes),
        min_bytes=request.min_bytes,
        max_wait_ms=0 if refused else request.max_wait_ms,
        room=context.connection,
    )
    fetched = iter(await context.services.fetcher.fetch(query, context.connection.starved))
    answers = []
    for position, (topic, partitions) in enumerate(asked_topics):
        answered = []
        for count, asked in enumerate(partitions, start=1):
            if count % PARTITIONS_IN_A_TURN == 0:
                await asyncio.sleep(0)
            error = refused.get((position, asked.partition))
            answer = FetchedPartition(error=error) if error is not None else next(islice(fetched, 1))
            error_code = wanted[position].client_error(answer.error, topics, replaced=ErrorCode.INCONSISTENT_TOPIC_ID)
            is_committed = request.isolation_level == _READ_COMMITTED and error_code is ErrorCode.NONE
            aborted: list[Aborted] | None = [] if is_committed or error in _UNKNOWN else None
            answered.append(_partition_answer(version, asked.partition, answer, error_code, aborted))
        answers.append(
            TopicAnswer(version=version, topic=topic.topic or "", topic_id=topic.topic_id, partitions=answered)
        )
    return _response(version, ErrorCode.NONE, answers)


async def _each_once(asked_topics: Sequence[AskedTopic]) -> list[tuple[AskedTopic, Sequence[AskedPartition]]]:
    """The partitions of a request by topic. One that is named again and again is asked for once, as it is named last.

    So does Apache Kafka.
    """
    topics: dict[tuple[str | None, uuid.UUID | None], tuple[AskedTopic, dict[int, AskedPartition]]] = {}
    count = 0
    for topic in asked_topics:
        _, partitions = topics.setdefault((topic.topic, topic.topic_id), (topic, {}))
        for asked in topic.partitions:
            partitions[asked.partition] = asked
            count += 1
            if count % NAMED_IN_A_TURN == 0:
                await asyncio.sleep(0)
    return [(topic, list(partitions.values())) for topic, partitions in topics.values() if partitions]


def _partition_answer(
    version: int, index: int, answer: FetchedPartition, error: ErrorCode, aborted: list[Aborted] | None
) -> PartitionAnswer:
    # With its version a message is encoded in half the time: no field is looked for in the schema's defaults.
    if error is not ErrorCode.NONE:
        answer = FetchedPartition(error=error)
    return PartitionAnswer(
        version=version,
        partition_index=index,
        error_code=int(error),
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        aborted_transactions=aborted,
        preferred_read_replica=-1,
        records=answer.records,
    )


def _response(version: int, error: ErrorCode, answers: list[TopicAnswer]) -> FetchResponse:
    return FetchResponse(version=version, throttle_time_ms=0, error_code=int(error), session_id=0, responses=answers)

"""Produce: validates at once, in the order of arrival; answers when the batches are committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import structlog

from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.handlers import log_starts, topic_ids
from diskless_core.broker.handlers.topic_ids import RequestedTopic
from diskless_core.diskless.commands import NO_OFFSET, BatchResult, PartitionKey, TimestampType
from diskless_core.produce.accumulator import Submission
from diskless_core.produce.validation import InvalidBatchError, ValidBatch, validate
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    ProduceRequest,
)
from diskless_core.protocol.names import partition_name
from diskless_core.protocol.produce_response import PartitionAnswer, ProduceAnswer, TopicAnswer

TopicData = ProduceRequest.TopicProduceData
PartitionData = TopicData.PartitionProduceData

_ACKS = {-1, 0, 1}
_NO_TOPIC_ID = bytes(16)

_log = structlog.get_logger(__name__)


class _Refusal(NamedTuple):
    """Why a batch is not submitted.

    Attributes:
        log_of: the partition whose log start is told with it, if any.
    """

    code: ErrorCode
    message: str | None = None
    log_of: PartitionKey | None = None


Outcome = _Refusal | int
"""Of one partition: why it was refused, or its place among the submitted batches."""


class _Plan:
    """What becomes of each partition of a request, while its batches are on their way.

    Attributes:
        log_starts: of partitions with a refusal that tells it; None while this broker's copy does not say.
    """

    def __init__(self) -> None:
        self.outcomes: list[tuple[RequestedTopic, TopicData, list[tuple[int, Outcome]]]] = []
        self.batches: list[tuple[PartitionKey, ValidBatch]] = []
        self.log_starts: dict[PartitionKey, int | None] = {}

    @property
    def unknown_log_starts(self) -> list[PartitionKey]:
        return [partition for partition, log_start in self.log_starts.items() if log_start is None]


def produce(context: RequestContext, request: ProduceRequest) -> ProduceAnswer | asyncio.Future[ProduceAnswer] | None:
    """Handle Produce. With acks=0 nothing is answered, and an error closes the connection, as in Kafka."""
    if request.acks not in _ACKS:
        plan = _refuse_all(context, request, _Refusal(ErrorCode.INVALID_REQUIRED_ACKS))
    elif request.transactional_id is not None:
        plan = _refuse_all(
            context,
            request,
            _Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported"),
        )
    elif context.services.departure.sends_away and request.acks != 0:
        context.services.departure.sent_away()
        plan = _refuse_all(context, request, _Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker stops"))
    else:
        plan = _plan(context, request)
    if request.acks == 0:
        _submit_without_answer(context, plan)
        return None
    if not plan.batches and not plan.unknown_log_starts:
        return _response(context, plan, [])
    answer: asyncio.Future[ProduceAnswer] = asyncio.get_running_loop().create_future()

    def settle(results: Sequence[BatchResult]) -> None:
        if not answer.done():
            answer.set_result(_response(context, plan, results))

    settle_all = _settle_with_log_starts(context, plan, settle)
    if plan.batches:
        _submit(context, plan, request.timeout_ms, settle_all)
    else:
        settle_all([])
    return answer


def _settle_with_log_starts(
    context: RequestContext, plan: _Plan, settle: Callable[[Sequence[BatchResult]], None]
) -> Callable[[Sequence[BatchResult]], None]:
    """`settle`, called no sooner than this broker has asked leaders for the log starts that it lacks.

    Those of batches that are refused at once are asked for while the others are on their way. A batch whose records
    turn out to be damaged when they are unpacked is refused by this broker too, but later.
    """

    async def ask(lacking: Sequence[PartitionKey]) -> None:
        plan.log_starts.update(await log_starts.asked(context.services.topics, lacking))

    first = plan.unknown_log_starts
    asking = [asyncio.create_task(ask(first), name="log starts")] if first else []

    def settle_all(results: Sequence[BatchResult]) -> None:
        for (key, _), result in zip(plan.batches, results, strict=False):
            if result.error is ErrorCode.INVALID_RECORD and result.log_start_offset == NO_OFFSET:
                plan.log_starts.setdefault(key, log_starts.known(context.services.topics, key))
        later = [key for key in plan.unknown_log_starts if key not in first]
        if later:
            asking.append(asyncio.create_task(ask(later), name="log starts"))
        if not asking:
            settle(results)
            return
        asyncio.gather(*asking, return_exceptions=True).add_done_callback(lambda _: settle(results))

    return settle_all


def _submit_without_answer(context: RequestContext, plan: _Plan) -> None:
    """An error in one partition does not affect the others, except that it closes the connection."""

    def settle(results: Sequence[BatchResult]) -> None:
        errors = _errors(plan, results)
        if errors and not context.connection.is_closing:
            _log.info(
                "a connection is closed: a Produce request with acks=0 failed, and has no other answer",
                client=context.connection.peer,
                client_id=context.client_id,
                correlation_id=context.header.correlation_id,
                errors=errors,
            )
            context.connection.close()

    if plan.batches:
        _submit(context, plan, None, settle)
    else:
        settle([])


def _errors(plan: _Plan, results: Sequence[BatchResult]) -> dict[str, str]:
    """The error of each partition that has one, by topic and number."""
    errors = {}
    for topic, data, partitions in plan.outcomes:
        name = topic.info.name if topic.info is not None else data.name or str(data.topic_id)
        for index, outcome in partitions:
            code = outcome.code if isinstance(outcome, _Refusal) else results[outcome].error
            if code is not ErrorCode.NONE:
                errors[partition_name(name, index)] = code.name
    return errors


def _plan(context: RequestContext, request: ProduceRequest) -> _Plan:
    plan = _Plan()
    context.services.writer.record_checks.begin_request()
    now_ms = context.services.clock.now_ms()
    for data in request.topic_data:
        topic = topic_ids.find(context.services.topics, context.api_version, data.name, data.topic_id)
        outcomes = [(part.index, _judge(context, topic, part, plan, now_ms)) for part in data.partition_data]
        plan.outcomes.append((topic, data, outcomes))
    return plan


def _judge(
    context: RequestContext, topic: RequestedTopic, partition: PartitionData, plan: _Plan, now_ms: int
) -> Outcome:
    found = topic.partition(partition.index)
    if isinstance(found, ErrorCode):
        return _Refusal(found)
    info, key = found
    try:
        batch = validate(
            partition.records, info.rules, context.api_version, now_ms, context.services.writer.record_checks
        )
    except InvalidBatchError as error:
        context.services.metrics.produce_rejections.labels(error=error.code.name).inc()
        if not error.is_from_the_log:
            return _Refusal(error.code, str(error))
        plan.log_starts[key] = log_starts.known(context.services.topics, key)
        return _Refusal(error.code, str(error), key)
    plan.batches.append((key, batch))
    return len(plan.batches) - 1


def _refuse_all(context: RequestContext, request: ProduceRequest, refusal: _Refusal) -> _Plan:
    plan = _Plan()
    for data in request.topic_data:
        topic = topic_ids.find(context.services.topics, context.api_version, data.name, data.topic_id)
        plan.outcomes.append((topic, data, [(partition.index, refusal) for partition in data.partition_data]))
    return plan


def _submit(
    context: RequestContext, plan: _Plan, timeout_ms: int | None, settle: Callable[[Sequence[BatchResult]], None]
) -> None:
    """Hand the batches on. `settle` gets a result for each: at the commit, or what is known when the time is over.

    Args:
        timeout_ms: how long the client waits for an answer; None with acks=0, whose batches wait as long as it takes.
    """

    def all_failed(error: ErrorCode) -> list[BatchResult]:
        return [BatchResult(error)] * len(plan.batches)

    so_far = all_failed(ErrorCode.REQUEST_TIMED_OUT)
    timer: asyncio.TimerHandle | None = None
    deadline_s = inf
    if timeout_ms is not None:
        wait_s = max(timeout_ms, 0) / 1000
        deadline_s = context.services.clock.monotonic() + wait_s
        timer = asyncio.get_running_loop().call_later(wait_s, lambda: settle(so_far))

    def settled(outcome: Sequence[BatchResult] | BaseException) -> None:
        if timer is not None:
            timer.cancel()
        if isinstance(outcome, BaseException):
            outcome = all_failed(ErrorCode.KAFKA_STORAGE_ERROR)
        settle(outcome)

    context.frame.hold()
    context.services.writer.append(
        Submission(
            batches=plan.batches,
            release=context.frame.release,
            settle=settled,
            deadline_s=deadline_s,
            learn=so_far.__setitem__,
        )
    )


def _response(context: RequestContext, plan: _Plan, results: Sequence[BatchResult]) -> ProduceAnswer:
    topics = []
    for topic, data, partitions in plan.outcomes:
        if not partitions:
            continue
        answers = []
        for index, outcome in partitions:
            if isinstance(outcome, _Refusal):
                answers.append(_refused(plan, index, outcome))
            else:
                answers.append(_committed(context, plan, index, topic, outcome, results))
        topics.append(TopicAnswer(data.name or "", data.topic_id.bytes if data.topic_id else _NO_TOPIC_ID, answers))
    return ProduceAnswer(topics)


def _refused(plan: _Plan, index: int, refusal: _Refusal) -> PartitionAnswer:
    log_start = plan.log_starts.get(refusal.log_of) if refusal.log_of is not None else None
    return PartitionAnswer(
        index,
        int(refusal.code),
        log_start_offset=NO_OFFSET if log_start is None else log_start,
        error_message=refusal.message,
    )


def _committed(
    context: RequestContext,
    plan: _Plan,
    index: int,
    topic: RequestedTopic,
    place: int,
    results: Sequence[BatchResult],
) -> PartitionAnswer:
    (key, batch), result = plan.batches[place], results[place]
    has_append_time = result.error is ErrorCode.NONE and batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    return PartitionAnswer(
        index,
        int(topic.client_error(result.error, context.services.topics)),
        result.base_offset,
        result.append_time if has_append_time else -1,
        _log_start(context, plan, key, result),
    )


def _log_start(context: RequestContext, plan: _Plan, key: PartitionKey, result: BatchResult) -> int:
    """As a coordinator elsewhere has told it, or else by this broker's copy."""
    if result.error is ErrorCode.MESSAGE_TOO_LARGE:  # Kafka finds it out where it appends, and does not tell it then
        return NO_OFFSET
    if result.log_start_offset != NO_OFFSET:
        return result.log_start_offset
    log_start = plan.log_starts.get(key)
    if log_start is None:
        log_start = log_starts.known(context.services.topics, key)
    return NO_OFFSET if log_start is None else log_start

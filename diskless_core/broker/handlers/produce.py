"""Produce: validates at once, in the order of arrival; answers when the batches are committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from diskless_core.broker.connection import CloseConnectionError
from diskless_core.broker.dispatch import RequestContext
from diskless_core.coordinator.commands import BatchResult, PartitionKey, TimestampType
from diskless_core.coordinator.state import PartitionHead
from diskless_core.produce.active_file import Submission
from diskless_core.produce.validation import InvalidBatchError, ValidBatch, validate
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import ProduceResponse

_BY_ID_SINCE = 13
_ACKS = {-1, 0, 1}

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = TopicAnswer.PartitionProduceResponse


class _Refusal(NamedTuple):
    code: ErrorCode
    message: str | None = None


Outcome = _Refusal | int
"""Of one partition: why it was refused, or its place among the submitted batches."""


class _Plan:
    """What becomes of each partition of a request, while its batches are on their way."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[Any, list[tuple[int, Outcome]]]] = []
        self.batches: list[tuple[PartitionKey, ValidBatch]] = []


def produce(context: RequestContext, request: Any) -> Any:
    """Handle Produce. With acks=0 nothing is answered, and an error closes the connection, as in Kafka."""
    if request.acks not in _ACKS:
        plan = _refuse_all(request, _Refusal(ErrorCode.INVALID_REQUIRED_ACKS))
    elif request.transactional_id is not None:
        plan = _refuse_all(
            request, _Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported")
        )
    else:
        plan = _plan(context, request)
    if request.acks == 0:
        return _without_answer(context, plan, request.timeout_ms)
    if not plan.batches:
        return _response(context, plan, [])
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def settle(results: Sequence[BatchResult]) -> None:
        if not answer.done():
            answer.set_result(_response(context, plan, results))

    _submit(context, plan, request.timeout_ms, settle)
    return answer


def _without_answer(context: RequestContext, plan: _Plan, timeout_ms: int) -> None:
    refused = [outcome for _, partitions in plan.outcomes for _, outcome in partitions if not isinstance(outcome, int)]
    if refused:
        raise CloseConnectionError(f"a Produce request with acks=0 failed: {refused[0].code.name}")

    def settle(results: Sequence[BatchResult]) -> None:
        failed = [result.error for result in results if result.error is not ErrorCode.NONE]
        if failed:
            context.connection.close(f"a Produce request with acks=0 failed: {failed[0].name}")

    _submit(context, plan, timeout_ms, settle)


def _plan(context: RequestContext, request: Any) -> _Plan:
    plan = _Plan()
    now_ms = context.services.clock.now_ms()
    topics = context.services.topics
    by_id = context.api_version >= _BY_ID_SINCE
    for data in request.topic_data:
        if by_id:
            info = topics.by_id(data.topic_id) if data.topic_id is not None else None
        else:
            info = topics.by_name(data.name)
        missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions: list[tuple[int, Outcome]] = []
        plan.outcomes.append((data, partitions))
        for partition in data.partition_data:
            outcome: Outcome
            key = info.key(partition.index) if info is not None else None
            if info is None or key is None:
                outcome = _Refusal(missing if info is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                try:
                    batch = validate(partition.records, info.rules, context.api_version, now_ms)
                except InvalidBatchError as error:
                    context.services.metrics.produce_rejections.labels(error=error.code.name).inc()
                    outcome = _Refusal(error.code, str(error))
                else:
                    outcome = len(plan.batches)
                    plan.batches.append((key, batch))
            partitions.append((partition.index, outcome))
    return plan


def _refuse_all(request: Any, refusal: _Refusal) -> _Plan:
    plan = _Plan()
    plan.outcomes = [
        (data, [(partition.index, refusal) for partition in data.partition_data]) for data in request.topic_data
    ]
    return plan


def _submit(
    context: RequestContext, plan: _Plan, timeout_ms: int, settle: Callable[[Sequence[BatchResult]], None]
) -> None:
    """Hand the batches on. `settle` gets a result for each of them: at the commit, or when the time is over."""

    def all_failed(error: ErrorCode) -> list[BatchResult]:
        return [BatchResult(error)] * len(plan.batches)

    timer = asyncio.get_running_loop().call_later(
        max(timeout_ms, 0) / 1000, lambda: settle(all_failed(ErrorCode.REQUEST_TIMED_OUT))
    )

    def settled(outcome: Sequence[BatchResult] | BaseException) -> None:
        if not timer.cancelled():
            timer.cancel()
            if isinstance(outcome, BaseException):
                outcome = all_failed(ErrorCode.KAFKA_STORAGE_ERROR)
            settle(outcome)

    context.frame.hold()
    context.services.writer.append(Submission(batches=plan.batches, release=context.frame.release, settle=settled))


def _response(context: RequestContext, plan: _Plan, results: Sequence[BatchResult]) -> Any:
    by_id = context.api_version >= _BY_ID_SINCE
    return ProduceResponse(
        responses=[
            TopicAnswer(
                name="" if by_id else data.name,
                topic_id=data.topic_id if by_id else None,
                partition_responses=[
                    _partition_answer(context, index, outcome, plan, results) for index, outcome in partitions
                ],
            )
            for data, partitions in plan.outcomes
        ],
        throttle_time_ms=0,
    )


def _partition_answer(
    context: RequestContext, index: int, outcome: Outcome, plan: _Plan, results: Sequence[BatchResult]
) -> Any:
    if isinstance(outcome, _Refusal):
        return PartitionAnswer(
            index=index,
            error_code=int(outcome.code),
            base_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=-1,
            record_errors=[],
            error_message=outcome.message,
        )
    key, batch = plan.batches[outcome]
    result = results[outcome]
    head = _head(context, key) if result.error is ErrorCode.NONE else None
    has_append_time = head is not None and batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    return PartitionAnswer(
        index=index,
        error_code=int(result.error),
        base_offset=result.base_offset,
        log_append_time_ms=result.append_time if has_append_time else -1,
        log_start_offset=head.log_start_offset if head is not None else -1,
        record_errors=[],
        error_message=None,
    )


def _head(context: RequestContext, key: PartitionKey) -> PartitionHead | None:
    shard = context.services.topics.coordinator_of(key)
    return shard.head(key) if shard is not None else None

"""Quotas around Produce and Fetch: who is over its quota is answered at once and then not read for a while (KIP-219).

Apache Kafka reads a connection's next request when the one before is answered, and counts then. Here requests of one
connection are processed concurrently, so what is produced counts as soon as it has been read: else a client that sends
ahead would be far over its quota before the first answer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import FetchRequest, FetchResponse, ProduceRequest
from diskless_core.protocol.produce_response import ProduceAnswer

ProduceOutcome = ProduceAnswer | asyncio.Future[ProduceAnswer] | None
ProduceHandler = Callable[[RequestContext, ProduceRequest], ProduceOutcome]
FetchHandler = Callable[[RequestContext, FetchRequest], Awaitable[FetchResponse]]

_NO_SESSION = 0
_SIZE_BYTES = 4
"""What Apache Kafka counts besides a response's body."""


def by_produce_quota(handle: ProduceHandler) -> ProduceHandler:
    """Throttle the handler of Produce. The answer says how much of the throttle time is left when it is sent."""

    def produce(context: RequestContext, request: ProduceRequest) -> ProduceOutcome:
        quota = context.services.quotas.produce
        if not quota.is_set:
            return handle(context, request)
        body_bytes = len(context.frame.view) - context.header.body
        throttle_ms = quota.record(context.user, context.client_id or "", body_bytes)
        answer = handle(context, request)
        if throttle_ms == 0:
            return answer
        muted_until = _throttle(context, "Produce", throttle_ms)
        if isinstance(answer, asyncio.Future):
            return _announced_later(answer, muted_until)
        return _announced(answer, muted_until) if answer is not None else None

    return produce


def _announced_later(answer: asyncio.Future[ProduceAnswer], muted_until: float) -> asyncio.Future[ProduceAnswer]:
    announced: asyncio.Future[ProduceAnswer] = answer.get_loop().create_future()

    def announce(done: asyncio.Future[ProduceAnswer]) -> None:
        if announced.done():
            return
        if done.cancelled():
            announced.cancel()
        elif (error := done.exception()) is not None:
            announced.set_exception(error)
        else:
            announced.set_result(_announced(done.result(), muted_until))

    answer.add_done_callback(announce)
    return announced


def _announced(response: ProduceAnswer, muted_until: float) -> ProduceAnswer:
    left_s = muted_until - asyncio.get_running_loop().time()
    response.throttle_time_ms = max(math.ceil(left_s * 1000), 0)
    return response


def by_fetch_quota(handle: FetchHandler) -> FetchHandler:
    """Throttle the handler of Fetch. A client over its quota gets an empty answer, which does not count."""

    async def fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
        quota = context.services.quotas.fetch
        if not quota.is_set:
            return await handle(context, request)
        user, client_id = context.user, context.client_id or ""
        request.max_bytes = int(min(request.max_bytes, quota.most_bytes(user, client_id)))
        request.min_bytes = min(request.min_bytes, request.max_bytes)
        response = await handle(context, request)
        size_bytes = _SIZE_BYTES + sum(map(len, response.encode_spliced(context.api_version)))
        throttle_ms = quota.admit(user, client_id, size_bytes)
        if throttle_ms == 0:
            return response
        _throttle(context, "Fetch", throttle_ms)
        return FetchResponse(
            throttle_time_ms=throttle_ms, error_code=int(ErrorCode.NONE), session_id=_NO_SESSION, responses=[]
        )

    return fetch


def _throttle(context: RequestContext, api: str, throttle_ms: int) -> float:
    context.services.metrics.throttle_seconds.labels(api=api).observe(throttle_ms / 1000)
    return context.connection.mute(throttle_ms)

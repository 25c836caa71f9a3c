"""Quotas around Produce and Fetch: who is over its quota is answered at once and then not read for a while (KIP-219).

Apache Kafka reads a connection's next request when the one before is answered, and counts then. Here requests of one
connection are processed concurrently, so what is produced counts as soon as it has been read: else a client that sends
ahead would be far over its quota before the first answer.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.handlers import fetch as plain_fetch
from diskless_core.broker.handlers import produce as plain_produce
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import FetchResponse

_NO_SESSION = 0
_SIZE_BYTES = 4
"""What Apache Kafka counts besides a response's body."""


def produce(context: RequestContext, request: Any) -> Any:
    """Handle Produce. The answer says how much of the throttle time is left when it is sent."""
    quota = context.services.quotas.produce
    if not quota.is_set:
        return plain_produce.produce(context, request)
    body_bytes = len(context.frame.view) - context.header.body
    throttle_ms = quota.record(context.user, context.client_id or "", body_bytes)
    answer = plain_produce.produce(context, request)
    if throttle_ms == 0:
        return answer
    muted_until = _throttle(context, "Produce", throttle_ms)
    if isinstance(answer, asyncio.Future):
        return _announced_later(answer, muted_until)
    return _announced(answer, muted_until) if answer is not None else None


def _announced_later(answer: asyncio.Future[Any], muted_until: float) -> asyncio.Future[Any]:
    announced: asyncio.Future[Any] = answer.get_loop().create_future()

    def announce(done: asyncio.Future[Any]) -> None:
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


def _announced(response: Any, muted_until: float) -> Any:
    left_s = muted_until - asyncio.get_running_loop().time()
    response.throttle_time_ms = max(math.ceil(left_s * 1000), 0)
    return response


async def fetch(context: RequestContext, request: Any) -> Any:
    """Handle Fetch. Who is over its quota gets an empty answer, and what it did not get does not count."""
    quota = context.services.quotas.fetch
    if not quota.is_set:
        return await plain_fetch.fetch(context, request)
    user, client_id = context.user, context.client_id or ""
    request.max_bytes = int(min(request.max_bytes, quota.most_bytes(user, client_id)))
    request.min_bytes = min(request.min_bytes, request.max_bytes)
    response = await plain_fetch.fetch(context, request)
    size_bytes = _SIZE_BYTES + sum(map(len, response.encode_spliced(context.api_version)))
    throttle_ms = quota.admit(user, client_id, size_bytes)
    if throttle_ms == 0:
        return response
    _throttle(context, "Fetch", throttle_ms)
    return FetchResponse(
        throttle_time_ms=throttle_ms, error_code=int(ErrorCode.NONE), session_id=_NO_SESSION, responses=[]
    )


def _throttle(context: RequestContext, api: str, throttle_ms: int) -> float:
    context.services.metrics.throttle_seconds.labels(api=api).observe(throttle_ms / 1000)
    return context.connection.mute(throttle_ms)

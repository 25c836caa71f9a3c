"""Requests that only the controller decides: answered here while this broker is it, else sent there. (KIP-590.)

A handler that is wrapped in `ByController` is for the controller alone. The controller takes such requests of other
brokers in Envelopes and never sends one on again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any, Generic, TypeVar

import structlog

from diskless_core.broker.authorization import Caller
from diskless_core.broker.connection import CloseConnectionError
from diskless_core.broker.dispatch import EncodedResponse, Handler, RequestContext, Response
from diskless_core.broker.forwarding import LIMIT_S, EnvelopeRefusedError
from diskless_core.broker.handlers.unanswered import unanswered
from diskless_core.coordinator.errors import CoordinatorError, OutcomeUnknownError
from diskless_core.protocol import framing
from diskless_core.protocol.codec import ApiMessage
from diskless_core.protocol.envelope import PrincipalError, unpack_address, unpack_user
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.framing import FrameError, Request
from diskless_core.protocol.messages import EnvelopeRequest, EnvelopeResponse

RequestT = TypeVar("RequestT", bound="ApiMessage")

_SIZE_BYTES = 4

_log = structlog.get_logger(__name__)


class ByController(Generic[RequestT]):
    """A handler of requests that only the controller decides."""

    def __init__(self, handle: Handler[RequestT]) -> None:
        self.handle = handle

    def __call__(self, context: RequestContext, request: RequestT) -> Response | Awaitable[Response]:
        """Handle the request here or at the controller. It begins synchronously: the frame is read before it ends."""
        if context.services.forwarding.is_needed and context.sent_on_for is None:
            return self._send_on(context, request, bytes(context.frame.view))
        return self.handle(context, request)

    async def _send_on(self, context: RequestContext, request: RequestT, frame: bytes) -> Response:
        services = context.services
        services.metrics.forwarded_requests.labels(api=context.api.name).inc()
        try:
            answer = await services.forwarding.send(frame, context.caller, limit_s(request))
        except EnvelopeRefusedError as error:
            raise CloseConnectionError(str(error)) from error
        except OutcomeUnknownError as error:
            return unanswered(request, ErrorCode.REQUEST_TIMED_OUT, str(error))
        except CoordinatorError as error:
            return unanswered(request, error.code, str(error))
        if answer is not None:
            return EncodedResponse(answer)
        return await _outcome(self.handle, context, request)


def limit_s(request: ApiMessage) -> float:
    """How long a request may take, in seconds. Some clients send 0 or less where they set no limit."""
    timeout_ms = getattr(request, "timeout_ms", 0)
    return timeout_ms / 1000 if timeout_ms > 0 else LIMIT_S


async def _outcome(handle: Handler[Any], context: RequestContext, request: Request) -> Response:
    outcome = handle(context, request)
    return await outcome if inspect.isawaitable(outcome) else outcome


async def envelope(context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    """Handle Envelope: another broker's client asks for something that the controller decides."""
    if not context.is_authorized:
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    shard = context.services.cluster_shard
    if not shard.leading:
        return _refused(ErrorCode.NOT_CONTROLLER)
    try:
        caller = Caller(
            user=unpack_user(request.request_principal),
            host=unpack_address(request.client_host_address),
            listener=request.listener_name,
        )
    except PrincipalError as error:
        _log.warning("a broker does not say whose request it sends on", reason=str(error))
        return _refused(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    data = await _answer(context, memoryview(request.request_data), caller)
    if isinstance(data, ErrorCode):
        return _refused(data)
    return EnvelopeResponse(response_data=data, error_code=int(ErrorCode.NONE), applied_offset=shard.next_offset)


async def _answer(context: RequestContext, frame: memoryview, caller: Caller) -> bytes | ErrorCode:
    """The response with its header to a request with its header, or why there is none."""
    try:
        header = framing.parse_request_header(frame)
        api = context.apis.get(header.api_key)
        if api is None or not isinstance(api.handler, ByController):
            return ErrorCode.INVALID_REQUEST
        if not api.oldest <= header.api_version <= api.newest:
            return ErrorCode.UNSUPPORTED_VERSION
        request = framing.decode_request(api.request, header.api_version, frame, header.body)
    except FrameError as error:
        _log.warning("a broker has sent on a malformed request", reason=str(error))
        return ErrorCode.INVALID_REQUEST
    inner = RequestContext(context.services, context.connection, context.frame, header, context.apis, caller)
    try:
        response = await _outcome(api.handler, inner, request)
        if response is None or isinstance(response, EncodedResponse):
            raise TypeError(f"the handler of {api.name} does not answer as the controller")
        encoded = framing.encode_response(response, header.api_version, header.correlation_id)
    except Exception:  # other requests of the same broker are under way on the connection
        context.services.metrics.request_errors.labels(api=api.name).inc()
        _log.exception("a request failed by a defect of the broker", api=api.name)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return b"".join(encoded)[_SIZE_BYTES:]


def _refused(error: ErrorCode) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=None, error_code=int(error))

"""From a frame to the handler of its API, and from what that answers to a response frame."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from diskless_core.broker.connection import Answer, CloseConnectionError, Connection
from diskless_core.broker.frames import Frame
from diskless_core.broker.services import Services
from diskless_core.protocol import api_versions, framing
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.framing import FrameError, RequestHeader
from diskless_core.protocol.messages import REQUESTS, ApiVersionsRequest

Response = Any
"""A response message of kafka-python, or None where the protocol wants no answer."""

Handler = Callable[["RequestContext", Any], Response | Awaitable[Response]]
"""Begins a request synchronously, in the order of arrival; may go on asynchronously."""

_log = structlog.get_logger(__name__)


def api_name(api_key: int) -> str:
    """Kafka's name of an API that is served."""
    return REQUESTS[api_key].request.__name__.removesuffix("Request")


@dataclass(slots=True)
class RequestContext:
    """One request's surroundings."""

    services: Services
    connection: Connection
    frame: Frame
    header: RequestHeader

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    @property
    def user(self) -> str:
        return self.connection.user

    @property
    def client_host(self) -> str:
        return self.connection.peer.rpartition(":")[0]

    @property
    def listener(self) -> str:
        return self.connection.listener


class ApiDispatcher:
    """Finds the handler of each request; the table of handlers is the table of what is served."""

    def __init__(self, services: Services, handlers: Mapping[int, Handler]) -> None:
        self._services = services
        self._handlers = handlers
        self._seconds = {key: services.metrics.request_seconds.labels(api=api_name(key)) for key in handlers}

    def dispatch(self, frame: Frame, connection: Connection) -> Answer | Awaitable[Answer]:
        started = self._services.clock.monotonic()
        try:
            header = framing.parse_request_header(frame.view)
            request = self._decode(header, frame)
        except FrameError as error:
            self._services.metrics.frames_refused.inc()
            raise CloseConnectionError(f"a malformed request: {error}") from error
        context = RequestContext(self._services, connection, frame, header)
        try:
            outcome = self._handlers[header.api_key](context, request)
        except Exception as error:  # the connection is the border: a defect must not pass it
            raise self._broken(header, error) from error
        if isinstance(outcome, asyncio.Future):
            return self._encode_later(header, outcome, started)
        if isinstance(outcome, Coroutine):
            return self._encode_after(header, outcome, started)
        return self._encode(header, outcome, started)

    def _decode(self, header: RequestHeader, frame: Frame) -> Any:
        if header.api_key not in self._handlers:
            raise FrameError(f"api key {header.api_key} is not served")
        if not api_versions.is_supported(header.api_key, header.api_version):
            if header.api_key == ApiVersionsRequest.API_KEY:
                return None
            raise FrameError(f"version {header.api_version} of api key {header.api_key} is not served")
        return framing.decode_request(REQUESTS[header.api_key].request, header.api_version, frame.view, header.body)

    def _encode_later(
        self, header: RequestHeader, outcome: asyncio.Future[Response], started: float
    ) -> Awaitable[Answer]:
        encoded: asyncio.Future[Answer] = outcome.get_loop().create_future()

        def encode(done: asyncio.Future[Response]) -> None:
            if encoded.done():
                return
            try:
                encoded.set_result(self._encode(header, done.result(), started))
            except (Exception, asyncio.CancelledError) as error:  # it is handed on
                encoded.set_exception(self._broken(header, error))

        outcome.add_done_callback(encode)
        return encoded

    async def _encode_after(
        self, header: RequestHeader, outcome: Coroutine[Any, Any, Response], started: float
    ) -> Answer:
        try:
            return self._encode(header, await outcome, started)
        except Exception as error:  # the connection is the border: a defect must not pass it
            raise self._broken(header, error) from error

    def _broken(self, header: RequestHeader, error: BaseException) -> CloseConnectionError:
        if isinstance(error, CloseConnectionError):
            return error
        name = api_name(header.api_key)
        self._services.metrics.request_errors.labels(api=name).inc()
        _log.error("a request failed by a defect of the broker", api=name, exc_info=error)
        return CloseConnectionError("the request could not be processed")

    def _encode(self, header: RequestHeader, response: Response, started: float) -> Answer:
        self._seconds[header.api_key].observe(self._services.clock.monotonic() - started)
        if response is None:
            return None
        is_unknown = (
            header.api_key == ApiVersionsRequest.API_KEY and response.error_code == ErrorCode.UNSUPPORTED_VERSION
        )
        version = 0 if is_unknown else header.api_version
        return framing.encode_response(response, version, header.correlation_id)

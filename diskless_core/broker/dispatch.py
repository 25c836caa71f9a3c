"""From a frame to the handler of its API, and from what that answers to a response frame.

What an API is, is declared in the table `apis`; this module only knows what an entry of it is made of.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeVar

import structlog

from diskless_core.broker.authorization import AclOperation, Caller, Principal, is_authorized
from diskless_core.broker.connection import Answer, CloseConnectionError, Connection
from diskless_core.broker.frames import Frame
from diskless_core.broker.rack_traffic import ClientTraffic
from diskless_core.broker.services import Services
from diskless_core.cluster.leader_choice import ClientIdentity, Leaders
from diskless_core.protocol import framing
from diskless_core.protocol.codec import ApiMessage
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.framing import FrameError, Request, RequestHeader
from diskless_core.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeTopicPartitionsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from diskless_core.side_by_side import in_thread

RequestT = TypeVar("RequestT", bound="ApiMessage")


class EncodedResponse(NamedTuple):
    """A response that another broker has encoded, with its header. It is sent as it is."""

    frame: bytes


Response = framing.Response | EncodedResponse | None
"""None where the protocol wants no answer."""

Handler = Callable[["RequestContext", RequestT], Response | Awaitable[Response]]
"""Begins a request synchronously, in the order of arrival but for large reads; may go on asynchronously."""

LARGE_FRAME_BYTES = 256 << 10
"""Requests of reading APIs from this size on are decoded in a thread. Such a one names thousands of partitions."""

_READS = frozenset(
    request.API_KEY for request in (FetchRequest, ListOffsetsRequest, MetadataRequest, DescribeTopicPartitionsRequest)
)
"""APIs whose requests may begin after later ones of their connection: they change nothing, so none depends on it."""

_SIZE = struct.Struct(">i")

_log = structlog.get_logger(__name__)


class Listeners(Enum):
    """Where an API is served."""

    ALL = "every listener"
    INTER_BROKER = "the inter-broker listener"


class ApiVersionRange(NamedTuple):
    """Versions of an API, both ends inclusive."""

    api_key: int
    min_version: int
    max_version: int


class Api:
    """An API that is served.

    Args:
        newest: the newest version that is served; the oldest is that of the schema.
        unstable_newest: the same where `unstable.api.versions.enable` is set, if that makes a difference.
        advertised_oldest: what ApiVersions says instead of the oldest version.
        needs: what a caller has to be allowed to do to the cluster. The handler asks `RequestContext.is_authorized`,
            because each API has its own way to refuse.
    """

    __slots__ = (
        "advertised_oldest",
        "handler",
        "listeners",
        "name",
        "needs",
        "newest",
        "oldest",
        "request",
        "unstable_newest",
    )

    def __init__(
        self,
        request: type[RequestT],
        newest: int,
        handler: Handler[RequestT],
        *,
        listeners: Listeners = Listeners.ALL,
        advertised_oldest: int | None = None,
        unstable_newest: int | None = None,
        needs: AclOperation | None = None,
    ) -> None:
        self.request: type[ApiMessage] = request
        self.name = request.__name__.removesuffix("Request")
        self.oldest = request.valid_versions[0]
        self.newest = newest
        self.unstable_newest = unstable_newest
        self.handler: Handler[Any] = handler
        self.listeners = listeners
        self.advertised_oldest = advertised_oldest
        self.needs = needs

    @property
    def key(self) -> int:
        return self.request.API_KEY

    @property
    def supported(self) -> ApiVersionRange:
        """The versions that requests may use."""
        return ApiVersionRange(self.key, self.oldest, self.newest)

    @property
    def advertised(self) -> ApiVersionRange:
        """What ApiVersions says."""
        oldest = self.oldest if self.advertised_oldest is None else self.advertised_oldest
        return ApiVersionRange(self.key, oldest, self.newest)

    @property
    def with_unstable(self) -> Api:
        """The API with versions that may change yet; itself where it has none."""
        if self.unstable_newest is None:
            return self
        return Api(
            self.request,
            self.unstable_newest,
            self.handler,
            listeners=self.listeners,
            advertised_oldest=self.advertised_oldest,
            needs=self.needs,
        )


Apis = Mapping[int, Api]
"""What a listener serves, by api key."""


def by_key(apis: Iterable[Api]) -> Apis:
    """The APIs by ascending api key. Of two with the same key the later one counts."""
    return {api.key: api for api in sorted(apis, key=lambda api: api.key)}


def with_unstable(apis: Apis) -> Apis:
    """The same APIs with versions that may change yet, as with `unstable.api.versions.enable`."""
    return {key: api.with_unstable for key, api in apis.items()}


@dataclass(slots=True)
class RequestContext:
    """One request's surroundings."""

    services: Services
    connection: Connection
    frame: Frame
    header: RequestHeader
    apis: Apis
    """What the request's listener serves."""
    sent_on_for: Caller | None = None
    """The client whose request another broker has sent on."""

    @property
    def api(self) -> Api:
        return self.apis[self.header.api_key]

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    @property
    def caller(self) -> Caller:
        """The client, whichever broker it asked."""
        return Caller(self.user, self.client_host, self.listener)

    @property
    def user(self) -> str:
        return self.connection.user if self.sent_on_for is None else self.sent_on_for.user

    @property
    def client_host(self) -> str:
        return self.connection.peer.rpartition(":")[0] if self.sent_on_for is None else self.sent_on_for.host

    @property
    def listener(self) -> str:
        return self.connection.listener if self.sent_on_for is None else self.sent_on_for.listener

    def rack(self, said: str | None = None) -> str | None:
        """The rack of the client, None where it is not known. `said` is what the request says of it, if it does."""
        return self.services.client_racks.rack_of(self.client_id, self.client_host, self.listener, said)

    def leaders(self, said_rack: str | None = None) -> Leaders:
        """The brokers that the client is told to be the leaders of partitions."""
        client = ClientIdentity(self.user, self.client_id or "", self.client_host)
        return self.services.gateways.leaders(self.listener, client, self.rack(said_rack))

    @property
    def is_authorized(self) -> bool:
        """Whether the one who asks may do what the API needs."""
        needs = self.api.needs
        return needs is None or self.may(needs)

    def may(self, operation: AclOperation) -> bool:
        """Whether the one who asks may do this to the cluster."""
        principal = Principal(self.user, self.listener)
        return is_authorized(principal, operation, self.services.config.inter_broker_listener_name)


class ApiDispatcher:
    """Finds the handler of each request among those that a listener serves.

    Args:
        traffic: where bytes are counted; None on the listener of other brokers, which count them themselves.
    """

    def __init__(self, services: Services, apis: Apis, traffic: ClientTraffic | None = None) -> None:
        self._services = services
        self._apis = apis
        self._traffic = traffic
        self._seconds = {key: services.metrics.request_seconds.labels(api=api.name) for key, api in apis.items()}

    def dispatch(self, frame: Frame, connection: Connection) -> Answer | Awaitable[Answer]:
        started = self._services.clock.monotonic()
        try:
            header = framing.parse_request_header(frame.view)
            api = self._apis.get(header.api_key)
            if api is None:
                raise FrameError(f"api key {header.api_key} is not served")
            if len(frame.view) >= LARGE_FRAME_BYTES and header.api_key in _READS:
                return self._dispatch_large(
                    api, header, frame, connection, started, _decode_in_thread(api, header, frame)
                )
            request = _decode(api, header, frame)
        except FrameError as error:
            raise self._malformed(error) from error
        return self._handle(api, header, request, frame, connection, started)

    async def _dispatch_large(
        self,
        api: Api,
        header: RequestHeader,
        frame: Frame,
        connection: Connection,
        started: float,
        decoding: asyncio.Future[Request | None],
    ) -> Answer:
        """Go on with a request that is decoded in a thread, and encode the answer in one: both can take seconds."""
        try:
            request = await asyncio.shield(decoding)
        except FrameError as error:
            raise self._malformed(error) from error
        context = self._context(header, request, frame, connection)
        try:
            outcome = api.handler(context, request)
            response = await outcome if isinstance(outcome, Awaitable) else outcome
            self._seconds[header.api_key].observe(self._services.clock.monotonic() - started)
            if response is None:
                return None
            return self._counted(header, await in_thread(partial(self._encoded, header, response)), connection)
        except Exception as error:  # the connection is the border: a defect must not pass it
            raise self._broken(header, error) from error

    def _malformed(self, error: FrameError) -> CloseConnectionError:
        self._services.metrics.frames_refused.inc()
        return CloseConnectionError(f"a malformed request: {error}")

    def _handle(
        self,
        api: Api,
        header: RequestHeader,
        request: Request | None,
        frame: Frame,
        connection: Connection,
        started: float,
    ) -> Answer | Awaitable[Answer]:
        context = self._context(header, request, frame, connection)
        try:
            outcome = api.handler(context, request)
        except Exception as error:  # the connection is the border: a defect must not pass it
            raise self._broken(header, error) from error
        if isinstance(outcome, asyncio.Future):
            return self._encode_later(header, outcome, started, connection)
        if isinstance(outcome, Awaitable):
            return self._encode_after(header, outcome, started, connection)
        return self._encode(header, outcome, started, connection)

    def _context(
        self, header: RequestHeader, request: Request | None, frame: Frame, connection: Connection
    ) -> RequestContext:
        if self._traffic is not None:
            traffic = self._traffic.of(connection, header.client_id, request)
            counter = traffic.produced if header.api_key == ProduceRequest.API_KEY else traffic.other
            counter.inc(_SIZE.size + len(frame.view))
        return RequestContext(self._services, connection, frame, header, self._apis)

    def _encode_later(
        self, header: RequestHeader, outcome: asyncio.Future[Response], started: float, connection: Connection
    ) -> Awaitable[Answer]:
        encoded: asyncio.Future[Answer] = outcome.get_loop().create_future()

        def encode(done: asyncio.Future[Response]) -> None:
            if encoded.done():
                return
            try:
                encoded.set_result(self._encode(header, done.result(), started, connection))
            except (Exception, asyncio.CancelledError) as error:  # it is handed on
                encoded.set_exception(self._broken(header, error))

        outcome.add_done_callback(encode)
        return encoded

    async def _encode_after(
        self, header: RequestHeader, outcome: Awaitable[Response], started: float, connection: Connection
    ) -> Answer:
        try:
            return self._encode(header, await outcome, started, connection)
        except Exception as error:  # the connection is the border: a defect must not pass it
            raise self._broken(header, error) from error

    def _broken(self, header: RequestHeader, error: BaseException) -> CloseConnectionError:
        if isinstance(error, CloseConnectionError):
            return error
        name = self._apis[header.api_key].name
        self._services.metrics.request_errors.labels(api=name).inc()
        _log.error("a request failed by a defect of the broker", api=name, exc_info=error)
        return CloseConnectionError("the request could not be processed")

    def _encode(self, header: RequestHeader, response: Response, started: float, connection: Connection) -> Answer:
        self._seconds[header.api_key].observe(self._services.clock.monotonic() - started)
        return None if response is None else self._counted(header, self._encoded(header, response), connection)

    def _counted(self, header: RequestHeader, answer: list[Any], connection: Connection) -> list[Any]:
        traffic = connection.traffic if self._traffic is not None else None
        if traffic is not None:
            counter = traffic.consumed if header.api_key == FetchRequest.API_KEY else traffic.other
            counter.inc(sum(map(len, answer)))
        return answer

    @staticmethod
    def _encoded(header: RequestHeader, response: framing.Response | EncodedResponse) -> list[Any]:
        if isinstance(response, EncodedResponse):
            return [_SIZE.pack(len(response.frame)), response.frame]
        is_unknown = isinstance(response, ApiVersionsResponse) and response.error_code == ErrorCode.UNSUPPORTED_VERSION
        version = 0 if is_unknown else header.api_version
        return framing.encode_response(response, version, header.correlation_id)


def _decode_in_thread(api: Api, header: RequestHeader, frame: Frame) -> asyncio.Future[Request | None]:
    """Begin to decode. The thread holds the frame until it has ended, whatever becomes of the connection meanwhile."""

    def ended(done: asyncio.Future[Request | None]) -> None:
        frame.release()
        if not done.cancelled():
            done.exception()  # retrieved here: the connection may have been closed

    frame.hold()
    decoding = asyncio.get_running_loop().run_in_executor(None, _decode, api, header, frame)
    decoding.add_done_callback(ended)
    return decoding


def _decode(api: Api, header: RequestHeader, frame: Frame) -> Request | None:
    """The request; None for ApiVersions of an unknown version, which has an answer nevertheless."""
    if api.oldest <= header.api_version <= api.newest:
        return framing.decode_request(api.request, header.api_version, frame.view, header.body)
    if header.api_key == ApiVersionsRequest.API_KEY:
        return None
    raise FrameError(f"version {header.api_version} of api key {header.api_key} is not served")

"""What the inter-broker listener answers while the broker still starts, before the parts that its handlers stand on.

Other brokers have to reach a broker before it may be unfenced, and a broker that leads the cluster shard, or that is
nominated to lead another one, is needed before it can serve clients. So membership is answered, what followers ask for,
and what is asked of a Diskless coordinator, but for deletions: whoever has to hear of them is not there yet. Everything
else waits in its order until the broker can answer it, and nothing more is read from its connection meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field

import structlog

from diskless_core.broker.authorization import AclOperation, Principal, is_authorized
from diskless_core.broker.connection import Answer, CloseConnectionError, Connection, Dispatcher
from diskless_core.broker.frames import Frame
from diskless_core.cluster.membership.part import Membership
from diskless_core.cluster.membership.service import MEMBERSHIP_REQUESTS
from diskless_core.diskless.api import FIND_COORDINATOR_KEY_TYPE
from diskless_core.diskless.service import DISKLESS_REQUESTS, CoordinatorService
from diskless_core.protocol import framing
from diskless_core.protocol.codec import ApiMessage
from diskless_core.protocol.framing import FrameError, Request, RequestHeader, Response
from diskless_core.protocol.messages import (
    DisklessDeleteRecordsRequest,
    DisklessDeleteTopicsRequest,
    FindCoordinatorRequest,
)

_SEVERAL_KEYS_SINCE = 4
"""The version of FindCoordinator that brokers use."""

_OF_COORDINATORS: list[type[ApiMessage]] = [*DISKLESS_REQUESTS, FindCoordinatorRequest]
_DELETIONS = (DisklessDeleteTopicsRequest, DisklessDeleteRecordsRequest)

AT_ONCE: Mapping[int, type[ApiMessage]] = MEMBERSHIP_REQUESTS | {
    request.API_KEY: request for request in _OF_COORDINATORS if request not in _DELETIONS
}
"""What can be answered before the other parts are there, by api key."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyAnswers:
    """What a broker can answer to other brokers before it serves clients."""

    membership: Membership
    coordinators: CoordinatorService

    async def handle(self, api_key: int, request: Request, connection: Connection) -> Response:
        """The response to a request that `answers` accepts."""
        if api_key in MEMBERSHIP_REQUESTS:
            return await self.membership.service.handle(request, connection)
        return await self.coordinators.handle(api_key, request)

    @staticmethod
    def answers(api_key: int, request: Request) -> bool:
        """Whether a request can be answered. FindCoordinator of groups cannot."""
        if isinstance(request, FindCoordinatorRequest):
            return request.key_type == FIND_COORDINATOR_KEY_TYPE
        return api_key in AT_ONCE


@dataclass(slots=True, eq=False)
class _Waiting:
    frame: Frame
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class StartingDispatcher:
    """The dispatcher of the inter-broker listener until `hand_over`."""

    def __init__(self, early: EarlyAnswers, inter_broker_listener: str) -> None:
        self._early = early
        self._listener = inter_broker_listener
        self._waiting: dict[Connection, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def dispatch(self, frame: Frame, connection: Connection) -> Answer | Awaitable[Answer]:
        try:
            header = framing.parse_request_header(frame.view)
            request = self._early_request(header, frame)
        except FrameError as error:
            raise CloseConnectionError(f"a malformed request: {error}") from error
        if request is None:
            return self._wait(frame, connection)
        if not is_authorized(
            Principal(connection.user, connection.listener), AclOperation.CLUSTER_ACTION, self._listener
        ):
            raise CloseConnectionError("only brokers are answered while this broker starts")
        return self._answer(header, request, connection)

    def _early_request(self, header: RequestHeader, frame: Frame) -> Request | None:
        """The request, if it can be answered now; None if it has to wait."""
        kind = AT_ONCE.get(header.api_key)
        if kind is None or (kind is FindCoordinatorRequest and header.api_version < _SEVERAL_KEYS_SINCE):
            return None
        request = framing.decode_request(kind, header.api_version, frame.view, header.body)
        return request if self._early.answers(header.api_key, request) else None

    async def _answer(self, header: RequestHeader, request: Request, connection: Connection) -> Answer:
        try:
            response = await self._early.handle(header.api_key, request, connection)
        except Exception as error:  # the connection is the border: a defect must not pass it
            _log.error("a request failed by a defect of the broker", api_key=header.api_key, exc_info=error)
            raise CloseConnectionError("the request could not be processed") from error
        return framing.encode_response(response, header.api_version, header.correlation_id)

    # --- what has to wait --------------------------------------------------------------------------------------------

    def _wait(self, frame: Frame, connection: Connection) -> asyncio.Future[Answer]:
        frame.hold()
        waiting = _Waiting(frame)
        if connection in self._waiting:
            self._waiting[connection].append(waiting)
        else:
            self._waiting[connection] = [waiting]
            connection.wait_for_start()
            connection.on_lost(lambda: self._forget(connection))
        return waiting.answer

    def _forget(self, connection: Connection) -> None:
        for waiting in self._waiting.pop(connection, ()):
            waiting.frame.release()

    def hand_over(self, dispatcher: Dispatcher) -> None:
        """Give what has waited to the dispatcher that is used from now on: a connection's requests in their order."""
        waiting, self._waiting = self._waiting, {}
        for connection, requests in waiting.items():
            for one in requests:
                self._begin(one, connection, dispatcher)
            connection.has_started()

    def _begin(self, waiting: _Waiting, connection: Connection, dispatcher: Dispatcher) -> None:
        try:
            outcome = dispatcher.dispatch(waiting.frame, connection)
        except CloseConnectionError as error:
            waiting.answer.set_exception(error)
            return
        finally:
            waiting.frame.release()
        if outcome is None or isinstance(outcome, list):
            waiting.answer.set_result(outcome)
            return
        task = asyncio.create_task(_settle(waiting.answer, outcome), name="request that waited for the start")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _settle(answer: asyncio.Future[Answer], outcome: Awaitable[Answer]) -> None:
    try:
        answer.set_result(await outcome)
    except (CloseConnectionError, asyncio.CancelledError) as error:
        answer.set_exception(CloseConnectionError(str(error) or "the request was given up"))

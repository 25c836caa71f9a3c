"""What only the controller decides is sent there by every other broker, in an Envelope. (KIP-590.)

While it is certain that nothing has happened, because nobody leads the cluster shard, or the broker that was asked does
not lead it or cannot be reached, the next one is asked. Once a request was sent and no answer came, it is not sent
again: the client is told that the outcome is not known.
"""

from __future__ import annotations

import asyncio
import struct
from functools import partial

from diskless_core.broker.authorization import Caller
from diskless_core.broker.cluster_catch_up import until_applied
from diskless_core.clock import Clock
from diskless_core.cluster.shard import ClusterShard
from diskless_core.coordinator.calls import PeerCalls, while_led
from diskless_core.coordinator.errors import CoordinatorError, NotControllerError, OutcomeUnknownError
from diskless_core.coordinator.peers import PeerTransport
from diskless_core.protocol.envelope import pack_address, pack_user
from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.messages import EnvelopeRequest, EnvelopeResponse

LIMIT_S = 25.0
"""How long a request may take that sets no limit of its own. Clients of Apache Kafka give up after 30 seconds."""

RETRY_S = 0.05

CATCH_UP_S = 2.0
"""How long an answer is kept back at most for this broker to see what the request changed."""

_ANSWER_MS = 30_000
"""After which a connection to the controller that brings no answer is given up: more than any request's own limit."""

_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_POSITION = 4


class EnvelopeRefusedError(CoordinatorError):
    """The controller takes no such request from this broker; nothing happened."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class Forwarding:
    """This broker's way to the controller.

    Args:
        transport: to other brokers, for nothing else: a request may take as long as the creation of many topics.
        max_bytes: of a request that other brokers would accept, and of all that are under way.
    """

    def __init__(
        self, node_id: int, shard: ClusterShard, transport: PeerTransport, clock: Clock, *, max_bytes: int
    ) -> None:
        self._node_id = node_id
        self._shard = shard
        self._calls = PeerCalls(transport, timeout_ms=_ANSWER_MS, transfer_s=0)
        self._clock = clock
        self._max_bytes = max_bytes
        self._asked: set[asyncio.Task[EnvelopeResponse]] = set()
        self._bytes_waiting = self._bytes_asked = 0

    @property
    def is_needed(self) -> bool:
        """Whether another broker has to be asked, as far as this one knows."""
        return not self._shard.leading

    async def send(self, request: bytes, caller: Caller, limit_s: float = LIMIT_S) -> bytes | None:
        """The controller's response to a client's request, both with their headers.

        When it comes, this broker has read what the request changed, if that took it less than `CATCH_UP_S`.

        Returns:
            None when this broker has come to lead the cluster shard itself: nothing has happened.

        Raises:
            OutcomeUnknownError: it was sent, and there is no answer.
            NotControllerError: nobody was found who leads the cluster shard within `limit_s`, or too much is under way
                already; nothing happened.
            EnvelopeRefusedError: nothing happened, and nothing will.
        """
        if len(request) > self._max_bytes:
            raise EnvelopeRefusedError(f"a request of {len(request)} bytes is too large to be sent to the controller")
        if max(self._bytes_waiting, self._bytes_asked) + len(request) > self._max_bytes:
            raise NotControllerError("very many requests for the controller are under way: send it again later")
        self._bytes_waiting += len(request)
        try:
            return await self._sent(request, caller, limit_s)
        finally:
            self._bytes_waiting -= len(request)

    async def _sent(self, request: bytes, caller: Caller, limit_s: float) -> bytes | None:
        message = EnvelopeRequest(
            request_data=request,
            request_principal=pack_user(caller.user),
            client_host_address=pack_address(caller.host),
            listener_name=caller.listener,
        )
        deadline_s = self._clock.monotonic() + limit_s
        response = await self._answer(message, deadline_s)
        if response is None:
            return None
        # Its client may ask this broker next.
        catch_up_by_s = min(deadline_s, self._clock.monotonic() + CATCH_UP_S)
        await until_applied(self._shard, response.applied_offset, catch_up_by_s, self._clock)
        return _require_answer_to(request, response)

    async def _answer(self, message: EnvelopeRequest, deadline_s: float) -> EnvelopeResponse | None:
        refused_by, reason = None, "nobody is known to lead the cluster shard"
        while not self._shard.leading:
            left_s = deadline_s - self._clock.monotonic()
            if left_s < (RETRY_S if refused_by is not None else 0):  # there is no time for another answer
                raise NotControllerError(f"no controller was found in time: {reason}")
            controller = self._controller(refused_by)
            if controller is not None:
                try:
                    response = await self._ask(controller, message, left_s)
                except OutcomeUnknownError:
                    raise
                except CoordinatorError as error:
                    refused_by, reason = controller, str(error)
                else:
                    if response.error_code != ErrorCode.NOT_CONTROLLER:
                        return response
                    refused_by, reason = controller, f"broker {controller} is not the controller"
            await asyncio.sleep(RETRY_S)
        return None

    def _controller(self, refused_by: int | None) -> int | None:
        """Who is asked next: who is nominated, and in turn with it who claimed the shard last, if that is another."""
        nodes = (self._shard.leader_hint, self._shard.claimed_by)
        others = [node_id for node_id in nodes if node_id is not None and node_id != self._node_id]
        return next((node_id for node_id in others if node_id != refused_by), others[0] if others else None)

    async def _ask(self, controller: int, message: EnvelopeRequest, left_s: float) -> EnvelopeResponse:
        # It is waited for even when the client's time is over, so that a connection without answers is given up.
        asked = asyncio.create_task(self._calls.call(controller, message), name="request for the controller")
        size = len(message.request_data)
        self._bytes_asked += size
        self._asked.add(asked)
        asked.add_done_callback(partial(self._answered, size))
        try:
            async with asyncio.timeout(left_s):
                return await while_led(asyncio.shield(asked), partial(self._shard.until_led_elsewhere, controller))
        except TimeoutError:
            raise OutcomeUnknownError(f"the controller, broker {controller}, gave no answer in time") from None

    def _answered(self, size: int, asked: asyncio.Task[EnvelopeResponse]) -> None:
        self._bytes_asked -= size
        self._asked.discard(asked)
        if not asked.cancelled():
            asked.exception()  # the client may be gone by now


def _require_answer_to(request: bytes, response: EnvelopeResponse) -> bytes:
    error, data = code_of(response.error_code), response.response_data
    if error is not ErrorCode.NONE:
        raise EnvelopeRefusedError(f"the controller takes no such request: {error.name}")
    if data is None or len(data) < _CORRELATION_ID.size:
        raise OutcomeUnknownError("the controller sent no response")
    if _CORRELATION_ID.unpack_from(data) != _CORRELATION_ID.unpack_from(request, _CORRELATION_ID_POSITION):
        raise OutcomeUnknownError("the controller sent the response to another request")
    return data

"""A broker's own membership: it asks the controller what its lifecycle wants to ask, as long as the broker runs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence

import structlog

from diskless_core.clock import LEAST_PAUSE_S, Clock
from diskless_core.cluster.membership import wire
from diskless_core.cluster.membership.clocks import Compared, compare, differences
from diskless_core.cluster.membership.heartbeats import Beat
from diskless_core.cluster.membership.lifecycle import BrokerState, Heartbeat, Lifecycle, Register
from diskless_core.cluster.membership.model import BrokerSpec
from diskless_core.cluster.membership.service import MembershipService
from diskless_core.cluster.membership.sessions import Health, SessionTimes
from diskless_core.cluster.membership.suspicion import Suspicion
from diskless_core.cluster.shard import ClusterShard
from diskless_core.coordinator.calls import PeerCalls
from diskless_core.coordinator.errors import CoordinatorError, NodeGoneError, NotCoordinatorError, OutcomeUnknownError
from diskless_core.coordinator.leader import Hold
from diskless_core.protocol.codec import ApiRequest, ResponseT_co
from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.messages import BrokerHeartbeatResponse

PATIENCE_S = 10.0
"""How long a start waits before it says what for, each time anew."""

_NOT_REGISTERED = frozenset({ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH})

_log = structlog.get_logger(__name__)


class MembershipRefusedError(CoordinatorError):
    """The broker cannot be a member of the cluster; the message says why."""


class NodeIdRetiredError(MembershipRefusedError):
    """The node id that the cluster gave to this broker is not its own any more. It may take another one."""


class Member:
    """One broker process as a member.

    Args:
        service: answers while this node leads the cluster shard itself.
        calls: to other nodes, by connections of their own: nothing else delays a heartbeat, and the controller sees by
            them that the process has ended.
        health: how the broker's backends are now.
        leads: names of the shards that keep the broker from stopping, as far as it knows.

    Attributes:
        last_controller: the other node that was the controller last, as far as is known.
        unreachable: the controller that could not be connected to when it was asked last.
        unreachable_because: why the controller does not reach this broker, and what to do; None as far as it does.
        answered_s: when the last controller answered last, by the monotonic clock; None if it never did.
    """

    def __init__(
        self,
        spec: BrokerSpec,
        shard: ClusterShard,
        service: MembershipService,
        calls: PeerCalls,
        times: SessionTimes,
        clock: Clock,
        *,
        cluster_id: str,
        allocation_id: uuid.UUID | None = None,
        health: Callable[[], Health],
        has_clients: Callable[[], bool],
        leads: Callable[[], Sequence[str]],
    ) -> None:
        self._spec = spec
        self._shard = shard
        self._service = service
        self._calls = calls
        self._clock = clock
        self._cluster_id = cluster_id
        self._allocation_id = allocation_id
        self._health = health
        self._has_clients = has_clients
        self._leads = leads
        self._times = times
        self._lifecycle = Lifecycle(times, clock.monotonic())
        self._suspicion = Suspicion()
        self._nudged = asyncio.Event()
        self._changed = asyncio.Event()
        self._said: str | None = None
        self._compared: Compared | None = None
        self.unreachable_because: str | None = None
        self._told_unreachable_s = 0.0
        self.last_controller: int | None = None
        self.unreachable: int | None = None
        self.answered_s: float | None = None
        self._obstacle = "nobody is known to lead the cluster shard"

    @property
    def state(self) -> BrokerState:
        return self._lifecycle.state

    # --- what the broker does ----------------------------------------------------------------------------------------

    async def until_registered(self) -> None:
        """Wait until the broker is a member, fenced or not.

        Raises:
            MembershipRefusedError: it cannot be.
        """
        await self._until(lambda: self._lifecycle.epoch is not None, "to be registered")

    async def until_unfenced(self) -> None:
        """Say that the broker can serve, and wait until it is unfenced.

        Raises:
            MembershipRefusedError: it cannot be a member.
        """
        self._lifecycle.ready(self._clock.monotonic())
        self._nudged.set()
        await self._until(lambda: self.state is BrokerState.RUNNING, "to be unfenced")

    async def leave(self, limit_s: float) -> None:
        """Ask for a controlled shutdown, and wait until the broker may stop, `limit_s` at most."""
        self._lifecycle.shut_down(self._clock.monotonic())
        self._nudged.set()
        try:
            async with asyncio.timeout(limit_s):
                await self._until(lambda: self.state is BrokerState.SHUTTING_DOWN, "to be shut down")
        except TimeoutError:
            _log.warning("the broker stops without having been let go", reason=self._obstacle, leads=self._leads())

    def connection_lost(self, node_id: int) -> None:
        """The connection by which heartbeats go to a node broke: the controller must not take this broker for dead."""
        if node_id == self._controller():
            self._suspicion.broke(node_id)
            self._lifecycle.hurry(self._clock.monotonic())
            self._nudged.set()

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        said_s = self._clock.monotonic()
        while not condition():
            self._require_membership()
            self._changed.clear()
            left_s = said_s + PATIENCE_S - self._clock.monotonic()
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    await self._changed.wait()
            except TimeoutError:
                said_s = self._clock.monotonic()
                _log.warning(f"the broker waits {what}", reason=self._obstacle)

    def _require_membership(self) -> None:
        if self._lifecycle.is_retired:
            raise NodeIdRetiredError(self._lifecycle.verdict or "")
        if self._lifecycle.verdict is not None:
            raise MembershipRefusedError(self._lifecycle.verdict)

    async def until_retired(self) -> None:
        """Wait until the broker's node id is not its own any more, if that ever happens."""
        while not self._lifecycle.is_retired:
            self._changed.clear()
            await self._changed.wait()

    # --- questions ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ask for ever, and at once when there is another controller."""
        asked: int | None = None
        while True:
            controller = self._controller()
            if controller != asked and controller is not None:
                self._lifecycle.hurry(self._clock.monotonic())
            asked = controller
            if controller not in (None, self._spec.node_id, self.last_controller):
                self.last_controller, self.answered_s = controller, None
            await self._until_due(controller)
            if self._controller() == controller and self._clock.monotonic() >= self._lifecycle.due_s:
                await self._ask(controller)
                self._changed.set()

    async def _until_due(self, controller: int | None) -> None:
        self._nudged.clear()
        pause_s = self._lifecycle.due_s - self._clock.monotonic()
        if pause_s <= 0:
            return
        waits = [
            asyncio.create_task(self._nudged.wait(), name="nudge"),
            asyncio.create_task(self._until_moved(controller), name="another controller"),
        ]
        try:
            await asyncio.wait(waits, timeout=max(pause_s, LEAST_PAUSE_S), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _until_moved(self, controller: int | None) -> None:
        await self._shard.until_leadership(lambda: self._controller() != controller)

    def _controller(self) -> int | None:
        """Whom to ask. None while nobody leads, and while this node is about to."""
        if self._shard.leading:
            return self._spec.node_id
        hint = self._shard.leader_hint
        return hint if hint != self._spec.node_id else None

    async def _ask(self, controller: int | None) -> None:
        question = self._lifecycle.question()
        try:
            if isinstance(question, Register):
                await self._register(controller)
            else:
                await self._heartbeat(controller, question)
            self.unreachable = None
            if controller is not None:
                self._suspicion.answered(controller)
            if controller == self.last_controller:
                self.answered_s = self._clock.monotonic()
        except (NotCoordinatorError, OutcomeUnknownError) as error:
            self._obstacle = str(error)
            self._lifecycle.no_answer(self._clock.monotonic())
        except CoordinatorError as error:
            self._obstacle, self.unreachable = str(error), controller
            self._lifecycle.no_answer(self._clock.monotonic())
            if isinstance(error, NodeGoneError) and controller is not None:
                self._refused_by(controller)
        self._forget_old_word()

    def _refused_by(self, controller: int) -> None:
        if self._suspicion.refused(controller, self._clock.monotonic()):
            _log.info("the controller has most likely ended: nobody listens where it did", controller=controller)
            self._shard.suspect(controller)

    async def _register(self, controller: int | None) -> None:
        sent_s = self._clock.monotonic()
        request = wire.registration_request(self._spec, self._cluster_id, self._allocation_id)
        if controller == self._spec.node_id:
            response = await self._service.register(request)
        else:
            response = await self._call(controller, request)
        code, now_s = code_of(response.error_code), self._clock.monotonic()
        if code is ErrorCode.NONE:
            self._lifecycle.registered(response.broker_epoch, now_s)
            self._said = None
            if controller != self._spec.node_id:
                _log.info("registered with the controller", controller=controller, epoch=response.broker_epoch)
            return
        refusal = wire.refused_registration(response)
        self._obstacle = refusal.message
        if code.retriable:
            self._lifecycle.no_answer(now_s)
            return
        self._lifecycle.refused(refusal, sent_s, now_s)
        if refusal.message != self._said:
            _log.warning("the controller does not register this broker", controller=controller, reason=refusal.message)
        self._said = refusal.message

    async def _heartbeat(self, controller: int | None, question: Heartbeat) -> None:
        beat = Beat(
            node_id=self._spec.node_id,
            epoch=question.epoch,
            applied_offset=self._shard.next_offset,
            want_fence=question.want_fence,
            want_shut_down=question.want_shut_down,
            has_clients=self._has_clients(),
            health=self._health(),
            compared=self._compared,
        )
        sent_s = self._clock.monotonic()
        request = wire.heartbeat_request(beat)
        if controller == self._spec.node_id:
            response = await self._service.heartbeat(request)
        else:
            response = await self._call(controller, request)
        code, now_s, before = code_of(response.error_code), self._clock.monotonic(), self.state
        if code is ErrorCode.NONE:
            self._lifecycle.answered(
                is_fenced=response.is_fenced, should_shut_down=response.should_shut_down, now_s=now_s
            )
            kept = response.fenced_reason or "the controller keeps it fenced"
            self._obstacle = kept if response.is_fenced else "it leads coordinators still, or has clients"
            self._hear_whether_reachable(controller, response)
            self._compare_clocks(controller, response, now_s - sent_s)
        elif code in _NOT_REGISTERED:
            self._lifecycle.unknown(now_s)
        else:
            self._obstacle = code.name
            self._lifecycle.no_answer(now_s)
        if self.state is not before and controller != self._spec.node_id:
            _log.info("the broker's state has changed", state=self.state.name.lower())

    def _compare_clocks(self, controller: int | None, response: BrokerHeartbeatResponse, round_trip_s: float) -> None:
        told = wire.clock_of(response)
        if told is None or controller is None:
            return
        if controller == self._spec.node_id:
            self._compared = Compared(controller=controller, ahead_ms=0)
        else:
            now_ms = self._clock.now_ms()
            self._compared = compare(
                controller, told, received_ms=now_ms, round_trip_s=round_trip_s, before=self._compared
            )
        if self._compared is not None:
            self._shard.clock_watch.compared(differences(self._spec.node_id, self._compared, told))

    # --- a broker that nobody reaches --------------------------------------------------------------------------------

    def _hear_whether_reachable(self, controller: int | None, response: BrokerHeartbeatResponse) -> None:
        """A broker that the controller does not reach is no candidate: as a controller it would be of no use."""
        if not response.is_unreachable:
            if not response.is_fenced:
                self._stand_again()
            return
        reason = response.fenced_reason or "the controller does not reach it"
        self._told_unreachable_s = self._clock.monotonic()
        if reason != self.unreachable_because:
            _log.warning("the controller keeps this broker fenced", controller=controller, reason=reason)
        self.unreachable_because = reason
        self._shard.stand_back(Hold.UNREACHABLE, reason)

    def _forget_old_word(self) -> None:
        """What a controller said counts for a session: it may have been wrong, and nobody else may be left to lead."""
        if self._clock.monotonic() - self._told_unreachable_s >= self._times.session_s:
            self._stand_again()

    def _stand_again(self) -> None:
        if self.unreachable_because is not None:
            self.unreachable_because = None
            self._shard.stand(Hold.UNREACHABLE)

    async def _call(self, controller: int | None, request: ApiRequest[ResponseT_co]) -> ResponseT_co:
        """The answer of another node; it is not waited for any more once that does not lead.

        Raises:
            CoordinatorError: there is none.
        """
        if controller is None:
            raise NotCoordinatorError("nobody is known to lead the cluster shard")
        answer = asyncio.ensure_future(self._calls.call(controller, request))
        moved = asyncio.create_task(self._until_moved(controller), name="another controller")
        try:
            await asyncio.wait((answer, moved), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise NotCoordinatorError(f"node {controller} does not lead the cluster shard any more")
        finally:
            answer.cancel()
            moved.cancel()

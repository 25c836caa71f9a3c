"""Whether brokers answer where they say: the controller asks each at its registered address before it is unfenced.

What a broker leads is of no use where nobody reaches it. So it has to answer by its inter-broker listener, to a
connection that was made for the question alone, as the process that has registered. The question is asked beside
everything else: as soon as a broker has registered, so that the answer is there before it wants to be unfenced.
(Extension to KIP-631, "Broker registration".)
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from diskless_core.background import end
from diskless_core.clock import Clock
from diskless_core.cluster.membership.model import BrokerListener, BrokerSpec, Registration
from diskless_core.cluster.membership.sessions import SessionTimes
from diskless_core.coordinator.calls import PeerCalls
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.peers import AskOnce, PeerAddress, PeerError, PeerRequest, listener_advice
from diskless_core.plugin.retrying import Backoff
from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.messages import DisklessIdentifyBrokerRequest, DisklessIdentifyBrokerResponse

PATIENCE_S = 0.5
"""How long the first answer is waited for at most by who needs it. A heartbeat may have to."""

ASK_AGAIN = Backoff(first_ms=200, max_ms=5_000)
"""From the end of an attempt that failed to the next one."""

MAX_UNDER_WAY = 64
"""Attempts, each of which may be a connection."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """Why a broker may not be unfenced.

    Attributes:
        is_certain: whether it was asked and did not answer. If not, the first answer is still awaited.
    """

    reason: str
    is_certain: bool


@dataclass(slots=True, kw_only=True)
class _Look:
    """What is known of one registration.

    Attributes:
        answered_s: when the broker answered, by the monotonic clock; None as long as it has not.
        reason: why it did not when it was asked last; None before that is known, and after an answer.
        ask_at_s: not before.
    """

    epoch: int
    attempt: asyncio.Task[None] | None = None
    answered_s: float | None = None
    reason: str | None = None
    failures: int = 0
    ask_at_s: float = 0.0


class Reachability:
    """What the leader of the cluster shard finds out about fenced brokers. It has one attempt under way for each.

    Args:
        listener: the name of the inter-broker listener.
        ask_once: asks whoever listens at an address.
    """

    def __init__(
        self, listener: str | None, ask_once: AskOnce, times: SessionTimes, clock: Clock, *, cluster_id: str
    ) -> None:
        self._listener = listener
        self._ask_once = ask_once
        self._clock = clock
        self._cluster_id = cluster_id
        self._limit_s = self._counts_s = times.session_s / 2
        self._patience_s = min(PATIENCE_S, times.heartbeat_s / 2)
        self._looks: dict[int, _Look] = {}
        self._room = asyncio.Semaphore(MAX_UNDER_WAY)

    def begin(self, known: Registration) -> None:
        """Ask a broker that will want to be unfenced, if it is not being asked and has not answered lately."""
        self._begun(known)

    async def obstacle(self, known: Registration) -> Unreachable | None:
        """Why a broker may not be unfenced now; None when it answers where it has registered.

        The first answer is waited for, for a moment; later ones are not.
        """
        look = self._begun(known)
        if look.attempt is not None and look.reason is None:
            await asyncio.wait((look.attempt,), timeout=self._patience_s)
        if look.answered_s is not None:
            return None
        if look.reason is not None:
            return Unreachable(reason=look.reason, is_certain=True)
        return Unreachable(reason=f"the controller waits for its answer at {self._place(known.spec)}", is_certain=False)

    def forget(self, node_id: int) -> None:
        """What a broker has answered counts no more: it is unfenced, or gone."""
        look = self._looks.pop(node_id, None)
        if look is not None and look.attempt is not None:
            look.attempt.cancel()

    def forget_all(self) -> None:
        """A new term: begin anew."""
        for node_id in list(self._looks):
            self.forget(node_id)

    async def stop(self) -> None:
        """Ask no more."""
        attempts: Collection[asyncio.Task[None]] = [one.attempt for one in self._looks.values() if one.attempt]
        self._looks.clear()
        await end(attempts)

    # --- attempts ------------------------------------------------------------------------------------------------

    def _begun(self, known: Registration) -> _Look:
        node_id, now_s = known.spec.node_id, self._clock.monotonic()
        look = self._looks.get(node_id)
        if look is None or look.epoch != known.epoch:
            self.forget(node_id)
            look = self._looks[node_id] = _Look(epoch=known.epoch)
        if look.answered_s is not None and now_s - look.answered_s >= self._counts_s:
            look.answered_s = None
        if look.answered_s is None and look.attempt is None and now_s >= look.ask_at_s:
            look.attempt = asyncio.create_task(self._attempt(known.spec, look), name=f"broker {node_id} is asked")
        return look

    async def _attempt(self, spec: BrokerSpec, look: _Look) -> None:
        try:
            async with self._room:
                try:
                    reason = await self._find_out(spec)
                except Exception as error:  # a defect here must not keep a broker out without a word
                    reason = f"the controller could not ask it: {error!r}"
            if reason is None:
                look.answered_s, look.reason, look.failures = self._clock.monotonic(), None, 0
                return
            if reason != look.reason:
                _log.warning("a broker stays fenced: it cannot be reached", broker=spec.node_id, reason=reason)
            look.reason = reason
            look.failures += 1
            look.ask_at_s = self._clock.monotonic() + ASK_AGAIN.pause_s(look.failures, self._clock)
        finally:
            look.attempt = None

    async def _find_out(self, spec: BrokerSpec) -> str | None:
        """Why a broker cannot be reached; None when it can."""
        listener = self._listener_of(spec)
        if listener is None:
            return (
                f"it has registered no listener by the name of {self._listener}, the controller's "
                "inter.broker.listener.name: set inter.broker.listener.name alike on all brokers"
            )
        calls = PeerCalls(_At(listener, self._ask_once), timeout_ms=int(self._limit_s * 1000), transfer_s=0)
        try:
            response = await calls.call(spec.node_id, DisklessIdentifyBrokerRequest(broker_id=spec.node_id))
            problem = self._mismatch(spec, response)
        except CoordinatorError as error:
            problem = str(error.__cause__ if isinstance(error.__cause__, PeerError) else error)
        if problem is None:
            return None
        return (
            f"the controller does not reach it at {self._place(spec)}: {problem}. Set {listener_advice(listener.name)}"
        )

    def _mismatch(self, spec: BrokerSpec, response: DisklessIdentifyBrokerResponse) -> str | None:
        """How who has answered differs from who was asked."""
        code = code_of(response.error_code)
        if code is not ErrorCode.NONE:
            return f"the answer is {code.name}"
        if response.cluster_id != self._cluster_id:
            return f"that is a broker of the cluster {response.cluster_id}"
        if response.broker_id != spec.node_id:
            return f"that is broker {response.broker_id}"
        if response.incarnation_id != spec.incarnation_id:
            return f"that is another process with the node id {spec.node_id}"
        return None

    def _listener_of(self, spec: BrokerSpec) -> BrokerListener | None:
        return spec.listener(self._listener) if self._listener is not None else None

    def _place(self, spec: BrokerSpec) -> str:
        listener = self._listener_of(spec)
        if listener is None:
            return "an unknown address"
        return f"{listener.host}:{listener.port}, which it advertises for {listener.name}"


class _At:
    """A `PeerTransport` to one address, with a connection for each request."""

    def __init__(self, listener: BrokerListener, ask_once: AskOnce) -> None:
        self._address = PeerAddress(listener.host, listener.port)
        self._ask_once = ask_once

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes | memoryview:
        del node_id
        return await self._ask_once(self._address, request, timeout_s)

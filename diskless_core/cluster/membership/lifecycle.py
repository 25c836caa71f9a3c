"""The life of a broker as a member, as Kafka's brokers live it: what it asks of the controller next, and when. Pure.

Times are seconds of the broker's monotonic clock. (KIP-631, "Broker lifecycle".)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from diskless_core.cluster.membership.node_ids import RETIRED
from diskless_core.cluster.membership.sessions import SessionTimes
from diskless_core.protocol.errors import ErrorCode

RETRY_S = 0.2
"""Between questions that get no answer."""


class BrokerState(IntEnum):
    """Kafka's states of a broker, by its numbers."""

    STARTING = 1
    """It has not registered yet, or has to register anew."""
    RECOVERY = 2
    """It has registered, and is fenced."""
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    """It has asked to be shut down."""
    SHUTTING_DOWN = 7
    """It may stop."""


@dataclass(frozen=True, slots=True)
class Register:
    """It has to register."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """It has to send a heartbeat."""

    epoch: int
    want_fence: bool
    want_shut_down: bool


@dataclass(frozen=True, slots=True)
class RefusedRegistration:
    """Why a registration was refused.

    Attributes:
        silent_s: how long the broker that has the node id had been silent then; None where that is not known.
    """

    code: ErrorCode
    message: str
    silent_s: float | None


class Lifecycle:
    """What one process has come to.

    Attributes:
        due_s: when the next question is due.
        epoch: the number of its registration; None without one.
        verdict: why it can't be a member, for good; None as long as it may.
        is_retired: whether that is because its node id is not its own any more.
    """

    def __init__(self, times: SessionTimes, now_s: float) -> None:
        self.state = BrokerState.STARTING
        self.due_s = now_s
        self.epoch: int | None = None
        self.verdict: str | None = None
        self.is_retired = False
        self._times = times
        self._is_ready = False
        self._has_asked_ready = False
        self._wants_shut_down = False
        self._refused_at_s: float | None = None
        self._was_member = False

    def question(self) -> Register | Heartbeat:
        """What is to be asked when it is due."""
        if self.epoch is None:
            return Register()
        self._has_asked_ready = self._is_ready
        return Heartbeat(
            epoch=self.epoch,
            want_fence=not self._is_ready and not self._wants_shut_down,
            want_shut_down=self._wants_shut_down,
        )

    # --- what happens to the broker ----------------------------------------------------------------------------------

    def ready(self, now_s: float) -> None:
        """It can serve: it wants to be unfenced."""
        self._is_ready, self.due_s = True, now_s

    def shut_down(self, now_s: float) -> None:
        """It is to stop. One that is no member may do that at once."""
        self._wants_shut_down, self.due_s = True, now_s
        if self.epoch is None:
            self.state = BrokerState.SHUTTING_DOWN
        elif self.state is not BrokerState.SHUTTING_DOWN:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN

    def hurry(self, now_s: float) -> None:
        """There is another controller, or the way to it has changed: it is asked now."""
        self.due_s = now_s

    # --- answers -----------------------------------------------------------------------------------------------------

    def no_answer(self, now_s: float) -> None:
        """The controller is not known, did not answer, or is not the controller any more."""
        self.due_s = now_s + min(RETRY_S, self._times.heartbeat_s)

    def registered(self, epoch: int, now_s: float) -> None:
        """It is a member now, and fenced."""
        self.epoch, self.due_s, self._refused_at_s, self.verdict = epoch, now_s, None, None
        self._was_member = True
        if self.state is BrokerState.STARTING:
            self.state = BrokerState.RECOVERY

    def refused(self, refusal: RefusedRegistration, sent_s: float, now_s: float) -> None:
        """It may not register, for now or for good.

        A node id that another process has may become free: that process may be dead. It is given up when that has sent
        a heartbeat since the first refusal. A broker that was a member before never gives up, unless its node id is
        retired.

        Args:
            sent_s: when the request was sent.
        """
        self.due_s = now_s + self._times.heartbeat_s / 2
        if refusal.code is RETIRED:
            self.is_retired, self.verdict = True, refusal.message
            return
        if refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            if self._refused_at_s is None:
                self._refused_at_s = now_s
                return
            since_s = sent_s - self._refused_at_s
            if refusal.silent_s is None or refusal.silent_s >= since_s:
                return
        if not self._was_member:
            self.verdict = refusal.message

    def answered(self, *, is_fenced: bool, should_shut_down: bool, now_s: float) -> None:
        """A heartbeat was heard."""
        self.due_s = now_s + self._times.heartbeat_s
        if self._wants_shut_down:
            self.state = BrokerState.SHUTTING_DOWN if should_shut_down else BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self.due_s = now_s + min(RETRY_S, self._times.heartbeat_s)
        elif is_fenced:
            self.state = BrokerState.RECOVERY
            if self._is_ready and not self._has_asked_ready:  # it became so while the answer was under way
                self.due_s = now_s
            elif self._is_ready:
                self.due_s = now_s + min(RETRY_S, self._times.heartbeat_s)
        else:
            self.state = BrokerState.RUNNING

    def unknown(self, now_s: float) -> None:
        """The registration does not hold any more."""
        self.epoch, self.due_s = None, now_s
        self.state = BrokerState.SHUTTING_DOWN if self._wants_shut_down else BrokerState.STARTING

"""When brokers were last heard of, and whose session is over: soft state of the cluster shard's leader. Pure.

Times are seconds of the leader's monotonic clock. Nothing of this is written anywhere: a new leader begins anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from diskless_core.plugin.shard import ShardId

RESET_S = 0.3
"""How long a broker whose connection broke has to come back by another one, before it is fenced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTimes:
    """How long brokers may be silent, in seconds."""

    session_s: float
    heartbeat_s: float

    @property
    def short_s(self) -> float:
        """What is granted instead of a session to a leader that was replaced: a heartbeat that is a little late."""
        return min(self.session_s, 1.5 * self.heartbeat_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a broker's backends are, as it says.

    Attributes:
        barred: the shards that it cannot lead now.
        doubtful: those that another broker should rather lead: the log has not taken this one's claims.
        ready: those of which it has a copy that has caught up; None where it has not said.
        led: those that it leads, the cluster shard aside.
    """

    log_is_ok: bool = True
    bucket_is_ok: bool = True
    barred: frozenset[ShardId] = frozenset()
    doubtful: frozenset[ShardId] = frozenset()
    ready: frozenset[ShardId] | None = None
    led: frozenset[ShardId] = frozenset()

    @property
    def is_ok(self) -> bool:
        """Whether it can do a broker's work."""
        return self.log_is_ok and self.bucket_is_ok

    @property
    def troubles(self) -> tuple[bool, bool, frozenset[ShardId], frozenset[ShardId]]:
        """What people want to know of it."""
        return self.log_is_ok, self.bucket_is_ok, self.barred, self.doubtful

    @property
    def complaint(self) -> str:
        """What is wrong with a broker that is not well, for people."""
        failing = [
            name
            for name, is_ok in (("its coordinator log", self.log_is_ok), ("its WAL object store", self.bucket_is_ok))
            if not is_ok
        ]
        return f"{' and '.join(failing)} {'does' if len(failing) == 1 else 'do'} not answer it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predecessor:
    """The controller that a leader has replaced.

    Attributes:
        is_gone: whether it cannot be connected to: then its process has most likely ended.
        silent_s: how long it has not answered this leader; 0 where that is not known.
    """

    node_id: int
    is_gone: bool = False
    silent_s: float = 0.0


UNKNOWN_HEALTH = Health()
"""Of a broker that has said nothing yet: it is taken for well."""


@dataclass(slots=True, kw_only=True)
class _Session:
    ends_s: float
    heard_s: float | None = None
    is_connected: bool = True
    health: Health = UNKNOWN_HEALTH
    ill_since_s: float | None = None


class Sessions:
    """The sessions of one term."""

    def __init__(
        self,
        times: SessionTimes,
        now_s: float,
        node_ids: Iterable[int],
        predecessor: Predecessor | None,
    ) -> None:
        """Everybody is granted a session, but for the controller before: that one ended for a reason."""
        self._times = times
        self._looked_s = now_s
        self._sessions = {
            node_id: _Session(ends_s=now_s + _granted_s(node_id, times, predecessor)) for node_id in node_ids
        }

    def heard(self, node_id: int, now_s: float, health: Health) -> None:
        """A broker has registered, or sent a heartbeat, which says how it is."""
        session = self._sessions.setdefault(node_id, _Session(ends_s=now_s))
        session.ends_s, session.heard_s, session.is_connected = now_s + self._times.session_s, now_s, True
        session.health = health
        if health.is_ok:
            session.ill_since_s = None
        elif session.ill_since_s is None:
            session.ill_since_s = now_s

    def broke(self, node_id: int, now_s: float) -> None:
        """The connection by which a broker was heard is gone: its process may be, too."""
        session = self._sessions.get(node_id)
        if session is not None:
            session.is_connected = False
            session.ends_s = min(session.ends_s, now_s + RESET_S)

    def forget(self, node_id: int) -> None:
        """A broker is no member any more."""
        self._sessions.pop(node_id, None)

    def is_live(self, node_id: int, now_s: float, *, is_granted: bool) -> bool:
        """Whether its session goes on, by a connection that stands.

        Args:
            is_granted: whether a session counts that a broker has only been granted, and was not heard in.
        """
        session = self._sessions.get(node_id)
        if session is None or not session.is_connected or now_s >= session.ends_s:
            return False
        return is_granted or session.heard_s is not None

    def silent_s(self, node_id: int, now_s: float) -> float | None:
        """Time since it was heard; None where it has not been in this term."""
        session = self._sessions.get(node_id)
        return None if session is None or session.heard_s is None else now_s - session.heard_s

    def silence(self, node_id: int, now_s: float) -> str:
        """How a broker is silent whose session is over, for those who ask why it is fenced."""
        session = self._sessions.get(node_id)
        if session is None or session.heard_s is None:
            return "this controller has not heard of it"
        if not session.is_connected:
            return (
                f"its connection ended, and it has not come back; it was heard of {_ago(now_s - session.heard_s)} ago"
            )
        return f"it was not heard of for {_ago(now_s - session.heard_s)}, which is longer than its session"

    def health(self, node_id: int) -> Health:
        """What it said last."""
        session = self._sessions.get(node_id)
        return session.health if session is not None else UNKNOWN_HEALTH

    def ended(self, now_s: float) -> set[int]:
        """The brokers whose session is over.

        This has to be asked once in a heartbeat's time at least. If it was not, this process stood still, and what the
        others have sent meanwhile is still to be read: their sessions are longer by that time.
        """
        stood_still_s = now_s - self._looked_s - self._times.heartbeat_s
        self._looked_s = now_s
        if stood_still_s > 0:
            for session in self._sessions.values():
                session.ends_s += stood_still_s
        return {node_id for node_id, session in self._sessions.items() if now_s >= session.ends_s}

    def next_end_s(self, node_ids: Collection[int]) -> float | None:
        """When the next session of these brokers ends; None where there is none."""
        ends = [session.ends_s for node_id, session in self._sessions.items() if node_id in node_ids]
        return min(ends, default=None)

    def ill(self, now_s: float, live: Collection[int]) -> set[int]:
        """The live brokers that have not been able to work for a session.

        None, if no live broker is well: then it is not theirs, and to fence them all would help nobody.
        """
        ill = {node_id for node_id in live if self._is_ill(node_id, now_s)}
        well = any(self.health(node_id).is_ok for node_id in live)
        return ill if well else set()

    def _is_ill(self, node_id: int, now_s: float) -> bool:
        session = self._sessions.get(node_id)
        since_s = session.ill_since_s if session is not None else None
        return since_s is not None and now_s - since_s >= self._times.session_s


def _ago(time_s: float) -> str:
    return f"{time_s:.1f} s" if time_s < 10 else f"{time_s:.0f} s"


def _granted_s(node_id: int, times: SessionTimes, predecessor: Predecessor | None) -> float:
    if predecessor is None or node_id != predecessor.node_id:
        return times.session_s
    if predecessor.is_gone:
        return RESET_S
    return max(RESET_S, min(times.short_s, times.session_s - predecessor.silent_s))

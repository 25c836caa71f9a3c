"""Why a broker is fenced, as its controller can tell an operator. Pure."""

from __future__ import annotations

from diskless_core.cluster.membership.model import Registration
from diskless_core.cluster.membership.sessions import Sessions

STARTING = "it is starting: it has registered, and has not asked to be unfenced yet"


def why_fenced(known: Registration, sessions: Sessions, now_s: float, *, kept: str | None, refused: str | None) -> str:
    """The reason, for people.

    Args:
        kept: why the broker's last heartbeat did not unfence it; None where it did not ask for that.
        refused: why a process with its node id may not register; None where none has tried, or it may.
    """
    node_id = known.spec.node_id
    if known.is_shutting_down:
        return "it was shut down"
    if sessions.is_live(node_id, now_s, is_granted=False):
        return kept or STARTING
    if refused is not None:
        return f"its process may not register: {refused}"
    return sessions.silence(node_id, now_s)

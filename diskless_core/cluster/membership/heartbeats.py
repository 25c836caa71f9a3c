"""What a heartbeat leads to: the decision of the cluster shard's leader. Pure. (KIP-631, "Controlled shutdown".)"""

from __future__ import annotations

from dataclasses import dataclass

from diskless_core.cluster.membership.clocks import Compared
from diskless_core.cluster.membership.model import Registration
from diskless_core.cluster.membership.sessions import UNKNOWN_HEALTH, Health


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One heartbeat.

    Attributes:
        applied_offset: how far the broker has applied the log of the cluster shard.
        has_clients: whether the broker, which wants to stop, waits for clients to go to others.
        compared: how its clock compared with a controller's; None where that is not known.
    """

    node_id: int
    epoch: int
    applied_offset: int
    want_fence: bool
    want_shut_down: bool
    has_clients: bool = False
    health: Health = UNKNOWN_HEALTH
    compared: Compared | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the decision depends on beside the broker.

    Attributes:
        registered_offset: the log has the broker's registration below this offset.
        leads: whether the broker leads a coordinator.
        others_are_live: whether there is another broker that could.
        somebody_is_well: whether any other live broker can do its work.
    """

    registered_offset: int
    leads: bool
    others_are_live: bool
    somebody_is_well: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of the broker.

    Attributes:
        is_fenced: what it is from now on; None where that stays as it is.
        shuts_down: its shutdown is noted, so that it gets nothing new to do.
        may_stop: it may stop, once the rest is written.
        reason: why it stays fenced though it wants to be unfenced, for people.
        is_unreachable: whether that is because it does not answer where it says.
    """

    is_caught_up: bool
    is_fenced: bool | None = None
    shuts_down: bool = False
    may_stop: bool = False
    reason: str | None = None
    is_unreachable: bool = False


def decide(beat: Beat, known: Registration, around: Surroundings) -> Decision:
    """The decision on a broker's heartbeat.

    A broker that wants to stop may do so once it leads nothing and has no clients, or nobody could take over. It is
    live until then: librdkafka, when it hears of another leader and that the one before is gone in one answer, may wait
    for a second. One that cannot work is not unfenced as long as another one can.
    """
    is_caught_up = beat.applied_offset >= around.registered_offset
    if beat.want_shut_down:
        if known.is_fenced:
            return Decision(is_caught_up=is_caught_up, may_stop=True)
        if around.others_are_live and (around.leads or beat.has_clients):
            return Decision(is_caught_up=is_caught_up, shuts_down=True)
        return Decision(is_caught_up=is_caught_up, is_fenced=True, shuts_down=True, may_stop=True)
    if beat.want_fence:
        return Decision(is_caught_up=is_caught_up, is_fenced=True)
    if not known.is_fenced:
        return Decision(is_caught_up=is_caught_up)
    if not is_caught_up:
        return Decision(is_caught_up=False, reason="it has not read its own registration yet")
    if not beat.health.is_ok and around.somebody_is_well:
        return Decision(is_caught_up=True, reason=beat.health.complaint)
    return Decision(is_caught_up=True, is_fenced=False)

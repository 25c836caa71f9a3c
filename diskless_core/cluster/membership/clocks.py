"""How brokers compare their clocks by heartbeats. Pure.

A broker learns from the answer to a heartbeat what the controller's clock says, and tells the controller with the next
one how far its own is ahead. So the controller knows all clocks in terms of its own, and answers with the two that are
furthest from it in either direction. That is enough for each broker to see whether the clock of a live broker is off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_ROUND_TRIP_S = 2.0
"""How long a heartbeat may take for its answer to count as a comparison: half of it is what that may be off by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """How far a broker's clock is ahead of a controller's, in milliseconds; negative where it is behind."""

    controller: int
    ahead_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllersClock:
    """What a controller says of clocks.

    Attributes:
        now_ms: what its own says, in milliseconds since the epoch.
        ahead_ms: by node id, how far the clocks furthest ahead of and behind its own are ahead of it, in milliseconds.
            Its own is not among them.
    """

    now_ms: int
    ahead_ms: Mapping[int, int]


def controllers_clock(now_ms: int, ahead_ms: Mapping[int, int]) -> ControllersClock:
    """What to answer, of all live brokers that have compared their clocks with this controller's."""
    if not ahead_ms:
        return ControllersClock(now_ms=now_ms, ahead_ms={})
    extremes = (min(ahead_ms, key=ahead_ms.__getitem__), max(ahead_ms, key=ahead_ms.__getitem__))
    return ControllersClock(now_ms=now_ms, ahead_ms={node_id: ahead_ms[node_id] for node_id in extremes})


def compare(
    controller: int, told: ControllersClock, *, received_ms: int, round_trip_s: float, before: Compared | None
) -> Compared | None:
    """How a broker's clock compares with a controller's; as `before` where the answer took too long to tell.

    Args:
        received_ms: what the broker's clock said when the answer came.
        before: what was known before, of any controller.
    """
    if round_trip_s > MAX_ROUND_TRIP_S:
        return before if before is not None and before.controller == controller else None
    return Compared(controller=controller, ahead_ms=received_ms - int(round_trip_s * 500) - told.now_ms)


def differences(node_id: int, own: Compared, told: ControllersClock) -> dict[int, int]:
    """By node id, how far the clocks of other live brokers are ahead of this broker's.

    Args:
        node_id: of this broker.
    """
    of_controller = {own.controller: 0, **told.ahead_ms}
    return {other: ahead_ms - own.ahead_ms for other, ahead_ms in of_controller.items() if other != node_id}

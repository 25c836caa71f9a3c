"""When a broker takes the controller for ended and says so, before the controller's session is over. Pure.

The evidence is that nobody listens where the controller did; one that has never answered may be starting. A broker
can be wrong, where a firewall refuses for the controller, say. Then it becomes the controller itself, and the other one
may find as much of it: so a broker that is suspicious again and again becomes so ever more slowly, as long as it goes
on. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

EVIDENCE = 2
"""So many refused connections in a row. That the present connection broke counts as one."""

FIRST_PAUSE_S = 1.0
"""From one suspicion to the next; each further pause is twice as long."""

LONGEST_PAUSE_S = 300.0


class Suspicion:
    """What one broker has against the controller that it asks."""

    def __init__(self) -> None:
        self._answered: int | None = None
        self._node_id: int | None = None
        self._evidence = 0
        self._said_s = float("-inf")
        self._pause_s = 0.0

    def broke(self, node_id: int) -> None:
        """The connection to a node broke."""
        self._count(node_id)

    def refused(self, node_id: int, now_s: float) -> bool:
        """A connection to a node was refused; whether to say now that it has most likely ended."""
        self._count(node_id)
        if node_id != self._answered:
            return False
        silent_s = now_s - self._said_s
        if self._evidence < EVIDENCE or silent_s < self._pause_s:
            return False
        goes_on = silent_s < 2 * self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) if goes_on else FIRST_PAUSE_S
        self._said_s = now_s
        return True

    def answered(self, node_id: int) -> None:
        """A controller has answered."""
        self._answered = node_id
        self._evidence = 0

    def _count(self, node_id: int) -> None:
        self._evidence = self._evidence + 1 if node_id == self._node_id else 1
        self._node_id = node_id

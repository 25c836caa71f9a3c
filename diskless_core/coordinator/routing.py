"""Who is asked: pure decisions on where a coordinator is led, from the log's hint and what peers have said.

(KIP-1164, "Leadership and deployment".)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LeaderGuess:
    """What a node believes of one coordinator's leader. What a peer said holds until the log hints at something new.

    Attributes:
        hint: the log's last hint that was looked at.
        named: the node that a peer named since.
    """

    hint: int | None = None
    named: int | None = None

    def node(self, hint: int | None) -> int | None:
        """Whom to ask, the log hinting at `hint` now; None when nobody is known."""
        if hint != self.hint:
            self.hint, self.named = hint, None
        return self.hint if self.named is None else self.named

    def tell(self, node_id: int) -> None:
        """A peer says that this node leads."""
        self.named = node_id

    def doubt(self, node_id: int) -> None:
        """It was asked and does not answer as a leader: what a peer said of it counts no more."""
        if self.named == node_id:
            self.named = None


def whom_to_ask_for_the_leader(refused_by: int | None, own_id: int, peers: list[int]) -> list[int]:
    """The nodes that may know who leads, best first: the one that has just refused, then all others."""
    first = [refused_by] if refused_by is not None and refused_by != own_id else []
    return [*first, *(node_id for node_id in peers if node_id not in (refused_by, own_id))]

"""How often the object store may be asked for what another broker may still send. Pure.

A second read is there for the rare answer that does not come. Where all answers are slow, because the object store is
or because many are wanted at once, second reads would double what the store is asked and bills, and be no quicker.
"""

from __future__ import annotations

ONE_IN = 32
"""So many ranges asked of other brokers allow one second read: a few more than the one in a hundred that is beyond the
p99."""

MOST_SAVED = 4.0


class SecondReads:
    """What one broker may still do, whichever broker is late."""

    def __init__(self) -> None:
        self._left = 1.0

    def asked(self) -> None:
        """Another broker was asked for a range."""
        self._left = min(MOST_SAVED, self._left + 1 / ONE_IN)

    def take(self) -> bool:
        """Whether there may be a second read now; then it is counted."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

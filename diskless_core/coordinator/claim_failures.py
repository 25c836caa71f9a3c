"""Whether a node's claims of a shard fail for so long that another node should be nominated. Pure.

A node may be able to read a log and not to write it, as a whole or one shard's part: its credentials lack a right, or
it is cut from the one machine that takes the writes. It claims again and again, and only it knows that this leads to
nothing. Nobody stops it: where all nodes fail alike, whoever is nominated leads as soon as the log is well.
"""

from __future__ import annotations

PATIENCE_S = 10.0
"""So long claims may fail before anybody is told."""

FIRST_REST_S = 60.0
"""So long another node is preferred after the last failure; twice as long each time that claims failed anew."""

LONGEST_REST_S = 1_800.0


class ClaimFailures:
    """Of one shard on one node. All times are of its monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._rests = 0
        self._is_told = False
        self._until = 0.0

    def began(self, now: float) -> None:
        """A claim is on its way."""
        if self._since is None:
            self._since = now

    def failed(self, now: float) -> None:
        """It was not appended, or the log was not read up to it."""
        if self._since is not None and now - self._since >= PATIENCE_S:
            if not self._is_told:
                self._is_told = True
                self._rests += 1
            self._until = now + min(LONGEST_REST_S, FIRST_REST_S * 2.0 ** min(self._rests - 1, 30))

    def interrupted(self) -> None:
        """This node claims no more for now: another one is nominated, or it is no candidate."""
        self._since, self._is_told = None, False

    def succeeded(self) -> None:
        """A claim was read back."""
        self._since, self._is_told, self._rests, self._until = None, False, 0, 0.0

    def last(self, now: float) -> bool:
        """Whether another node is to be preferred."""
        return now < self._until

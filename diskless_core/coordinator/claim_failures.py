"""Whether a node's claims of a shard fail for so long that another node should be nominated.

A node may be able to read a log and not to write it, as a whole or one shard's part: its credentials lack a right, or
it is cut from the one machine that takes the writes. It claims again and again, and only it knows that this leads to
nothing. Another node is preferred then, and none is shut out: where all fail alike, whoever is nominated claims on, and
leads as soon as the log is well.
"""

from __future__ import annotations

from dataclasses import dataclass

from diskless_core.clock import Clock
from diskless_core.plugin.retrying import Backoff

PATIENCE_S = 10.0
"""So long claims may fail before anybody is told."""

REST = Backoff(first_ms=60_000, max_ms=1_800_000, jitter=0)
"""So long another node is preferred after the last failure; longer each time that claims failed anew."""

GIVE_WAY_S = 6.0
"""So long a node is no candidate for a shard whose leader the log elects. The log has elected another one by then, if
there is one; where all nodes fail alike, no more time is lost once the log is well."""


@dataclass(slots=True)
class Rests:
    """What the claims of one node have come to, those of all its shards together.

    Attributes:
        times: how often they failed anew since one succeeded. What fails before a rest is over counts as one.
        until: monotonic time of the end of the last rest, in seconds.
    """

    times: int = 0
    until: float = 0.0


class ClaimFailures:
    """Of one shard on one node.

    Args:
        rests: the node's.
    """

    def __init__(self, clock: Clock, rests: Rests) -> None:
        self._clock = clock
        self._rests = rests
        self._since: float | None = None
        self._until = 0.0

    def began(self) -> None:
        """A claim is on its way."""
        if self._since is None:
            self._since = self._clock.monotonic()

    def failed(self) -> None:
        """It was not appended, or the log was not read up to it."""
        if self.go_on:
            now = self._clock.monotonic()
            if now >= self._rests.until:
                self._rests.times += 1
            self._until = self._rests.until = now + REST.pause_s(self._rests.times, self._clock)

    def interrupted(self) -> None:
        """This node claims no more for now: another one is nominated, or it is no candidate."""
        self._since = None

    def succeeded(self) -> None:
        """A claim was read back."""
        self._since, self._until = None, 0.0
        self._rests.times, self._rests.until = 0, 0.0

    @property
    def go_on(self) -> bool:
        """Whether it is long ago that claims began which have all failed, without a pause."""
        return self._since is not None and self._clock.monotonic() - self._since >= PATIENCE_S

    @property
    def last(self) -> bool:
        """Whether another node is to be preferred."""
        return self._clock.monotonic() < self._until

"""How much time has certainly passed since a time that some broker wrote down. Everything that forgets asks here.

A wall clock can be a day off, jump, or belong to a broker that is gone. So the age of a time stamp is what the wall
clock says, less what is in doubt. Four things cast doubt on the stamps that were written until then:

- **a gap**: at the start, the time between the newest stamp in the coordinator logs and this broker's clock. Either the
  cluster did nothing for so long, or the clock is ahead. Another live broker whose clock agrees settles it.
- **a jump**: the wall clock went ahead of the monotonic clock while the process was alive.
- **a step back**: the times in a coordinator log went back, so a leader's clock was behind, or one was ahead before.
- **a difference**: the clock of a live broker was off, so stamps may be too early by as much.

An age is never more than the wall clock's, and never less than the monotonic time since the last doubt began. While
the clock of a live broker is off, no time has passed for certain, and nothing is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NOT_CERTAIN_MS = -1
"""The age of everything while the clock of a live broker is off: less than any limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Stamps up to `until_ms` may be `by_ms` younger than the wall clock says.

    Attributes:
        since_s: monotonic time at which all of those stamps had been written.
    """

    until_ms: int
    by_ms: int
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What is known at one moment. Pure.

    Attributes:
        now_ms: what the wall clock says, in milliseconds since the epoch.
        now_s: what the monotonic clock says.
        is_held: whether the clock of a live broker is off.
    """

    now_ms: int
    now_s: float = 0.0
    doubts: Sequence[Doubt] = ()
    is_held: bool = False

    def since(self, stamp_ms: int) -> int:
        """How many milliseconds have certainly passed since this time was written down; below 0 if none have."""
        age_ms = self.now_ms - stamp_ms
        if self.is_held:
            return min(age_ms, NOT_CERTAIN_MS)
        by_ms, since_s = 0, None
        for doubt in self.doubts:
            if stamp_ms <= doubt.until_ms:
                by_ms += doubt.by_ms
                since_s = doubt.since_s if since_s is None else max(since_s, doubt.since_s)
        if since_s is None:
            return age_ms
        return min(age_ms, max(age_ms - by_ms, int((self.now_s - since_s) * 1000)))

    def before(self, age_ms: int) -> int:
        """A time such that all stamps up to it are certainly at least `age_ms` old. 0 if there is none for certain."""
        if self.is_held:
            return 0
        latest_s = max((doubt.since_s for doubt in self.doubts), default=None)
        is_settled = latest_s is None or (self.now_s - latest_s) * 1000 >= age_ms
        by_ms = 0 if is_settled else sum(doubt.by_ms for doubt in self.doubts)
        return max(0, self.now_ms - age_ms - by_ms)

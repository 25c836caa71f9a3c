"""How long a reader waits for another broker's cache before it asks the object store, and when it does not ask at all.

Pure: one instance for each broker that is asked, told what happened and when.
"""

from __future__ import annotations

from collections import deque

SAMPLES = 100
"""Of answers, the latest, by which a broker is judged."""

FEW_SAMPLES = 10
"""With fewer, nothing is known of it yet."""

FIRST_WAIT_S = 0.25
SHORTEST_WAIT_S = 0.01
LONGEST_WAIT_S = 1.0
"""An object store has answered by then as a rule."""

LATE_IN_A_ROW = 8
"""After so many it is not asked for a while. When it is asked again, one is enough until an answer is in time."""

SHORTEST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
PAUSE_AFTER_WRONG_BYTES_S = 60.0


class PeerPatience:
    """What is known of one broker as a cache. All times are in seconds, by one monotonic clock."""

    def __init__(self) -> None:
        self._taken: deque[float] = deque(maxlen=SAMPLES)
        self._late = 0
        self._pauses = 0
        self._ask_at = float("-inf")

    @property
    def wait_s(self) -> float:
        """How long an answer is worth waiting for: the p99 of the latest answers, late ones included."""
        if len(self._taken) < FEW_SAMPLES:
            return FIRST_WAIT_S
        slowest = sorted(self._taken)[-1 - len(self._taken) // SAMPLES]
        return min(max(slowest, SHORTEST_WAIT_S), LONGEST_WAIT_S)

    @property
    def is_on_trial(self) -> bool:
        """Whether it has given no answer in time since it was last left out: one reader's wait will tell."""
        return self._pauses > 0

    def may_ask(self, now: float) -> bool:
        """Whether it is worth asking at all."""
        return now >= self._ask_at

    def answered(self, taken_s: float, *, in_time: bool) -> None:
        """An answer came, after so long; in time for the reader, or too late."""
        self._taken.append(taken_s)
        if in_time:
            self._late = self._pauses = 0

    def late(self, now: float) -> None:
        """The reader stopped waiting. Whether an answer comes after all is told by `answered` or `failed`."""
        self._late += 1
        if self._late >= LATE_IN_A_ROW or self.is_on_trial:
            self._pause(now)

    def failed(self, now: float) -> None:
        """There is no answer, and will be none."""
        self._pause(now)

    def sent_wrong_bytes(self, now: float) -> None:
        """Its answer was not what the object has."""
        self._ask_at = max(self._ask_at, now + PAUSE_AFTER_WRONG_BYTES_S)

    def _pause(self, now: float) -> None:
        if now < self._ask_at:
            return  # what was under way when the pause began says nothing new
        self._late = 0
        self._pauses += 1
        self._ask_at = now + min(SHORTEST_PAUSE_S * 2.0 ** (self._pauses - 1), LONGEST_PAUSE_S)

"""How fast a client was in the last seconds, and how long it has to wait to be within its quota again. Pure.

The arithmetic is that of Apache Kafka's Rate and QuotaUtils. Bytes are summed in samples of a fixed length. A sample
begins with the first bytes after the one before is over, so the time between two of them belongs to none. It counts as
long as its last bytes are younger than the whole window. The rate is the sum of what counts divided by the time since
the oldest such sample began, but at least by all the samples that should be complete: a burst after silence is spread
over the silence.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

MAX_THROTTLE_MS = 2**31 - 1
"""What fits in a response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time over which rates are measured: so many samples, the present one included."""

    samples: int
    sample_ms: int

    @property
    def length_ms(self) -> int:
        return self.samples * self.sample_ms

    @property
    def complete_s(self) -> float:
        """What the complete samples of a full window cover, in seconds."""
        return (self.samples - 1) * self.sample_ms / 1000


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    total: float = 0.0


class Rate:
    """The traffic of one bucket. Times are milliseconds of a clock that never goes back."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: deque[_Sample] = deque()

    def record(self, amount: float, now_ms: int) -> None:
        """Count what came, or with a negative amount what had been counted and did not come after all."""
        if not self._samples or now_ms - self._samples[-1].start_ms >= self._window.sample_ms:
            self._samples.append(_Sample(now_ms, now_ms))
            if len(self._samples) > self._window.samples + 1:
                self._samples.popleft()
        self._samples[-1].total += amount
        self._samples[-1].last_ms = now_ms

    def throttle_ms(self, bytes_per_second: float, now_ms: int) -> int:
        """How long nothing may come until the rate is down to the limit; 0 when it is not above."""
        measured_ms = self._measured_ms(now_ms)
        observed = sum(sample.total for sample in self._samples) / (measured_ms / 1000)
        if observed <= bytes_per_second:
            return 0
        wait_ms = (observed - bytes_per_second) / bytes_per_second * measured_ms
        return min(math.floor(wait_ms + 0.5), MAX_THROTTLE_MS)

    def is_forgotten(self, now_ms: int) -> bool:
        """Whether nothing of what was counted matters any more."""
        self._forget(now_ms)
        return not self._samples

    def _measured_ms(self, now_ms: int) -> int:
        self._forget(now_ms)
        elapsed = now_ms - self._samples[0].start_ms if self._samples else 0
        missing = self._window.samples - 1 - elapsed // self._window.sample_ms
        return max(elapsed + max(missing, 0) * self._window.sample_ms, 1)

    def _forget(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0].last_ms >= self._window.length_ms:
            self._samples.popleft()

"""How long the background work at the end of objects waits after a failure: it tries for ever, less and less often."""

from __future__ import annotations

from diskless_core.clock import Clock

RETRY_BASE_S = 1.0
RETRY_MAX_S = 60.0


def back_off_s(failures: int, clock: Clock) -> float:
    """Seconds to wait after so many failures in a row: up to twice as long each time, with jitter."""
    longest = min(RETRY_MAX_S, RETRY_BASE_S * 2.0 ** min(failures, 10))
    return longest * (0.5 + clock.random().random() / 2)

"""A process of Python that finds this file at its start has a wall clock ten minutes ahead; the monotonic one stays.

`diskless_core.clock` takes its time from here. libfaketime would mislead C code too, which librdkafka does not survive:
its waits for a moment never end.
"""

from __future__ import annotations

import time

_AHEAD_NS = 600 * 10**9

_true_ns = time.time_ns


def _ahead_ns() -> int:
    return _true_ns() + _AHEAD_NS


def _ahead() -> float:
    return _ahead_ns() / 10**9


time.time_ns, time.time = _ahead_ns, _ahead

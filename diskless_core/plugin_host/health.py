"""What the guard sees of each backend: calls, errors, time taken. Bounded in memory."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histogram's buckets; one more has all that took longer."""

LAST_ERROR_CHARACTERS = 1000


class Result(StrEnum):
    """How a call ended."""

    OK = "ok"
    ERROR = "error"
    FOREIGN = "foreign"
    CANCELLED = "cancelled"


class State(StrEnum):
    """How far a backend is. One without a method `start` is started as soon as it is made."""

    MADE = "made"
    STARTING = "starting"
    STARTED = "started"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(slots=True)
class RunningCall:
    """A call that has not ended. `expected_s` is None for one that may take as long as it likes."""

    method: str
    began_s: float
    expected_s: float | None
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class LastError:
    """The last error. Secrets are not in its message."""

    at_ms: int
    method: str
    result: Result
    message: str


class Health:
    """The record of one selected backend, shared by its instances. Any thread may write it and read it.

    Times are of the clock that the callers use. A pickled one is empty in the other process.

    Attributes:
        results: ended calls by how they ended; a stream counts when it is opened, its errors are in `stream_errors`.
        stream_errors: errors that a stream raised after it was opened, by kind.
        slow: calls that took, or have taken by now, longer than is expected of the noun.
        stalls, stall_s: how often the event loop stood still inside of the plugin, and for how many seconds.
    """

    def __init__(self, noun: str, name: str) -> None:
        self.noun = noun
        self.name = name
        self.state = State.MADE
        self.since_ms: int | None = None
        self.results: Counter[Result] = Counter()
        self.stream_errors: Counter[Result] = Counter()
        self.slow = 0
        self.sum_s = 0.0
        self.max_s = 0.0
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.stalls = 0
        self.stall_s = 0.0
        self.last_error: LastError | None = None
        self._running: dict[int, RunningCall] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Health], tuple[str, str]]:
        return Health, (self.noun, self.name)

    @property
    def plugin(self) -> str:
        """`<noun>.<name>`."""
        return f"{self.noun}.{self.name}"

    @property
    def calls(self) -> int:
        """Calls that ended."""
        return self.results.total()

    @property
    def under_way(self) -> int:
        """Calls that have not ended."""
        return len(self._running)

    def began(self, call: RunningCall) -> None:
        """Note that a call has begun."""
        self._running[id(call)] = call

    def ended(self, call: RunningCall, now_s: float, result: Result) -> None:
        """Note that it has ended."""
        took_s = now_s - call.began_s
        with self._lock:
            del self._running[id(call)]
            self.results[result] += 1
            self.sum_s += took_s
            self.max_s = max(self.max_s, took_s)
            self.buckets[bisect_left(BUCKETS_S, took_s)] += 1
            if not call.is_slow and call.expected_s is not None and took_s > call.expected_s:
                call.is_slow = True
                self.slow += 1

    def stream_failed(self, result: Result) -> None:
        """Note that a stream that was opened has raised."""
        with self._lock:
            self.stream_errors[result] += 1

    def stalled(self, seconds: float, *, again: bool) -> None:
        """Note that the event loop stood still inside of the plugin; `again` where it is the same stall as before."""
        with self._lock:
            self.stalls += not again
            self.stall_s += seconds

    def newly_slow(self, now_s: float) -> Sequence[RunningCall]:
        """Calls under way that have just become slow. Each counts, and is returned, once."""
        with self._lock:
            late = [
                call
                for call in list(self._running.values())
                if not call.is_slow and call.expected_s is not None and now_s - call.began_s > call.expected_s
            ]
            for call in late:
                call.is_slow = True
            self.slow += len(late)
        return late

    def quantile(self, share: float) -> float | None:
        """The upper end of the bucket with the quantile, in seconds, at most the longest call; None without calls."""
        wanted = share * sum(self.buckets)
        if not wanted:
            return None
        seen = 0
        for end_s, count in zip(BUCKETS_S, self.buckets, strict=False):
            seen += count
            if seen >= wanted:
                return min(end_s, self.max_s)
        return self.max_s

    def as_json(self) -> dict[str, Any]:
        """All figures, for operators."""
        error = self.last_error
        return {
            "since_ms": self.since_ms,
            "calls": self.calls,
            "under_way": self.under_way,
            "results": {result.value: self.results[result] for result in Result},
            "stream_errors": {kind.value: self.stream_errors[kind] for kind in (Result.ERROR, Result.FOREIGN)},
            "slow": self.slow,
            "seconds_sum": self.sum_s,
            "seconds_max": self.max_s,
            "seconds_p50": self.quantile(0.5),
            "seconds_p99": self.quantile(0.99),
            "loop_stalls": self.stalls,
            "loop_stall_seconds": self.stall_s,
            "last_error": None
            if error is None
            else {"at_ms": error.at_ms, "method": error.method, "kind": error.result.value, "message": error.message},
        }


class HealthBook:
    """The records of the backends of a process."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Health] = {}

    def of(self, noun: str, name: str) -> Health:
        """The record of a backend, made now if there is none."""
        return self._records.setdefault((noun, name), Health(noun, name))

    def __iter__(self) -> Iterator[Health]:
        return iter(list(self._records.values()))

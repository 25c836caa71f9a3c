"""Creation times in the keys of new objects, by a clock that coordinators have set right if need be.

A coordinator refuses for ever what was created too long ago by its key (KIP-1164, "Orphan files"; see `HorizonRaised`).
A broker whose clock is slow by more than the horizon is in the past, ten minutes perhaps, would never get an object
committed. What such a refusal says of the time is therefore taken for the keys from then on. That is safe: what may be
deleted does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from diskless_core.clock import Clock
from diskless_core.diskless.commands import NO_TIMESTAMP, BatchResult
from diskless_core.metrics import Metrics
from diskless_core.protocol.errors import ErrorCode

TOLERANCE_MS = 60_000
"""Clocks that differ by less are not worth a word."""

_log = structlog.get_logger(__name__)


class ObjectTime:
    """One broker's times of creation, and what its commits say of its clock."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._reached_ms = 0
        self._reached_at = 0.0
        self._is_ahead = False

    def now_ms(self) -> int:
        """For the key of an object that is made now, in milliseconds since the epoch."""
        now_ms = self._clock.now_ms()
        elapsed_ms = int((self._clock.monotonic() - self._reached_at) * 1000)
        time_ms = max(now_ms, self._reached_ms + elapsed_ms)
        self._metrics.clock_behind_seconds.set((time_ms - now_ms) / 1000)
        return time_ms

    def learn(self, object_key: str, created_ms: int, results: Sequence[BatchResult]) -> None:
        """Take note of what coordinators said of an object, created at `created_ms` by its key."""
        timed = [result for result in results if result.append_time != NO_TIMESTAMP and not result.is_duplicate]
        refusals = [result.append_time for result in timed if result.error is ErrorCode.KAFKA_STORAGE_ERROR]
        commits = [result.append_time for result in timed if result.error is ErrorCode.NONE]
        if refusals:
            self._refused(object_key, max(refusals))
        elif commits:
            self._committed(created_ms - min(commits))

    def _refused(self, object_key: str, time_ms: int) -> None:
        behind_ms = time_ms - self._clock.now_ms()
        if time_ms > self.now_ms():
            self._reached_ms, self._reached_at = time_ms, self._clock.monotonic()
            self.now_ms()
        _log.warning(
            "a coordinator refused an object because it was created too long ago; its producers send it again. "
            "Either it took that long to store it, or this broker's clock is slow and has to be set",
            object=object_key,
            clock_behind_ms=max(0, behind_ms),
        )

    def _committed(self, ahead_ms: int) -> None:
        """An object cannot be committed before it was created: at least so far is this clock ahead, or the key's."""
        self._metrics.clock_ahead_seconds.set(max(0, ahead_ms) / 1000)
        was_ahead, self._is_ahead = self._is_ahead, ahead_ms > TOLERANCE_MS
        if self._is_ahead and not was_ahead:
            _log.warning(
                "this broker's clock is ahead of a coordinator's and has to be set: an object that it stores and "
                "fails to commit would be kept longer by the difference",
                clock_ahead_ms=ahead_ms,
            )

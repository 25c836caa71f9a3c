"""How much was produced and has no outcome yet, which bounds a broker's memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from diskless_core.metrics import Metrics


class Backlog:
    """Bytes accepted and not yet settled. Above the limit it asks its subscribers to stop reading."""

    def __init__(self, limit_bytes: int, metrics: Metrics) -> None:
        self._limit_bytes = limit_bytes
        self._metrics = metrics
        self._waiting: deque[Callable[[], None]] = deque()
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= self._limit_bytes

    def wait_if_full(self, resume: Callable[[], None]) -> bool:
        """Whether it is full; then `resume` is called once, when it is not any more."""
        if self.is_full:
            self._waiting.append(resume)
            return True
        return False

    def grow(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._metrics.produce_inflight_bytes.set(self.size_bytes)

    def shrink(self, size_bytes: int) -> None:
        self.size_bytes -= size_bytes
        self._metrics.produce_inflight_bytes.set(self.size_bytes)
        while self._waiting and not self.is_full:
            self._waiting.popleft()()

"""How much was produced and has no outcome yet, which bounds a broker's memory."""

from __future__ import annotations

from collections.abc import Callable

from diskless_core.metrics import Metrics


class Backlog:
    """Bytes accepted and not yet settled. Above the limit nothing more is to be accepted.

    Args:
        excused_bytes: how many of them do not count now, up to the limit again. After a change for the better
            `look_again` has to be called.
    """

    def __init__(self, limit_bytes: int, metrics: Metrics, excused_bytes: Callable[[], int]) -> None:
        self._excused_bytes = excused_bytes
        self._limit_bytes = limit_bytes
        self._metrics = metrics
        self._waiting: dict[Callable[[], None], None] = {}
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        if self.size_bytes < self._limit_bytes:
            return False
        return self.size_bytes - min(self._excused_bytes(), self._limit_bytes) >= self._limit_bytes

    def wait_if_full(self, resume: Callable[[], None]) -> bool:
        """Whether it is full; then `resume` is called once, when it is not any more."""
        if self.is_full:
            self._waiting[resume] = None
            return True
        return False

    def forget(self, resume: Callable[[], None]) -> None:
        """Do not call `resume`, if it waits."""
        self._waiting.pop(resume, None)

    def grow(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._metrics.produce_inflight_bytes.set(self.size_bytes)

    def shrink(self, size_bytes: int) -> None:
        self.size_bytes -= size_bytes
        self._metrics.produce_inflight_bytes.set(self.size_bytes)
        self.look_again()

    def look_again(self) -> None:
        """Let who waits go on, one after the other, as long as it is not full any more."""
        while self._waiting and not self.is_full:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()

"""The running timers of all groups, on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

TimerT = TypeVar("TimerT", bound=Hashable)


class GroupTimers(Generic[TimerT]):
    """Calls `fire` when a timer runs out. All methods belong on the event loop."""

    def __init__(self, fire: Callable[[str, TimerT], None]) -> None:
        self._fire = fire
        self._running: dict[tuple[str, TimerT], asyncio.TimerHandle] = {}

    def is_running(self, group_id: str, timer: TimerT) -> bool:
        return (group_id, timer) in self._running

    def set(self, group_id: str, timer: TimerT, delay_ms: int) -> None:
        """Start a timer of a group, in place of the one that runs under the same name."""
        self.cancel(group_id, timer)
        loop = asyncio.get_running_loop()
        self._running[group_id, timer] = loop.call_later(delay_ms / 1000, self._run_out, group_id, timer)

    def cancel(self, group_id: str, timer: TimerT) -> None:
        """Stop it; a timer that is not running is no error."""
        handle = self._running.pop((group_id, timer), None)
        if handle is not None:
            handle.cancel()

    def cancel_all(self) -> None:
        """Stop every timer of every group."""
        for handle in self._running.values():
            handle.cancel()
        self._running.clear()

    def _run_out(self, group_id: str, timer: TimerT) -> None:
        del self._running[group_id, timer]
        self._fire(group_id, timer)

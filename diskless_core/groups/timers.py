"""The running timers of all groups, on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from diskless_core.groups.effects import Timer


class GroupTimers:
    """Calls `fire` when a timer runs out. All methods belong on the event loop."""

    def __init__(self, fire: Callable[[str, Timer], None]) -> None:
        self._fire = fire
        self._running: dict[tuple[str, Timer], asyncio.TimerHandle] = {}

    def set(self, group_id: str, timer: Timer, delay_ms: int) -> None:
        """Start a timer of a group, in place of the one that runs under the same name."""
        self.cancel(group_id, timer)
        loop = asyncio.get_running_loop()
        self._running[group_id, timer] = loop.call_later(delay_ms / 1000, self._run_out, group_id, timer)

    def cancel(self, group_id: str, timer: Timer) -> None:
        """Stop it; a timer that is not running is no error."""
        handle = self._running.pop((group_id, timer), None)
        if handle is not None:
            handle.cancel()

    def _run_out(self, group_id: str, timer: Timer) -> None:
        del self._running[group_id, timer]
        self._fire(group_id, timer)

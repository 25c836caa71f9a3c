"""Finds what a backend leaves behind: threads, tasks and files. Part of the contract suites."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from diskless_core.clock import SystemClock
from diskless_core.testing import patience

CYCLES = 5
_PATIENCE_S = 10.0
_CLOCK = SystemClock()
_OPEN_FILES = Path("/proc/self/fd")


def assert_leaves_nothing(what: str, cycle: Callable[[], object]) -> None:
    """What is opened and closed several times has no more threads and files in the end than after the first time.

    Args:
        what: the promise, as a clause: "a closed store leaves nothing".
        cycle: opens and closes.
    """
    cycle()
    before = Held()
    for _ in range(CYCLES):
        cycle()
    before.assert_no_more(what)


class Held:
    """The threads and the open files of this process at one point in time."""

    def __init__(self) -> None:
        self._threads = _threads()
        self._files = _open_files()

    def assert_no_more(self, what: str) -> None:
        """No thread was added that does not end soon, and not as many files as there were cycles."""
        until_s = _CLOCK.monotonic() + min(_PATIENCE_S, patience.limit_s())
        for thread in _threads() - self._threads:
            thread.join(max(0.0, until_s - _CLOCK.monotonic()))
        added = [thread.name for thread in _threads() - self._threads]
        assert not added, f"{what}: these threads go on: {added}"
        files = _open_files() - self._files
        assert files < CYCLES, f"{what}: {files} more files are open after {CYCLES} times"


def _threads() -> set[threading.Thread]:
    """All but those of event loops' default executors, which end with the loops."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}


async def tasks_left(before: set[asyncio.Task[object]]) -> list[str]:
    """The tasks of the running loop that were added since, this one excepted, and do not end soon."""
    added = asyncio.all_tasks() - before - {asyncio.current_task()}
    if added:
        await asyncio.wait(added, timeout=min(_PATIENCE_S, patience.limit_s()))
    return [repr(task.get_coro()) for task in added if not task.done()]


def _open_files() -> int:
    return sum(1 for _ in _OPEN_FILES.iterdir()) if _OPEN_FILES.exists() else 0

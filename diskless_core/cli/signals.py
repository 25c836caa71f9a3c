"""SIGINT and SIGTERM for all work of a process that wants to end in good order. For the main thread's event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_watchers: list[Callable[[], None]] = []


@contextmanager
def watching(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call `interrupt` when a signal comes, and all others that watch; nothing else happens then."""
    loop = asyncio.get_running_loop()
    _watchers.append(interrupt)
    for number in _SIGNALS:
        loop.add_signal_handler(number, _tell)
    try:
        yield
    finally:
        _watchers.remove(interrupt)
        if not _watchers:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def _tell() -> None:
    for interrupt in _watchers:
        interrupt()

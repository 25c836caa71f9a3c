"""The signals that ask a process to end in good order. For the main thread's event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_watchers: list[Callable[[], None]] = []


def stop_signals() -> list[signal.Signals]:
    """SIGTERM and SIGINT; and SIGHUP, as of a terminal that is closed, unless the process was started to ignore it, as
    `nohup` does.
    """
    stops = [signal.SIGTERM, signal.SIGINT]
    return stops if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [*stops, signal.SIGHUP]


@contextmanager
def watching(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call `interrupt` when a signal comes, and all others that watch; nothing else happens then."""
    loop = asyncio.get_running_loop()
    _watchers.append(interrupt)
    numbers = stop_signals()
    for number in numbers:
        loop.add_signal_handler(number, _tell)
    try:
        yield
    finally:
        _watchers.remove(interrupt)
        if not _watchers:
            for number in numbers:
                loop.remove_signal_handler(number)


def _tell() -> None:
    for interrupt in _watchers:
        interrupt()

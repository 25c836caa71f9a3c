"""Ends a process that was asked to stop and does not come to its end, since something in it hangs.

No thread of Python's can be ended from outside, and the interpreter waits for those that are not daemons. A store that
is asked on such a thread, and never answers, would keep the process for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import structlog

THREADS_S = 2.0
"""How long threads, and what else hangs, are waited for when the broker has stopped."""

UNFINISHED = 1
"""The code of a process whose broker did not stop in time."""

_log = structlog.get_logger(__name__)


class StopLimit:
    """A watch over the end of this process. Until `begin` it does nothing.

    Args:
        end_process: ends it at once, with a code, whatever its threads do.
    """

    def __init__(self, end_process: Callable[[int], None] = os._exit) -> None:
        self._end_process = end_process
        self._is_stopped = threading.Event()
        self._watch: threading.Thread | None = None

    def begin(self, limit_s: float) -> None:
        """The process is to stop, within this time. Only the first call counts."""
        if self._watch is None:
            self._watch = threading.Thread(target=self._run, args=(limit_s,), name="stop limit", daemon=True)
            self._watch.start()

    def stopped(self) -> None:
        """The broker has stopped: all that is left is the end of threads, and of the interpreter."""
        self._is_stopped.set()

    def _run(self, limit_s: float) -> None:
        if not self._is_stopped.wait(limit_s):
            _log.error("the stop takes too long and is broken off: what was acknowledged is safe", limit_s=limit_s)
            self._end_process(UNFINISHED)
            return
        threading.Event().wait(THREADS_S)
        _log.warning("a thread hangs, or work that was left behind: the process ends without it")
        self._end_process(0)

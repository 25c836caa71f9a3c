"""Finds out which plugin makes the event loop stand still, and which calls of plugins take too long.

A thread asks the loop for a sign of life ten times a second. Where none comes, it looks at what the loop's thread does.
Nobody is blamed for time in which the machine did not let the process run.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import NamedTuple

import structlog

from diskless_core.clock import Clock, thread_run_delay_s
from diskless_core.plugin_host.health import Health, HealthBook

BEAT_S = 0.1
"""So often the loop is asked."""

STALL_S = 0.1
"""A loop that has not answered for so long stands still."""

REPORT_AGAIN_S = 60.0
"""A plugin is named in the log at most once in this time, for stalls and for slow calls each."""

FRAMES = 6
"""So many lines of the stack are logged."""

_CORE = "diskless_core"
_GUARDED = "diskless_core.plugin_host.guarded"
_FOR_PLUGINS = tuple(
    f"diskless_core.{package}"
    for package in (
        "plugin",
        "plugin_host",
        "log",
        "remote_log",
        "wal",
        "protocol",
        "clock",
        "layout",
        "snapshot",
        "pages",
    )
)
"""Of the core, what a plugin may call: time spent there is the plugin's."""

_log = structlog.get_logger(__name__)


def culprit(frame: FrameType | None, packages: Mapping[str, str]) -> str | None:
    """The plugin, as `<noun>.<name>`, whose code a stack is inside of; None where it is the core's, or nobody's.

    Args:
        frame: the innermost frame.
        packages: which plugin a package belongs to, for its code that runs outside of any call.
    """
    found = None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module == _GUARDED:
            guard = getattr(frame.f_locals.get("self"), "_guard", None)
            if guard is not None:
                plugin: str = guard.health.plugin
                return plugin
        elif _is_in(module, _CORE) and not any(_is_in(module, package) for package in _FOR_PLUGINS):
            return found
        elif found is None:
            found = _owner(module, packages)
        frame = frame.f_back
    return found


def _owner(module: str, packages: Mapping[str, str]) -> str | None:
    """By the longest package that has the module."""
    matching = [package for package in packages if _is_in(module, package)]
    return packages[max(matching, key=len)] if matching else None


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def blamed_s(late_s: float, own_delay_s: float, run_delay_s: float) -> float:
    """How long a loop stood still that is late: not counted is what kept the watching thread, or the loop's, waiting.

    Args:
        late_s: since the loop was asked.
        own_delay_s: how much later than planned the watching thread woke up.
        run_delay_s: how long the loop's thread could have run in that time and was not let.
    """
    return max(0.0, late_s - own_delay_s - run_delay_s)


class _Suspect(NamedTuple):
    plugin: str | None
    stack: Sequence[str]


class LoopWatch:
    """Watches the loop it is started on, and the calls of the backends in a book, until stopped.

    Args:
        packages: says which plugin each package belongs to.
        run_delay_s: how long the loop's thread has waited for a processor so far; for tests.
    """

    def __init__(
        self,
        book: HealthBook,
        clock: Clock,
        packages: Callable[[], Mapping[str, str]],
        run_delay_s: Callable[[], float] | None = None,
    ) -> None:
        self._book = book
        self._clock = clock
        self._packages = packages
        self._run_delay_s = run_delay_s or (lambda: thread_run_delay_s(self._native_id))
        self._ended = threading.Event()
        self._beat = threading.Event()
        self._reported: dict[tuple[str, str], float] = {}
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        self._native_id = 0

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._loop_thread, self._native_id = threading.get_ident(), threading.get_native_id()
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._watch, args=(loop,), name="loop watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, within a beat. Idempotent."""
        self._ended.set()
        self._beat.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self._beat.clear()
                asked_s, delay_s = self._clock.monotonic(), self._run_delay_s()
                loop.call_soon_threadsafe(self._beat.set)
            except RuntimeError:  # the loop is closed
                return
            self._await_beat(asked_s, delay_s)
            self.look_at_calls()

    def _await_beat(self, asked_s: float, delay_s: float) -> None:
        """Until the loop answers; what it does meanwhile is looked at again and again, and counted as it goes."""
        excused_s, counted_s, again, last_s = 0.0, 0.0, False, asked_s
        while not self._beat.wait(STALL_S) and not self._ended.is_set():
            now_s = self._clock.monotonic()
            excused_s += max(0.0, now_s - last_s - STALL_S)
            last_s = now_s
            stalled_s = blamed_s(now_s - asked_s, excused_s, self._run_delay_s() - delay_s)
            if stalled_s < STALL_S - 0.01:
                continue
            suspect = self.look_at_loop()
            health = self._record(suspect.plugin)
            if health is not None:
                health.stalled(stalled_s - counted_s, again=again)
                again = True
                self._report_stall(health, suspect.stack, now_s)
            counted_s = stalled_s
            self.look_at_calls()

    def look_at_loop(self) -> _Suspect:
        """Whose code the loop's thread is in, and the end of its stack."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  the one way to another thread's stack
        plugin = culprit(frame, self._packages())
        if plugin is None or frame is None:
            return _Suspect(None, ())
        lines = [f"{one.name} ({one.filename}:{one.lineno})" for one in traceback.extract_stack(frame)[-FRAMES:]]
        return _Suspect(plugin, lines)

    def look_at_calls(self) -> None:
        """Log calls that have just become slow."""
        now_s = self._clock.monotonic()
        for health in self._book:
            for call in health.newly_slow(now_s):
                if self._is_due("slow", health.plugin, now_s):
                    _log.warning(
                        "a call of a plugin takes longer than expected and has not ended",
                        plugin=health.plugin,
                        method=call.method,
                        seconds=round(now_s - call.began_s, 1),
                        expected_within_seconds=call.expected_s,
                    )

    def _record(self, plugin: str | None) -> Health | None:
        return next((health for health in self._book if health.plugin == plugin), None)

    def _report_stall(self, health: Health, stack: Sequence[str], now_s: float) -> None:
        if self._is_due("stall", health.plugin, now_s):
            _log.warning(
                "a plugin blocks the event loop: no client is answered meanwhile. Its blocking calls belong in threads",
                plugin=health.plugin,
                # Text: structlog writes what is called `stack` below the line, and takes nothing else for it.
                stack="\n".join(stack),
            )

    def _is_due(self, what: str, plugin: str, now_s: float) -> bool:
        last_s = self._reported.get((what, plugin))
        if last_s is not None and now_s - last_s < REPORT_AGAIN_S:
            return False
        self._reported[what, plugin] = now_s
        return True

"""Standard output and standard error of a broker, which nothing that runs in it ever waits for or fails at.

What is written goes through a bounded queue to a thread. Lines that do not fit, since nothing reads the pipe, and lines
that cannot be written, since the reader is gone or the disk is full, are counted and dropped. The order is kept.
"""

from __future__ import annotations

import atexit
import io
import os
import queue
import select
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

import structlog

from diskless_core.clock import Clock

_log = structlog.get_logger(__name__)

LIMIT = 10_000
"""How many pieces wait at most. A line is one piece, unless it is longer than `_PIECE`."""

_PIECE = 2_000
"""Characters. With `LIMIT` it bounds the memory."""

_AT_ONCE_BYTES = 64 * 1024
"""About so much is written by one call of the system, where so much waits."""

STUCK_S = 5.0
"""A stream that takes nothing for so long is in trouble."""

DRAIN_S = 2.0
"""How long the end of a process waits for lines that are not written yet."""


class Loss(StrEnum):
    """Why a line was dropped: too many waited because the stream took none, or the stream refused it."""

    FULL = "full"
    FAILED = "failed"


class LogOutput(io.TextIOBase):
    """A text stream onto a file descriptor. `write` may be called from any thread, and from within itself.

    Args:
        fd: where to write. It stays the caller's.
        name: of the stream, for people.
        clock: tells how long the stream has taken nothing.
        limit: how many pieces may wait.
    """

    def __init__(self, fd: int, name: str, clock: Clock, *, limit: int = LIMIT) -> None:
        self._fd = fd
        self._name = name
        self._clock = clock
        self._limit = limit
        # No lock of Python's is taken by `put`: a finalizer may write while this thread is writing.
        self._queue: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._lost: Counter[Loss] = Counter()
        self._untold = 0
        self._failure: OSError | None = None
        self._began_s: float | None = None
        self._counting = threading.RLock()  # as a finalizer that writes may run while this thread counts
        self._is_mid_line = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        """Queue it, or count and drop it. Never waits.

        Raises:
            TypeError: it is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"a stream of text takes no {type(text).__name__}")
        if self._queue.qsize() >= self._limit:
            self._drop(Loss.FULL, text.count("\n"))
        else:
            for start in range(0, len(text), _PIECE):
                self._queue.put(text[start : start + _PIECE])
        return len(text)

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that was written before has gone where it can; whether that was in time. Blocks."""
        arrived = threading.Event()
        self._queue.put(arrived)
        return arrived.wait(timeout_s)

    @property
    def lost(self) -> Mapping[Loss, int]:
        """How many lines were dropped."""
        return {reason: self._lost[reason] for reason in Loss}

    @property
    def problem(self) -> str | None:
        """What keeps lines from being written now."""
        began_s = self._began_s
        stuck_s = 0.0 if began_s is None else self._clock.monotonic() - began_s
        lost = f"{sum(self._lost.values())} lines are lost so far"
        if stuck_s > STUCK_S:
            return f"{self._name} has taken no line for {stuck_s:.0f} s, as if nothing reads it; {lost}"
        if self._failure is not None:
            return f"{self._name} can't be written: {self._failure.strerror}; {lost}"
        return None

    def _drop(self, reason: Loss, lines: int) -> None:
        with self._counting:
            self._lost[reason] += lines
            self._untold += lines

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._write_some(item)

    def _write_some(self, text: str) -> None:
        """Write a piece, and those that wait behind it."""
        pieces, size, arrived = [text], len(text), None
        while size < _AT_ONCE_BYTES and arrived is None:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if isinstance(item, threading.Event):
                arrived = item
            else:
                pieces.append(item)
                size += len(item)
        self._write_bytes("".join(pieces).encode(errors="backslashreplace"))
        if arrived is not None:
            arrived.set()

    def _write_bytes(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            if self._is_mid_line:  # a line was cut off, as by a full disk, and the next one is no part of it
                self._write_once(memoryview(b"\n"))
                self._is_mid_line = False
            while rest:
                rest = rest[self._write_once(rest) :]
        except OSError as error:
            self._failure = error
            written = data[: len(data) - len(rest)]
            self._is_mid_line = self._is_mid_line if not written else not written.endswith(b"\n")
            self._drop(Loss.FAILED, bytes(rest).count(b"\n"))
        else:
            self._failure = None
            self._tell_of_losses()

    def _tell_of_losses(self) -> None:
        with self._counting:
            untold, self._untold = self._untold, 0
        if untold:
            _log.warning("lines of this log were lost", stream=self._name, lines=untold)

    def _write_once(self, data: memoryview) -> int:
        self._began_s = self._clock.monotonic()
        try:
            return os.write(self._fd, data)
        except BlockingIOError:  # another process that has the stream too can make it so
            select.select([], [self._fd], [])
            return 0
        finally:
            self._began_s = None


class StandardStreams:
    """Standard output and standard error as `LogOutput`, from `take_over` to the end of the process."""

    def __init__(self, outputs: tuple[LogOutput, ...]) -> None:
        self._outputs = outputs

    @classmethod
    def take_over(cls, clock: Clock) -> StandardStreams:
        """Have all that this process prints, logs and warns of go through queues."""
        streams = cls((LogOutput(1, "standard output", clock), LogOutput(2, "standard error", clock)))
        sys.stdout, sys.stderr = streams._outputs
        # At the very end, after the traceback of an error that nothing caught.
        atexit.register(streams.drain)
        return streams

    def drain(self) -> None:
        """Wait for lines that are not written yet, for a bounded time. Blocks."""
        for output in self._outputs:
            output.drain(DRAIN_S)

    def lost(self) -> Mapping[str, int]:
        """How many lines were dropped, by reason."""
        return {reason: sum(output.lost[reason] for output in self._outputs) for reason in Loss}

    def problems(self) -> list[str]:
        """What keeps lines from being written now."""
        return [output.problem for output in self._outputs if output.problem is not None]

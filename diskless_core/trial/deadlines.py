"""An end to what hangs: a test that runs too long is interrupted on its thread, wherever that is. Main thread only."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 2.0
"""So long after the first interruption the next one follows: the first may have hit something else."""


class DeadlinePassedError(BaseException):
    """Not an Exception: nothing that handles failures should take it for one."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise DeadlinePassedError within, after so long and from then on again and again. It can be nested."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise DeadlinePassedError(f"it had not ended after {seconds:g} s")

    handler = signal.signal(signal.SIGALRM, interrupt)
    before = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
        signal.signal(signal.SIGALRM, handler)

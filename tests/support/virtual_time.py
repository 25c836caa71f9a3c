"""An event loop whose time is virtual: it jumps to the next timer, so that minutes pass in milliseconds, repeatably.

Work for an executor runs inline. A loop that waits with no timer left would wait for ever, and fails instead.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from diskless_core.clock import draw_uuid

T = TypeVar("T")

START_MS = 1_700_000_000_000

MOST_ROUNDS = 1_000_000
"""Of the loop at one moment. More of them, and something waits for a time that it does not let come."""


class _JumpingSelector(selectors.SelectSelector):
    """Sleeps by moving the loop's clock. While there is something to run it does not ask the system for news."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._rounds = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("everything waits and nothing will ever happen: a deadlock")
        if timeout <= 0:
            self._rounds += 1
            if self._rounds > MOST_ROUNDS:
                self._rounds = 0
                raise AssertionError(f"time stands still at {self.now_s} s: something runs again and again")
            return []
        self._rounds = 0
        self.now_s += timeout
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the module. `executor_delay_s` says how long work for an executor takes, by default no time at all."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self.executor_delay_s: Callable[[], float] | None = None

    def time(self) -> float:
        return self._jumping.now_s

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        answer: asyncio.Future[T] = self.create_future()
        finished: Future[T] = Future()
        try:
            finished.set_result(func(*args))
        except Exception as error:  # an executor hands every error on
            finished.set_exception(error)

        def hand_on() -> None:
            if answer.done():
                return
            error = finished.exception()
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(finished.result())

        if self.executor_delay_s is None:
            hand_on()
        else:
            self.call_later(self.executor_delay_s(), hand_on)
        return answer


class VirtualClock:
    """A `Clock` on a loop's virtual time, with seeded randomness and ids."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int = 0) -> None:
        self._loop = loop
        self._random = random.Random(seed)
        self.skew_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.skew_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def new_uuid(self) -> uuid.UUID:
        return draw_uuid(self._random)

    def random(self) -> random.Random:
        return self._random


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main())

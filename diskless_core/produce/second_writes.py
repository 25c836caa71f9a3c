"""A write that has no answer is sent again on another connection, while the first one still waits.

A connection can hang for as long as its time limit says, though the store is well again. The same key with the same
bytes can be written twice, so the second attempt cannot do harm, and the first that is answered counts. A first attempt
may reach the store late, when its object is committed, dead and deleted. Then it is an orphan like any other, and the
search for orphans finds it.

Each attempt has its own memory. The winner's memory becomes the cache entry, where offsets are patched into it, while
another attempt may still be sending.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from diskless_core.clock import Clock

LEAST_PATIENCE_S = 1.0
"""No write is sent again sooner."""

MOST_PATIENCE_S = 5.0
"""A write waits no longer for an answer before it is sent again, unless writes usually take long."""

TIMES_THE_USUAL = 3
"""A write is sent again after this many times the time that 19 of 20 recent writes took."""

LEAST_TIMES_THE_USUAL = 1.5
"""A write is never sent again sooner than after this many times that time."""

_RECENT = 64
_QUANTILE = 0.95

Put = Callable[[memoryview], Awaitable[None]]


class WritePatience:
    """How long a write may have no answer, by how long recent writes took. Pure."""

    def __init__(self) -> None:
        self._took_s: deque[float] = deque(maxlen=_RECENT)

    def learn(self, took_s: float) -> None:
        """A write was answered after this time."""
        self._took_s.append(took_s)

    def limit_s(self, attempt: int) -> float:
        """When to send a write again that has been sent `attempt` times, counted from the last time."""
        usual_s = sorted(self._took_s)[int(_QUANTILE * (len(self._took_s) - 1))] if self._took_s else 0.0
        most_s = max(MOST_PATIENCE_S, LEAST_TIMES_THE_USUAL * usual_s)
        first_s = max(LEAST_PATIENCE_S, TIMES_THE_USUAL * usual_s)
        return float(min(most_s, first_s * 2.0 ** (attempt - 1)))


class SecondWrites:
    """Writes with a second attempt where the first one has no answer.

    The first attempt is never given up: where the store is slow and does not hang, it is the one that succeeds. Only
    one write at a time has a second attempt, or all of them would share a slow line with copies of themselves. When it
    is answered, the next write gets one.
    """

    def __init__(self, clock: Clock, on_second: Callable[[], None]) -> None:
        self._clock = clock
        self._on_second = on_second
        self._patience = WritePatience()
        self._late: set[asyncio.Task[None]] = set()
        self._tried_by: object = None

    async def write(self, put: Put, data: memoryview) -> memoryview:
        """Call `put` with `data`, and with a copy of it when it has no answer for long. Returns the winner's memory.

        Raises:
            Exception: what the last attempt raised, when each attempt has failed.
        """
        attempts: dict[asyncio.Task[None], memoryview] = {}
        this, sent = object(), 0
        try:
            while True:
                if not sent or self._tried_by in (None, this):
                    for second in list(attempts)[1:]:  # its connection hangs too
                        self._give_up(attempts, second)
                    memory = data if not sent else memoryview(bytearray(data))
                    attempts[asyncio.create_task(self._timed(put, memory))] = memory
                    if sent:
                        self._tried_by = this
                        self._on_second()
                    sent += 1
                    limit_s = self._patience.limit_s(sent)
                else:
                    limit_s = LEAST_PATIENCE_S
                winner = await self._first(attempts, limit_s)
                if winner is not None:
                    return winner
        finally:
            if self._tried_by is this:
                self._tried_by = None
            for task in list(attempts):
                self._give_up(attempts, task)

    async def _first(self, attempts: dict[asyncio.Task[None], memoryview], limit_s: float) -> memoryview | None:
        """The memory of the first attempt that succeeds; None when the time is over."""
        end_s = self._clock.monotonic() + limit_s
        while True:
            left_s = max(0.0, end_s - self._clock.monotonic())
            done, _ = await asyncio.wait(attempts, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return None
            answered = {task: attempts.pop(task) for task in done}
            errors = {task: task.exception() for task in done}  # of all of them, or asyncio would report the others
            for task, error in errors.items():
                if error is None:
                    return answered[task]
            if not attempts:
                raise next(error for error in errors.values() if error is not None)

    async def _timed(self, put: Put, memory: memoryview) -> None:
        begun_s = self._clock.monotonic()
        await put(memory)
        self._patience.learn(self._clock.monotonic() - begun_s)

    def _give_up(self, attempts: dict[asyncio.Task[None], memoryview], task: asyncio.Task[None]) -> None:
        """End an attempt. Its memory is its own until it has ended, whenever that is."""
        del attempts[task]
        if task.done():
            return
        self._late.add(task)
        task.add_done_callback(self._end)
        task.cancel()

    def _end(self, task: asyncio.Task[None]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # it lost: another attempt was answered, or the write was given up

"""Finds out whether an operation blocks the event loop it runs on. Part of the contract suites of async nouns."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from diskless_core.clock import SystemClock, thread_run_delay_s

BEAT_S = 0.001
GRACE_S = 0.006
"""A beat may be so late: threads of one process hand Python's interpreter on every 5 ms."""

SOME_CALLS = 8
"""So often an operation calls what it is about, that a short stall of each call adds up."""

FREE_S = 0.03
FACTOR = 2
ROUNDS = 5

_CLOCK = SystemClock()


class Heartbeat:
    """Beats on the running event loop.

    `stalled_s` is how long it was kept from it other than by work on its thread, or by a machine that has other work.
    """

    def __init__(self) -> None:
        self.stalled_s = 0.0

    async def beat(self) -> None:
        """Until cancelled."""
        since = _Moment()
        try:
            while True:
                await asyncio.sleep(BEAT_S)
                since = self._note(since)
        finally:
            self._note(since)

    def _note(self, since: _Moment) -> _Moment:
        now = _Moment()
        excused_s = (now.work_s - since.work_s) + (now.run_delay_s - since.run_delay_s)
        late_s = (now.wall_s - since.wall_s) - excused_s - BEAT_S
        self.stalled_s += late_s if late_s > GRACE_S else 0
        return now


class _Moment:
    """The time, how much of it the running thread has worked so far, and how long it has waited for a processor."""

    def __init__(self) -> None:
        self.wall_s, self.work_s = _CLOCK.monotonic(), time.thread_time()
        self.run_delay_s = thread_run_delay_s(threading.get_native_id())


class OtherLoop:
    """A context with a heartbeat on a loop of another thread. The machine delays it too, the operation does not."""

    def __init__(self) -> None:
        self._heartbeat = Heartbeat()
        self._loop = asyncio.new_event_loop()
        self._beating = self._loop.create_task(self._heartbeat.beat())
        self._thread = threading.Thread(target=self._run, name="other-loop")

    @property
    def stalled_s(self) -> float:
        """Once the context has ended."""
        return self._heartbeat.stalled_s

    def __enter__(self) -> OtherLoop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._beating.cancel)
        self._thread.join()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._beating)
        self._loop.close()


class Turns:
    """A context that counts how often another task of the running loop gets its turn."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Turns:
        self._counting = asyncio.create_task(self._count())
        await asyncio.sleep(0)  # it has begun to wait for its first turn
        return self

    async def __aexit__(self, *_: object) -> None:
        self._counting.cancel()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1


async def assert_loop_goes_on(what: str, operation: Callable[[], Awaitable[object]]) -> None:
    """The loop has turns while the operation waits: it may work on the loop's thread, but not sleep or do I/O there.

    What keeps the loop waiting is compared with what keeps a loop of another thread waiting in the same time. A busy
    machine may delay one of them more than the other, but not every time: only what blocks in all of some rounds fails.
    Stalls of a few milliseconds are not seen.
    """
    least_s = float("inf")
    for _ in range(ROUNDS):
        heartbeat = Heartbeat()
        with OtherLoop() as other:
            beating = asyncio.create_task(heartbeat.beat())
            await asyncio.sleep(0)
            try:
                await operation()
            finally:
                beating.cancel()
                with suppress(asyncio.CancelledError):
                    await beating
        blocked_s = heartbeat.stalled_s - FACTOR * other.stalled_s
        if blocked_s < FREE_S:
            return
        least_s = min(least_s, blocked_s)
    raise AssertionError(f"{what} blocks the event loop: each of {ROUNDS} times for at least {least_s:.3f} s")

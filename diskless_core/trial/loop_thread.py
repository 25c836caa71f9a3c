"""An event loop on a thread of its own, for what goes on beside a test or between two."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

T = TypeVar("T")

END_S = 5.0
"""How long the thread has to end."""


class LoopThread:
    """A context in which the loop runs."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="trial", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        cancelling = self.begin(self._cancel_all())
        cancelling.add_done_callback(lambda _: self.loop.call_soon_threadsafe(self.loop.stop))
        self._thread.join(END_S)
        if not self._thread.is_alive():  # a backend that blocks keeps it for ever; it is a daemon
            self.loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin work on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Do work on the loop and wait for it.

        Raises:
            TimeoutError: it has not ended by then. It is cancelled.
        """
        future = self.begin(work)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    async def _cancel_all(self) -> None:
        """What is left gets a second to end."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=1)

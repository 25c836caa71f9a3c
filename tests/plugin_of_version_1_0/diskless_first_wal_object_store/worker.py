"""Runs what blocks on threads, so that the broker's event loop goes on. Delete it if your library is asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """A few threads. What has begun on one of them is over when `run` ends, also when its caller is cancelled.

    A thread cannot be cancelled. A call that returned while its thread still writes would let the broker delete, or
    write again, under it.
    """

    def __init__(self, threads: int = 1) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="first_wal_object_store")

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises. A cancelled call waits for its end, and is cancelled then."""
        job = asyncio.get_running_loop().run_in_executor(self._executor, work)
        cancelled: asyncio.CancelledError | None = None
        while not job.done():
            try:
                await asyncio.wait([job])
            except asyncio.CancelledError as error:
                cancelled = error  # remembered, not swallowed: it is raised below
        if cancelled is not None:
            job.exception()  # looked at, or asyncio says that nobody did
            raise cancelled
        return job.result()

    def stop(self) -> None:
        """End the threads, when what they do is done. Idempotent. Nothing can be run afterwards."""
        self._executor.shutdown()

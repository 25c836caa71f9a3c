"""Holds a job that an event loop gave to a thread, as a slow disk would. Part of the contract suites of async nouns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

_POLL_S = 0.001


class HeldJob:
    """A context in which job number `number` (from 0) that the running loop gives to an executor is held.

    The job begins, waits in its thread until it is released, and runs then. Backends that have threads otherwise, or
    none, are left alone.
    """

    def __init__(self, number: int) -> None:
        self._left = number
        self._held = threading.Event()
        self._released = threading.Event()
        self._finished = threading.Event()
        self._loop = asyncio.get_running_loop()

    async def is_held_before(self, task: asyncio.Task[Any]) -> bool:
        """Wait until the job is held or the task ends, and return whether it is. If not, no job will be held."""
        while not self._held.is_set() and not task.done():
            await asyncio.wait([task], timeout=_POLL_S)
        if not self._held.is_set():
            self._released.set()
        return self._held.is_set()

    async def release(self) -> None:
        """Let the job run, and wait for its end if it has begun."""
        self._released.set()
        if self._held.is_set():
            await asyncio.to_thread(self._finished.wait)

    def __enter__(self) -> HeldJob:
        self._given_to = self._loop.run_in_executor
        self._loop.run_in_executor = self._run_in_executor  # type: ignore[method-assign,assignment]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_in_executor = self._given_to  # type: ignore[method-assign]
        self._released.set()

    def _run_in_executor(self, executor: Any, job: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        self._left -= 1
        if self._left == -1:
            return self._given_to(executor, self._hold, job, *arguments)
        return self._given_to(executor, job, *arguments)

    def _hold(self, job: Callable[..., Any], *arguments: Any) -> Any:
        self._held.set()
        self._released.wait()
        try:
            return job(*arguments)
        finally:
            self._finished.set()

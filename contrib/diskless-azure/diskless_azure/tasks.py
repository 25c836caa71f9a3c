"""Work that is under way at once, and steps that a cancellation must not leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_S = 5.0
"""How long a step that was begun may still take once its caller is cancelled."""


class InFlight:
    """Pieces of work that are under way at once, at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin a piece of work, as soon as there is room for it.

        Raises:
            Exception: an earlier one failed; this one is not begun.
        """
        while len(self._tasks) >= self._limit:
            await self._some()
        self._tasks.add(asyncio.create_task(work()))

    async def drain(self) -> None:
        """Return when all are done.

        Raises:
            Exception: one failed; others may be under way.
        """
        while self._tasks:
            await self._some()

    async def abandon(self) -> None:
        """Cancel all, and return when nothing is under way any more."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _some(self) -> None:
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        self._tasks -= done
        errors = [error for task in done if (error := task.exception())]
        if errors:
            raise errors[0]


async def settled(step: Coroutine[Any, Any, T], grace_s: float = GRACE_S) -> T:
    """Await a step whose effect others see. If the caller is cancelled meanwhile, this ends when the step has ended.

    A write that is cut off may still take effect at the service, behind a deletion that the caller does next. So a step
    that was begun is waited for, but no longer than `grace_s`; then it is cut off.
    """
    task = asyncio.ensure_future(step)
    cutting: asyncio.TimerHandle | None = None
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancellation = error
            cutting = cutting or asyncio.get_running_loop().call_later(grace_s, task.cancel)
    if cutting is not None:
        cutting.cancel()
    if cancellation is not None:
        if not task.cancelled():
            task.exception()  # what became of it is not asked for any more
        raise cancellation
    return task.result()

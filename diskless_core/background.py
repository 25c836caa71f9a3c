"""Work that a broker does until it stops: loops that survive their defects, and what starts and ends them together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

RESTART_S = 10.0

Loop = Callable[[], Awaitable[None]]

_log = structlog.get_logger(__name__)


class Background:
    """The loops of one part."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, loop: Loop, name: str) -> None:
        """Run a loop until `stop`, as `for_ever` does. The name is its task's."""
        self._tasks.append(asyncio.create_task(for_ever(loop), name=name))

    async def stop(self) -> None:
        """Cancel the loops and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def for_ever(loop: Loop) -> None:
    """Run a loop; a defect in it is logged, and must not end the work of a broker that runs for months."""
    while True:
        try:
            await loop()
        except Exception:
            _log.error("a defect of the broker: background work is begun again", exc_info=True)
        await asyncio.sleep(RESTART_S)

"""Work that a broker does until it stops: loops that survive their defects, and what starts and ends them together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Protocol

import structlog

RESTART_S = 10.0

END_S = 1.0
"""How long a stop waits for work that was cancelled. Who clears away behind himself needs a few requests."""

BACKEND_END_S = 3.0
"""How long a stop waits for a store to let go of what it has. More than the stores' own limits, which say why."""

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
        """Cancel the loops and wait until they have ended, as `end` does."""
        await end(self._tasks)


async def end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended, `END_S` at most.

    What clears away behind itself, in a storage that does not answer, is left behind: it was done for nobody.
    """
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    ended, hanging = await asyncio.wait(tasks, timeout=END_S)
    for task in ended:
        if not task.cancelled():
            task.exception()  # nobody waits for it any more
    if hanging:
        _log.warning("work that does not end is left behind", work=sorted(task.get_name() for task in hanging))


class Stoppable(Protocol):
    """A backend, as far as its end is concerned."""

    def stop(self) -> Coroutine[Any, Any, None]:
        """Release everything."""
        ...


async def end_backend(name: str, backend: Stoppable) -> None:
    """Stop a backend, and wait for it, `BACKEND_END_S` at most. Errors are its own."""
    stopping = asyncio.create_task(backend.stop(), name=f"stop of {name}")
    await asyncio.wait([stopping], timeout=BACKEND_END_S)
    if stopping.done():
        stopping.result()
    else:
        _log.warning("a backend that does not stop is left behind", backend=name)


async def for_ever(loop: Loop) -> None:
    """Run a loop; a defect in it is logged, and must not end the work of a broker that runs for months."""
    while True:
        try:
            await loop()
        except Exception:
            _log.error("a defect of the broker: background work is begun again", exc_info=True)
        await asyncio.sleep(RESTART_S)

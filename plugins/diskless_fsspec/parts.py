"""Moves a log of any size in parts: a few in memory at once, as many as are being written and one that fills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from diskless_core.pages import PagePool
from diskless_core.plugin.wal_object_store import ObjectData

T = TypeVar("T")


async def in_parts(
    data: AsyncIterator[ObjectData], part_bytes: int, memory: PagePool
) -> AsyncGenerator[memoryview, None]:
    """The same bytes in parts of equal size, the last one shorter; none where there are no bytes.

    Each part is page-aligned memory of its own, and belongs to who gets it. A generator that is left early is closed.
    """
    part, filled = memory.take(part_bytes), 0
    try:
        async for piece in data:
            rest = memoryview(piece)
            while rest:
                taken = min(len(rest), part_bytes - filled)
                part[filled : filled + taken] = rest[:taken]
                rest, filled = rest[taken:], filled + taken
                if filled == part_bytes:
                    yield part
                    part, filled = memory.take(part_bytes), 0
        if filled:
            yield part[:filled]
    finally:
        if isinstance(data, AsyncGenerator):
            await data.aclose()


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

    async def abandon(self, *, cancel: bool) -> None:
        """Return when nothing is under way any more, whatever became of it."""
        tasks, self._tasks = self._tasks, set()
        if cancel:
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _some(self) -> None:
        done, self._tasks = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        errors = [error for task in done if (error := task.exception())]
        if errors:
            raise errors[0]


async def together(*work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do all at once. The first error ends the others and is raised."""
    in_flight = InFlight(len(work))
    try:
        for one in work:
            await in_flight.add(one)
        await in_flight.drain()
    finally:
        await in_flight.abandon(cancel=True)


async def to_the_end(work: Awaitable[T]) -> T:
    """Await work that must not stop half-way: a cancellation is raised as soon as it is done."""
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None and not task.cancelled():
        task.exception()
        raise cancellation
    return task.result()

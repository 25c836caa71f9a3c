"""The parts of one request, done side by side: what each of them waits for, a log's fsync, is then shared.

There may be any number of parts, since a client says how many. So only some are under way at the same time, and the
others cost no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

AT_ONCE = 256
"""How many parts of a request are under way at the same time, unless their caller says otherwise."""

PARTITIONS_AT_ONCE = 4096
"""The same where a part is one partition, and waits for nothing but what thousands can share."""

G = TypeVar("G")
T = TypeVar("T")
R = TypeVar("R")


async def side_by_side(work: Callable[[T], Awaitable[R]], parts: Collection[T], at_once: int = AT_ONCE) -> list[R]:
    """Do `work` for each part, and return the results in the order of the parts.

    The parts begin in their order: what `work` does before it first waits is done in that order too. An exception of
    one of them is raised, and ends the others. When something ends that a part waits for together with others, as when
    the broker stops, a CancelledError is raised.

    Args:
        at_once: how many are under way at the same time.
    """
    results: dict[int, R] = {}

    numbered = enumerate(parts)

    async def take_parts() -> None:
        for number, part in numbered:
            results[number] = await work(part)
            await asyncio.sleep(0)  # work that does not wait for anything would keep the event loop for all parts

    await together(take_parts() for _ in range(min(at_once, len(parts))))
    return [results[number] for number in range(len(parts))]


async def together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of these until they end. An exception of one of them is raised, and ends the others.

    A cancellation stays one, of the caller or of one of these. (A task group forgets the caller's when its work answers
    it with an error, and says nothing of work that is cancelled by itself.)
    """
    tasks = [asyncio.create_task(work) for work in works]
    if not tasks:
        return
    failed: list[BaseException] = []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failed = _errors(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        _errors(tasks)  # those of the others are nobody's
    for error in failed:
        raise error
    if any(task.cancelled() for task in tasks):
        raise asyncio.CancelledError


def _errors(tasks: Iterable[asyncio.Task[None]]) -> list[BaseException]:
    """Of those that have ended."""
    ended = (task.exception() for task in tasks if task.done() and not task.cancelled())
    return [error for error in ended if error is not None]


async def side_by_side_in_groups(
    work: Callable[[G, T], Awaitable[R]], groups: Sequence[tuple[G, Sequence[T]]], at_once: int = PARTITIONS_AT_ONCE
) -> list[list[R]]:
    """The same for parts in groups, such as the partitions of topics: the results of each group."""
    parts = [(group, part) for group, members in groups for part in members]
    results = iter(await side_by_side(lambda pair: work(*pair), parts, at_once))
    return [list(islice(results, len(members))) for _, members in groups]


async def in_thread(work: Callable[[], R]) -> R:
    """Do blocking work on a thread of the loop's executor, as `asyncio.to_thread` does.

    A caller that is cancelled waits until the work has ended, and is cancelled then: it may close what the work uses.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):  # cancelled again: this one is raised in the end
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # nobody asks for its result any more
        raise

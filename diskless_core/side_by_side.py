"""The parts of one request, done side by side: what each of them waits for, a log's fsync, is then shared.

There may be any number of parts, since a client says how many. So only some are under way at the same time, and the
others cost no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import islice
from typing import TypeVar

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

    try:
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(take_parts()) for _ in range(min(at_once, len(parts)))]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    if any(worker.cancelled() for worker in workers):  # a task group says nothing of these
        raise asyncio.CancelledError
    return [results[number] for number in range(len(parts))]


async def side_by_side_in_groups(
    work: Callable[[G, T], Awaitable[R]], groups: Sequence[tuple[G, Sequence[T]]], at_once: int = PARTITIONS_AT_ONCE
) -> list[list[R]]:
    """The same for parts in groups, such as the partitions of topics: the results of each group."""
    parts = [(group, part) for group, members in groups for part in members]
    results = iter(await side_by_side(lambda pair: work(*pair), parts, at_once))
    return [list(islice(results, len(members))) for _, members in groups]

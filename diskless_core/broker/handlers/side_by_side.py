"""The parts of one request, done side by side: what each of them waits for, a log's fsync, is then shared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

AT_ONCE = 256
"""How many parts of a request are under way at the same time."""

T = TypeVar("T")
R = TypeVar("R")


async def side_by_side(work: Callable[[T], Awaitable[R]], parts: Iterable[T]) -> list[R]:
    """Do `work` for each part, and return the results in the order of the parts.

    The parts begin in their order: what `work` does before it first waits is done in that order too.
    """
    turns = asyncio.Semaphore(AT_ONCE)

    async def in_turn(part: T) -> R:
        async with turns:
            return await work(part)

    return await asyncio.gather(*map(in_turn, parts))

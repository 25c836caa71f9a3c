"""What many have, given one after the other, while the next ones are asked for already: who answers may be far away."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


async def ahead(
    keys: Iterable[K], open_items: Callable[[K], AsyncGenerator[V, None]], count: int
) -> AsyncGenerator[tuple[K, AsyncGenerator[V, None]], None]:
    """Each key with its items, in order. Of the next `count` keys the first item is on its way.

    The items of a key have to be taken before the next key is asked for. What is left of them is closed.
    """
    waiting = iter(keys)
    coming: deque[tuple[K, _Items[V]]] = deque()
    given: _Items[V] | None = None
    try:
        while True:
            while len(coming) < count and (key := next(waiting, None)) is not None:
                coming.append((key, _Items(open_items(key))))
            if not coming:
                return
            key, given = coming.popleft()
            yield key, given.all()
            await given.close()
    finally:
        for items in [*([given] if given is not None else []), *(items for _, items in coming)]:
            await items.close()


class _Items(Generic[V]):
    """Items whose first one is asked for at once."""

    def __init__(self, source: AsyncGenerator[V, None]) -> None:
        self._source = source
        self._first = asyncio.create_task(self._next())

    async def all(self) -> AsyncGenerator[V, None]:
        item = await self._first
        while item is not None:
            yield item
            item = await self._next()

    async def close(self) -> None:
        self._first.cancel()
        await asyncio.gather(self._first, return_exceptions=True)
        await self._source.aclose()

    async def _next(self) -> V | None:
        return await anext(self._source, None)

"""What many have, given one after the other, while the next ones are asked for already: who answers may be far away."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


async def ahead(
    keys: Iterable[K],
    open_items: Callable[[K], AsyncGenerator[V, None]],
    *,
    count: int,
    weigh: Callable[[V], int],
    reserve: int,
    limit: int,
) -> AsyncGenerator[tuple[K, AsyncGenerator[V, None]], None]:
    """Each key with its items, in order. Of this key and the next ones the first item is on its way, or there.

    The items of a key have to be taken before the next key is asked for. What is left of them is closed.

    Args:
        count: so many keys at most are asked at a time.
        weigh: how much of `limit` an item takes.
        reserve: how much is reckoned for an item that is not there yet.
        limit: of the first items of all these keys together; one of them may exceed it.
    """
    waiting = iter(keys)
    window: deque[tuple[K, _Items[V]]] = deque()

    def fill() -> None:
        weight = sum(items.weight(weigh, reserve) for _, items in window)
        while len(window) < count and (not window or weight + reserve <= limit):
            if (key := next(waiting, None)) is None:
                return
            window.append((key, _Items(open_items(key), fill)))
            weight += reserve

    try:
        while True:
            fill()
            if not window:
                return
            key, items = window[0]
            yield key, items.all()
            await items.close()
            window.popleft()
    finally:
        waiting = iter(())
        await asyncio.gather(*(items.close() for _, items in window))


class _Items(Generic[V]):
    """Items whose first one is asked for at once; `arrived` is called when it is there, or cannot be."""

    def __init__(self, source: AsyncGenerator[V, None], arrived: Callable[[], None]) -> None:
        self._source = source
        self._first = asyncio.create_task(self._next())
        self._first.add_done_callback(lambda first: None if first.cancelled() else arrived())

    def weight(self, weigh: Callable[[V], int], reserve: int) -> int:
        """Of the first one."""
        if not self._first.done():
            return reserve
        if self._first.cancelled() or self._first.exception() is not None or (item := self._first.result()) is None:
            return 0
        return weigh(item)

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

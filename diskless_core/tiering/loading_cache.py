"""A cache bounded in bytes whose values are loaded once at a time, however many ask for one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LoadingCache(Generic[K, V]):
    """Values by key, least recently used out first. The newest one is kept whatever its size.

    So who has no time to wait for one finds it when asking again.

    Args:
        size_of: bytes that a value counts for.
    """

    def __init__(self, max_bytes: int, size_of: Callable[[V], int]) -> None:
        self.size_bytes = 0
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._values: OrderedDict[K, V] = OrderedDict()
        self._loads: dict[K, asyncio.Task[V]] = {}

    def __contains__(self, key: K) -> bool:
        """Whether the value is there, or on its way."""
        return key in self._values or key in self._loads

    def peek(self, key: K) -> V | None:
        """The value, if it is there."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """The value, loaded if need be; errors are those of `load`.

        Who is cancelled here leaves the load to whoever else wants it.
        """
        value = self.peek(key)
        if value is not None:
            return value
        return await asyncio.shield(self.begin(key, load))

    def begin(self, key: K, load: Callable[[], Awaitable[V]]) -> asyncio.Task[V]:
        """Load a value that is not there, or join the load that is under way."""
        task = self._loads.get(key)
        if task is None:
            task = self._loads[key] = asyncio.create_task(self._load(key, load), name="load from remote storage")
            task.add_done_callback(lambda done: self._loaded(key, done))
        return task

    def put(self, key: K, value: V) -> None:
        """Keep a value in place of another, and let go of the coldest ones until all fit."""
        self.discard(key)
        self._values[key] = value
        self.size_bytes += self._size_of(value)
        while self.size_bytes > self._max_bytes and len(self._values) > 1:
            self.discard(next(iter(self._values)))

    def discard(self, key: K) -> None:
        """Let go of a value, if it is there."""
        value = self._values.pop(key, None)
        if value is not None:
            self.size_bytes -= self._size_of(value)

    async def stop(self) -> None:
        """End what is under way."""
        tasks = list(self._loads.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _load(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        value = await load()
        self.put(key, value)
        return value

    def _loaded(self, key: K, task: asyncio.Task[V]) -> None:
        del self._loads[key]
        if not task.cancelled():
            task.exception()  # nobody may be waiting for it any more

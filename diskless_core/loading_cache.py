"""A cache bounded in bytes whose values are loaded once at a time, however many ask for one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, KeysView
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LoadingCache(Generic[K, V]):
    """Values by key, least recently used out first.

    The newest one is kept even if it is larger than the cache: a caller that cannot wait for a load finds its result on
    the next call.

    Args:
        size_of: bytes that a value counts for.
        max_value_bytes: a larger value is not kept at all.
        on_put: called after a value was kept, and others were let go of for it.
        on_discard: called after a value was let go of, whatever the reason.
    """

    def __init__(
        self,
        max_bytes: int,
        size_of: Callable[[V], int],
        *,
        max_value_bytes: int | None = None,
        on_put: Callable[[K, V], None] | None = None,
        on_discard: Callable[[K, V], None] | None = None,
    ) -> None:
        self.size_bytes = 0
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._max_value_bytes = max_value_bytes
        self._on_put = on_put
        self._on_discard = on_discard
        self._values: OrderedDict[K, V] = OrderedDict()
        self._loads: dict[K, asyncio.Task[V]] = {}

    def __contains__(self, key: K) -> bool:
        """Whether the value is there, or on its way."""
        return key in self._values or key in self._loads

    @property
    def loading(self) -> KeysView[K]:
        """The keys of values that are on their way."""
        return self._loads.keys()

    def peek(self, key: K) -> V | None:
        """The value, if it is there."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """The value, loaded if need be; as `load`."""
        value = self.peek(key)
        if value is not None:
            return value
        return await self.load(key, load)

    async def load(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """Load a value, whether it is there or not, or join the load that is under way; errors are those of `load`.

        A caller that is cancelled leaves the load to the others that wait for it.
        """
        return await asyncio.shield(self.begin(key, load))

    def begin(self, key: K, load: Callable[[], Awaitable[V]]) -> asyncio.Task[V]:
        """Load a value in the background, or join the load that is under way."""
        task = self._loads.get(key)
        if task is None:
            task = self._loads[key] = asyncio.create_task(self._load(key, load), name="load into a cache")
            task.add_done_callback(lambda done: self._loaded(key, done))
        return task

    def put(self, key: K, value: V) -> None:
        """Keep a value in place of another, and let go of the coldest ones until all fit."""
        self.discard(key)
        size_bytes = self._size_of(value)
        if self._max_value_bytes is not None and size_bytes > self._max_value_bytes:
            return
        self._values[key] = value
        self.size_bytes += size_bytes
        while self.size_bytes > self._max_bytes and len(self._values) > 1:
            self.discard(next(iter(self._values)))
        if self._on_put is not None:
            self._on_put(key, value)

    def discard(self, key: K) -> None:
        """Let go of a value, if it is there."""
        value = self._values.pop(key, None)
        if value is not None:
            self.size_bytes -= self._size_of(value)
            if self._on_discard is not None:
                self._on_discard(key, value)

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

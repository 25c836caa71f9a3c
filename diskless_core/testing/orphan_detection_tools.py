"""What the `orphan_detection` contract suite works with: stores for reading only, and listings of another kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from diskless_core.plugin.orphan_detection import OrphanSearch
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, WalObjectStore
from diskless_core.testing.fakes.objects import MemoryWalObjectStore

Pages = AsyncIterator[Sequence[ObjectInfo]]

_POLL_S = 0.002


class ObjectsSource:
    """Makes stores that read what is in `objects`.

    Attributes:
        made: how many stores there were.
        started: how many of them were started and not stopped since.
    """

    def __init__(self, objects: MemoryWalObjectStore) -> None:
        self.objects = objects
        self.made = 0
        self.started = 0

    def __call__(self) -> WalObjectStore:
        self.made += 1
        return _ReadOnlyObjects(self)


class _ReadOnlyObjects(WalObjectStore):
    is_node_local = False
    is_process_local = True

    def __init__(self, source: ObjectsSource) -> None:
        self._source = source
        self._is_started = False

    async def start(self) -> None:
        self._source.started += 1
        self._is_started = True

    async def stop(self) -> None:
        self._source.started -= self._is_started
        self._is_started = False

    async def put(self, key: str, data: ObjectData) -> None:
        raise AssertionError(f"a detector only reads, and puts no object {key!r} of {len(data)} bytes")

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        raise AssertionError(f"a detector only reads, and does not delete {keys!r}: no coordinator was asked")

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        return await self._started().get(key, start, end)

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        async for page in self._started().list(prefix):
            yield page

    def _started(self) -> MemoryWalObjectStore:
        assert self._is_started, "a store that a detector makes is started before it is used, and stopped after"
        return self._source.objects


def listing_as(wrap: Callable[[Pages], Pages], search: OrphanSearch, objects: MemoryWalObjectStore) -> OrphanSearch:
    """The search, with each listing of the store as `wrap` makes it, for the rest of the test."""
    list_as_ever = objects.list

    async def listing(prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        async for page in wrap(list_as_ever(prefix)):
            yield page

    setattr(objects, "list", listing)  # noqa: B010 - a method; what `search.objects` makes lists like this too
    return replace(search, list_objects=listing)


def backwards(page_objects: int) -> Callable[[Pages], Pages]:
    """Gives the last object first; some pages are empty, and the first is smaller than those that follow."""

    async def wrapped(pages: Pages) -> AsyncIterator[Sequence[ObjectInfo]]:
        found = [info async for page in pages for info in page][::-1]
        yield []
        yield found[:1]
        yield []
        for start in range(1, len(found), page_objects):
            yield found[start : start + page_objects]

    return wrapped


def modified_at(time_ms: int) -> Callable[[Pages], Pages]:
    """All objects have this as the store's time."""

    async def wrapped(pages: Pages) -> AsyncIterator[Sequence[ObjectInfo]]:
        async for page in pages:
            yield [replace(info, modified_ms=time_ms) for info in page]

    return wrapped


class Counted:
    """Counts what is listed, and takes its time."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.objects = 0
        self._pause_s = pause_s

    async def __call__(self, pages: Pages) -> AsyncIterator[Sequence[ObjectInfo]]:
        async for page in pages:
            self.objects += len(page)
            yield page
            await asyncio.sleep(self._pause_s)


class BreaksAfterAPage:
    """Raises an error after the first page."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    async def __call__(self, pages: Pages) -> AsyncIterator[Sequence[ObjectInfo]]:
        async for page in pages:
            yield page
            raise self._error()


class HoldsAfterAPage:
    """Waits after the first page until `is_released`. Any event loop will do, in any thread."""

    def __init__(self) -> None:
        self.is_waiting = False
        self.is_released = False

    async def __call__(self, pages: Pages) -> AsyncIterator[Sequence[ObjectInfo]]:
        async for page in pages:
            yield page
            self.is_waiting = True
            while not self.is_released:  # noqa: ASYNC110 - an event belongs to one loop
                await asyncio.sleep(_POLL_S)

    async def reached(self, task: asyncio.Task[object]) -> None:
        """Return when a listing waits, or the task has ended without one."""
        while not self.is_waiting and not task.done():  # noqa: ASYNC110 - as above
            await asyncio.sleep(_POLL_S)

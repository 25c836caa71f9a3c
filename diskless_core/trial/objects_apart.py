"""An object store as a trial sees it: below a prefix of its own in the configured place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from diskless_core.plugin.forwarding import take_abilities
from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    VersionedObject,
    WalObjectStore,
)


async def _nothing() -> None:
    """What most stores wait for before they begin."""


def _ignored() -> None:
    """Nobody wants to know of writes."""


class ObjectsApart(WalObjectStore):
    """Another store, with a prefix before every key.

    Args:
        prefix: ends with a slash, or is empty.
        before: awaited before each operation.
        on_write: called before each write.
    """

    def __init__(
        self,
        behind: WalObjectStore,
        prefix: str,
        *,
        before: Callable[[], Awaitable[None]] = _nothing,
        on_write: Callable[[], None] = _ignored,
    ) -> None:
        take_abilities(WalObjectStore, behind, self)
        self._behind = behind
        self._prefix = prefix
        self._before = before
        self._on_write = on_write

    async def start(self) -> None:
        await self._behind.start()
        take_abilities(WalObjectStore, self._behind, self)

    async def start_reading(self) -> None:
        await self._before()
        await self._behind.start_reading()
        take_abilities(WalObjectStore, self._behind, self)

    async def stop(self) -> None:
        await self._behind.stop()

    async def put(self, key: str, data: ObjectData) -> None:
        await self._before()
        self._on_write()
        await self._behind.put(self._prefix + key, data)

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        await self._before()
        with self._own_keys():
            return await self._behind.get(self._prefix + key, start, end)

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        await self._before()
        pages = self._behind.list(self._prefix + prefix)
        try:
            async for page in pages:
                yield [replace(info, key=info.key.removeprefix(self._prefix)) for info in page]
        finally:
            close = getattr(pages, "aclose", None)
            if close is not None:
                await close()

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        await self._before()
        gone = await self._behind.delete([self._prefix + key for key in keys])
        return [key.removeprefix(self._prefix) for key in gone]

    @contextmanager
    def _own_keys(self) -> Iterator[None]:
        try:
            yield
        except ObjectNotFoundError as error:
            raise ObjectNotFoundError(error.key.removeprefix(self._prefix)) from error
        except ConditionFailedError as error:
            raise ConditionFailedError(error.key.removeprefix(self._prefix)) from error


class ConditionalObjectsApart(ObjectsApart, ConditionalObjectStore):
    """The same of a store that writes on condition."""

    _behind: ConditionalObjectStore

    async def create(self, key: str, data: ObjectData) -> str:
        await self._before()
        self._on_write()
        with self._own_keys():
            return await self._behind.create(self._prefix + key, data)

    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        await self._before()
        self._on_write()
        with self._own_keys():
            return await self._behind.replace(self._prefix + key, data, version)

    async def get_versioned(self, key: str) -> VersionedObject:
        await self._before()
        with self._own_keys():
            return await self._behind.get_versioned(self._prefix + key)

    async def unbounded_versions(self, prefix: str) -> str | None:
        return await self._behind.unbounded_versions(self._prefix + prefix)


def objects_apart(
    behind: WalObjectStore,
    prefix: str,
    *,
    before: Callable[[], Awaitable[None]] = _nothing,
    on_write: Callable[[], None] = _ignored,
) -> WalObjectStore:
    """`behind` below a prefix; it writes on condition where that does."""
    kind = ConditionalObjectsApart if isinstance(behind, ConditionalObjectStore) else ObjectsApart
    return kind(behind, prefix, before=before, on_write=on_write)

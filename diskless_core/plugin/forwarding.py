"""What backends have in common that stand before another one."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from diskless_core.plugin.remote_storage import IndexType, LogSegmentData, RemoteStorage
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata

T = TypeVar("T")


def abilities(interface: type[Any]) -> Iterator[str]:
    """The attributes that an interface, or one that it extends, declares."""
    for declaring in interface.__mro__:
        yield from inspect.get_annotations(declaring)


def take_abilities(interface: type[Any], behind: object, before: object) -> None:
    """Let a backend say of itself what the one behind it says: all attributes that their interface declares."""
    for name in abilities(interface):
        setattr(before, name, getattr(behind, name))


class ForwardingRemoteStorage(RemoteStorage):
    """Has the abilities of another storage, and its answers. Subclasses say when that is asked, started and stopped."""

    def __init__(self, storage: RemoteStorage) -> None:
        take_abilities(RemoteStorage, storage, self)
        self._storage = storage

    @abstractmethod
    async def _ask(self, step: Callable[[RemoteStorage], Awaitable[T]]) -> T:
        """The answer of the storage behind this one."""

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        return await self._ask(lambda storage: storage.copy(metadata, data))

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        return await self._ask(lambda storage: storage.fetch(metadata, start, end))

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        return await self._ask(lambda storage: storage.fetch_index(metadata, index))

    async def replace_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType, data: bytes) -> None:
        await self._ask(lambda storage: storage.replace_index(metadata, index, data))

    async def discard_unfinished(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._ask(lambda storage: storage.discard_unfinished(metadata))

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._ask(lambda storage: storage.delete(metadata))

"""The backends that an engine reads from and copies to: the plugins' own, with retries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from diskless_core.clock import Clock
from diskless_core.plugin.forwarding import ForwardingRemoteStorage, take_abilities
from diskless_core.plugin.remote_storage import LogSegmentData, RemoteStorage
from diskless_core.plugin.retrying import Retrying
from diskless_core.plugin.segment_compaction import BackendSources
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, WalObjectStore, WalObjectStoreError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata

T = TypeVar("T")


class RetryingRemoteStorage(ForwardingRemoteStorage):
    """Does again what failed and can succeed. It is started and stopped by somebody else."""

    def __init__(self, storage: RemoteStorage, retrying: Retrying) -> None:
        super().__init__(storage)
        self._retrying = retrying

    async def start(self) -> None:
        """It has been started."""

    async def stop(self) -> None:
        """Others still use it."""

    async def _ask(self, step: Callable[[RemoteStorage], Awaitable[T]]) -> T:
        return await self._retrying.do(lambda: step(self._storage))

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        return await self._retrying.do(lambda: self.copy_once(metadata, data))

    async def copy_once(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """One try; for those who count them."""
        return await self._storage.copy(metadata, data)


class ObjectsToRead(WalObjectStore):
    """WAL objects for an engine: reads are done again when they failed and can succeed, and nothing is changed."""

    def __init__(self, objects: WalObjectStore, retrying: Retrying) -> None:
        take_abilities(WalObjectStore, objects, self)
        self._objects = objects
        self._retrying = retrying

    async def start(self) -> None:
        """They have been started."""

    async def stop(self) -> None:
        """Others still use them."""

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        return await self._retrying.do(lambda: self.get_once(key, start, end))

    async def get_once(self, key: str, start: int, end: int) -> ObjectData:
        """One try; for those who count them."""
        return await self._objects.get(key, start, end)

    def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        return self._objects.list(prefix)

    async def put(self, key: str, data: ObjectData) -> None:
        del data
        raise WalObjectStoreError(f"this only reads: it must not write {key!r}", retriable=False)

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        raise WalObjectStoreError(f"this only reads: it must not delete {len(keys)} objects", retriable=False)


@asynccontextmanager
async def started_backends(
    sources: BackendSources, clock: Clock
) -> AsyncIterator[tuple[WalObjectStore, RemoteStorage]]:
    """Backends of this process' own, which retry as the broker's do; stopped at the end.

    Raises:
        PluginFactoryError: one of them cannot be made.
        WalObjectStoreError, RemoteStorageError: one of them cannot be reached.
    """
    retrying = Retrying(sources.backoff, clock)
    async with AsyncExitStack() as stack:
        objects = sources.objects()
        stack.push_async_callback(objects.stop)
        remote_storage = sources.remote_storage()
        stack.push_async_callback(remote_storage.stop)
        await retrying.do(objects.start_reading)
        await retrying.do(remote_storage.start)
        yield ObjectsToRead(objects, retrying), RetryingRemoteStorage(remote_storage, retrying)

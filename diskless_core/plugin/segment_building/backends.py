"""The backends that an engine reads from and copies to: the plugins' own, with retries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from diskless_core.clock import Clock
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData, RemoteStorage
from diskless_core.plugin.retrying import Retrying
from diskless_core.plugin.segment_compaction import BackendSources
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, WalObjectStore, WalObjectStoreError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata


class RetryingRemoteStorage(RemoteStorage):
    """Does again what failed and can succeed. It is started and stopped by somebody else."""

    def __init__(self, storage: RemoteStorage, retrying: Retrying) -> None:
        self.is_node_local = storage.is_node_local
        self.is_process_local = storage.is_process_local
        self.can_replace_index = storage.can_replace_index
        self.copies_may_overlap = storage.copies_may_overlap
        self._storage = storage
        self._retrying = retrying

    async def start(self) -> None:
        """It has been started."""

    async def stop(self) -> None:
        """Others still use it."""

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        return await self._retrying.do(lambda: self.copy_once(metadata, data))

    async def copy_once(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """One try; for those who count them."""
        return await self._storage.copy(metadata, data)

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        return await self._retrying.do(lambda: self._storage.fetch(metadata, start, end))

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        return await self._retrying.do(lambda: self._storage.fetch_index(metadata, index))

    async def replace_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType, data: bytes) -> None:
        await self._retrying.do(lambda: self._storage.replace_index(metadata, index, data))

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._retrying.do(lambda: self._storage.delete(metadata))


class ObjectsToRead(WalObjectStore):
    """WAL objects for an engine: reads are done again when they failed and can succeed, and nothing is changed."""

    def __init__(self, objects: WalObjectStore, retrying: Retrying) -> None:
        self.requests_are_billed = objects.requests_are_billed
        self.is_node_local = objects.is_node_local
        self.is_process_local = objects.is_process_local
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
        raise WalObjectStoreError(f"a compaction only reads: it must not write {key!r}", retriable=False)

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        raise WalObjectStoreError(f"a compaction only reads: it must not delete {len(keys)} objects", retriable=False)


@asynccontextmanager
async def started_backends(
    sources: BackendSources, clock: Clock
) -> AsyncIterator[tuple[WalObjectStore, RemoteStorage]]:
    """Backends of this process' own, which retry as the broker's do; stopped at the end.

    Raises:
        WalObjectStoreError, RemoteStorageError: one of them cannot be reached.
    """
    retrying = Retrying(sources.backoff, clock)
    objects, remote_storage = sources.objects(), sources.remote_storage()
    try:
        await retrying.do(objects.start_reading)
        await retrying.do(remote_storage.start)
        yield ObjectsToRead(objects, retrying), RetryingRemoteStorage(remote_storage, retrying)
    finally:
        await remote_storage.stop()
        await objects.stop()

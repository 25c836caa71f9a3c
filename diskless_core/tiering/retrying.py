"""What an engine is given to read from and to copy to: the real backends, with retries and figures."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from diskless_core.metrics import Metrics
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData, RemoteStorage
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, WalObjectStore, WalObjectStoreError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.tiering.retries import Retries


class RetryingRemoteStorage(RemoteStorage):
    """Does again what failed and can succeed. It is started and stopped by somebody else."""

    def __init__(self, storage: RemoteStorage, retries: Retries, metrics: Metrics) -> None:
        self._storage = storage
        self._retries = retries
        self._metrics = metrics

    async def start(self) -> None:
        """It has been started."""

    async def stop(self) -> None:
        """Others still use it."""

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        return await self._retries.do(lambda: self._copy(metadata, data))

    async def _copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        self._metrics.remote_copy_requests.inc()
        with self._metrics.remote_copy_errors.count_exceptions():
            custom_metadata = await self._storage.copy(metadata, data)
        self._metrics.remote_copy_bytes.inc(metadata.segment_size_bytes)
        return custom_metadata

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        return await self._retries.do(lambda: self._storage.fetch(metadata, start, end))

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        return await self._retries.do(lambda: self._storage.fetch_index(metadata, index))

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._retries.do(lambda: self._storage.delete(metadata))


class ObjectsToRead(WalObjectStore):
    """WAL objects for an engine: reads are done again when they failed and can succeed, and nothing is changed."""

    def __init__(self, objects: WalObjectStore, retries: Retries, metrics: Metrics) -> None:
        self._objects = objects
        self._retries = retries
        self._metrics = metrics

    async def start(self) -> None:
        """They have been started."""

    async def stop(self) -> None:
        """Others still use them."""

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        return await self._retries.do(lambda: self._get(key, start, end))

    async def _get(self, key: str, start: int, end: int) -> ObjectData:
        self._metrics.compaction_store_reads.inc()
        data = await self._objects.get(key, start, end)
        self._metrics.compaction_store_bytes_read.inc(len(data))
        return data

    def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        return self._objects.list(prefix)

    async def put(self, key: str, data: ObjectData) -> None:
        del data
        raise WalObjectStoreError(f"a compaction only reads: it must not write {key!r}", retriable=False)

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        raise WalObjectStoreError(f"a compaction only reads: it must not delete {len(keys)} objects", retriable=False)

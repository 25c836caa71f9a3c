"""What an engine is given to read from and to copy to: the real backends, with retries and figures."""

from __future__ import annotations

from diskless_core.metrics import Metrics
from diskless_core.plugin.remote_storage import LogSegmentData, RemoteStorage
from diskless_core.plugin.segment_building.backends import ObjectsToRead, RetryingRemoteStorage
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStore
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.tiering.retries import Retries


class MeteredRemoteStorage(RetryingRemoteStorage):
    """Counts copies, and tries of them that fail."""

    def __init__(self, storage: RemoteStorage, retries: Retries, metrics: Metrics) -> None:
        super().__init__(storage, retries)
        self._metrics = metrics

    async def copy_once(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        self._metrics.remote_copy_requests.inc()
        with self._metrics.remote_copy_errors.count_exceptions():
            custom_metadata = await super().copy_once(metadata, data)
        self._metrics.remote_copy_bytes.inc(metadata.segment_size_bytes)
        return custom_metadata


class MeteredObjects(ObjectsToRead):
    """Counts reads."""

    def __init__(self, objects: WalObjectStore, retries: Retries, metrics: Metrics) -> None:
        super().__init__(objects, retries)
        self._metrics = metrics

    async def get_once(self, key: str, start: int, end: int) -> ObjectData:
        self._metrics.compaction_store_reads.inc()
        data = await super().get_once(key, start, end)
        self._metrics.compaction_store_bytes_read.inc(len(data))
        return data

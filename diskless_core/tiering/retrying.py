"""How steps of copying or removing a segment are done again, and the backends of an engine that do so and count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from diskless_core.clock import Clock
from diskless_core.config.tiering import TieringConfig
from diskless_core.coordinator.errors import CoordinatorError, EntryTooLargeError, NotCoordinatorError
from diskless_core.metrics import Metrics
from diskless_core.plugin import retrying
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.plugin.remote_storage import LogSegmentData, RemoteStorage
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.segment_building.backends import ObjectsToRead, RetryingRemoteStorage
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStore
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata

ATTEMPTS = 6
"""How often a step is tried in all. After that, it is the next round's."""


class Retries(Retrying):
    """`remote.log.manager.task.retry.backoff.*`: doubling, capped, with jitter to either side."""

    def __init__(
        self,
        settings: TieringConfig,
        clock: Clock,
        *,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        backoff = Backoff(
            attempts=attempts,
            first_ms=settings.remote_log_manager_task_retry_backoff_ms,
            max_ms=settings.remote_log_manager_task_retry_backoff_max_ms,
            jitter=settings.remote_log_manager_task_retry_jitter,
        )
        super().__init__(backoff, clock, is_retriable=is_retriable, sleep=sleep)


def is_retriable(error: BaseException) -> bool:
    """Whether the same step can succeed on this node."""
    if isinstance(error, RemoteLogMetadataError):
        return error.retriable
    if isinstance(error, CoordinatorError):
        return not isinstance(error, NotCoordinatorError | EntryTooLargeError)
    return retrying.is_retriable(error)


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

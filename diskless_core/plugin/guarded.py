"""The backends of those nouns whose errors the core handles, each behind a guard. They forward, and do nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError, LogBatch, LogBounds
from diskless_core.plugin.coordinator_store import (
    CoordinatorStore,
    CoordinatorStoreError,
    Key,
    Row,
    ShardStore,
    StoreView,
    TableChanges,
    TableSpec,
)
from diskless_core.plugin.forwarding import ForwardingRemoteStorage, take_abilities
from diskless_core.plugin.guarding import Guard, WatchedIterator
from diskless_core.plugin.remote_log_metadata import (
    RemoteLogMetadata,
    RemoteLogMetadataError,
    RemoteLogMetadataServices,
)
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData, RemoteStorage, RemoteStorageError
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, WalObjectStore, WalObjectStoreError
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)

T = TypeVar("T")


def guarded(noun: str, name: str, backend: Any, secrets: Collection[str]) -> Any:
    """A backend that raises nothing but its noun's own errors; the same one where the noun has none."""
    plugin = f"{noun}.{name}"
    match backend:
        case WalObjectStore():
            return GuardedObjectStore(backend, Guard(plugin, WalObjectStoreError, WalObjectStoreError, secrets))
        case RemoteStorage():
            return GuardedRemoteStorage(backend, Guard(plugin, RemoteStorageError, RemoteStorageError, secrets))
        case RemoteLogMetadata():
            return GuardedLogMetadata(backend, Guard(plugin, RemoteLogMetadataError, RemoteLogMetadataError, secrets))
        case CoordinatorStore():
            return GuardedCoordinatorStore(backend, Guard(plugin, CoordinatorStoreError, _store_error, secrets))
        case CoordinatorLog():
            return GuardedCoordinatorLog(backend, Guard(plugin, CoordinatorLogError, _log_error, secrets))
    return backend


def _store_error(message: str, *, retriable: bool) -> CoordinatorStoreError:
    del retriable
    return CoordinatorStoreError(message)


def _log_error(message: str, *, retriable: bool) -> CoordinatorLogError:
    del retriable
    return CoordinatorLogError(message)


class GuardedObjectStore(WalObjectStore):
    """A `wal_object_store` behind a guard."""

    def __init__(self, store: WalObjectStore, guard: Guard) -> None:
        take_abilities(WalObjectStore, store, self)
        self._store = store
        self._guard = guard

    async def start(self) -> None:
        with self._guard.starting:
            await self._store.start()
        take_abilities(WalObjectStore, self._store, self)

    async def start_reading(self) -> None:
        with self._guard.starting:
            await self._store.start_reading()
        take_abilities(WalObjectStore, self._store, self)

    async def stop(self) -> None:
        with self._guard:
            await self._store.stop()

    async def put(self, key: str, data: ObjectData) -> None:
        with self._guard:
            await self._store.put(key, data)

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        with self._guard:
            return await self._store.get(key, start, end)

    def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        with self._guard:
            return WatchedIterator(self._store.list(prefix), self._guard.check)

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        with self._guard:
            return await self._store.delete(keys)


class GuardedRemoteStorage(ForwardingRemoteStorage):
    """A `remote_storage` behind a guard. What is raised while the core yields a segment's bytes passes it."""

    def __init__(self, storage: RemoteStorage, guard: Guard) -> None:
        super().__init__(storage)
        self._guard = guard

    async def start(self) -> None:
        with self._guard.starting:
            await self._storage.start()
        take_abilities(RemoteStorage, self._storage, self)

    async def stop(self) -> None:
        with self._guard:
            await self._storage.stop()

    async def _ask(self, step: Callable[[RemoteStorage], Awaitable[T]]) -> T:
        with self._guard:
            return await step(self._storage)

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        source = _Source(data)
        try:
            return await self._storage.copy(metadata, LogSegmentData(log=source.log, indexes=source.indexes))
        except Exception as error:
            if error is not source.failure:
                self._guard.check(error)
            raise


class _Source:
    """The data of a segment.

    Attributes:
        failure: what the core raised last while it gave them.
    """

    def __init__(self, data: LogSegmentData) -> None:
        self._data = data
        self.failure: Exception | None = None

    def log(self) -> AsyncIterator[ObjectData]:
        return WatchedIterator(self._data.log(), self._failed)

    def indexes(self) -> Mapping[IndexType, bytes]:
        try:
            return self._data.indexes()
        except Exception as error:
            self._failed(error)
            raise

    def _failed(self, error: Exception) -> None:
        self.failure = error


class GuardedLogMetadata(RemoteLogMetadata):
    """A `remote_log_metadata` behind a guard."""

    def __init__(self, metadata: RemoteLogMetadata, guard: Guard) -> None:
        self._metadata = metadata
        self._guard = guard

    async def start(self, services: RemoteLogMetadataServices) -> None:
        with self._guard.starting:
            await self._metadata.start(services)

    async def stop(self) -> None:
        with self._guard:
            await self._metadata.stop()

    async def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        with self._guard:
            await self._metadata.add(metadata)

    async def update(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        with self._guard:
            await self._metadata.update(update)

    async def update_partition(self, update: RemotePartitionDeleteMetadata) -> None:
        with self._guard:
            await self._metadata.update_partition(update)

    async def find(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        with self._guard:
            return await self._metadata.find(partition, leader_epoch, offset)

    async def highest_offset(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        with self._guard:
            return await self._metadata.highest_offset(partition, leader_epoch)

    async def list(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        with self._guard:
            return await self._metadata.list(partition, leader_epoch)

    async def deleting_partitions(self) -> Sequence[RemotePartitionDeleteMetadata]:
        with self._guard:
            return await self._metadata.deleting_partitions()

    async def on_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        with self._guard:
            await self._metadata.on_leadership_changes(leaders, followers)

    async def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        with self._guard:
            await self._metadata.on_stop_partitions(partitions)


class GuardedCoordinatorLog(CoordinatorLog):
    """A `coordinator_log` behind a guard."""

    def __init__(self, log: CoordinatorLog, guard: Guard) -> None:
        take_abilities(CoordinatorLog, log, self)
        self._log = log
        self._guard = guard

    async def start(self) -> None:
        with self._guard.starting:
            await self._log.start()

    async def start_reading(self) -> None:
        with self._guard.starting:
            await self._log.start_reading()

    async def stop(self) -> None:
        with self._guard:
            await self._log.stop()

    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        with self._guard:
            return await self._log.append(shard, batches)

    def read(self, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        with self._guard:
            return WatchedIterator(self._log.read(shard, offset), self._guard.check)

    async def bounds(self, shard: ShardId) -> LogBounds:
        with self._guard:
            return await self._log.bounds(shard)

    def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[int | None]:
        with self._guard:
            return WatchedIterator(self._log.leadership(shard, candidate=candidate), self._guard.check)

    async def prune(self, shard: ShardId, before: int) -> None:
        with self._guard:
            await self._log.prune(shard, before)


class GuardedCoordinatorStore(CoordinatorStore):
    """A `coordinator_store` behind a guard, and so are the stores of its shards and their views."""

    def __init__(self, store: CoordinatorStore, guard: Guard) -> None:
        self._store = store
        self._guard = guard

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        with self._guard:
            return _GuardedShardStore(self._store.open(shard, tables), self._guard)


class _GuardedView(StoreView):
    def __init__(self, view: StoreView, guard: Guard) -> None:
        self._view = view
        self._guard = guard

    def applied_offset(self) -> int:
        with self._guard:
            return self._view.applied_offset()

    def get(self, table: str, key: Key) -> Row | None:
        with self._guard:
            return self._view.get(table, key)

    def scan(
        self,
        table: str,
        start: Key = (),
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        with self._guard:
            return self._view.scan(table, start, end, limit=limit, reverse=reverse)


class _GuardedShardStore(_GuardedView, ShardStore):
    def __init__(self, store: ShardStore, guard: Guard) -> None:
        super().__init__(store, guard)
        self._store = store

    def write(self, changes: Mapping[str, TableChanges], applied_offset: int) -> None:
        with self._guard:
            self._store.write(changes, applied_offset)

    def snapshot(self) -> AbstractContextManager[StoreView]:
        with self._guard:
            return _guarded_snapshot(self._store.snapshot(), self._guard)

    def clear(self) -> None:
        with self._guard:
            self._store.clear()

    def close(self) -> None:
        with self._guard:
            self._store.close()


@contextmanager
def _guarded_snapshot(snapshot: AbstractContextManager[StoreView], guard: Guard) -> Iterator[StoreView]:
    with guard:
        view = snapshot.__enter__()
    try:
        yield _GuardedView(view, guard)
    finally:
        with guard:
            snapshot.__exit__(None, None, None)

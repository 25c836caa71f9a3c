"""An object store whose requests are counted, by what they are for: what a bucket costs is what is asked of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import Enum

from diskless_core.metrics import Metrics
from diskless_core.plugin.forwarding import take_abilities
from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ObjectData,
    ObjectInfo,
    VersionedObject,
    WalObjectStore,
)


class StoreUse(Enum):
    """What a broker uses an object store for."""

    RECORDS = "records"
    """WAL objects, and the snapshots and probes beside them."""
    LOG = "log"
    """What the coordinator log keeps there."""


def counted(store: WalObjectStore, metrics: Metrics, use: StoreUse) -> WalObjectStore:
    """The same store, which also counts its requests as they are begun, and their bytes as they are done.

    It can write on condition where the store can.
    """
    return (_CountedConditional if isinstance(store, ConditionalObjectStore) else _Counted)(store, metrics, use)


class _Counted(WalObjectStore):
    def __init__(self, store: WalObjectStore, metrics: Metrics, use: StoreUse) -> None:
        self._store = store
        requests, transferred = metrics.object_store_requests, metrics.object_store_bytes
        self._puts, self._gets, self._lists, self._deletes = (
            requests.labels(use.value, operation) for operation in ("put", "get", "list", "delete")
        )
        self._bytes_put, self._bytes_got = (transferred.labels(use.value, operation) for operation in ("put", "get"))
        take_abilities(WalObjectStore, store, self)

    async def start(self) -> None:
        await self._store.start()
        take_abilities(WalObjectStore, self._store, self)

    async def start_reading(self) -> None:
        await self._store.start_reading()
        take_abilities(WalObjectStore, self._store, self)

    async def stop(self) -> None:
        await self._store.stop()

    async def put(self, key: str, data: ObjectData) -> None:
        self._puts.inc()
        await self._store.put(key, data)
        self._bytes_put.inc(len(data))

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        self._gets.inc()
        data = await self._store.get(key, start, end)
        self._bytes_got.inc(len(data))
        return data

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        self._lists.inc()
        is_first = True
        async for page in self._store.list(prefix):
            if not is_first:
                self._lists.inc()
            is_first = False
            yield page

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        self._deletes.inc()
        return await self._store.delete(keys)


class _CountedConditional(_Counted, ConditionalObjectStore):
    _store: ConditionalObjectStore

    async def create(self, key: str, data: ObjectData) -> str:
        self._puts.inc()
        version = await self._store.create(key, data)
        self._bytes_put.inc(len(data))
        return version

    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        self._puts.inc()
        version = await self._store.replace(key, data, version)
        self._bytes_put.inc(len(data))
        return version

    async def get_versioned(self, key: str) -> VersionedObject:
        self._gets.inc()
        found = await self._store.get_versioned(key)
        self._bytes_got.inc(len(found.data))
        return found

    async def unbounded_versions(self, prefix: str) -> str | None:
        return await self._store.unbounded_versions(prefix)

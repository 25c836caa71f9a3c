"""The object store and the remote storage, for code that blocks: calls go to an event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from diskless_core.clock import SystemClock
from diskless_core.plugin.remote_storage import (
    IndexType,
    RemoteResourceNotFoundError,
    RemoteStorage,
)
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.segment_building.backends import RetryingRemoteStorage
from diskless_core.plugin.wal_object_store import ObjectData, ObjectNotFoundError, WalObjectStore
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_spark.backends import SteadyObjects, started_objects
from diskless_spark.source.connection import Connection

T = TypeVar("T")

NOT_FOUND = (ObjectNotFoundError, RemoteResourceNotFoundError)
"""An object or a segment is gone: its records are elsewhere by now, or deleted."""

_BACKOFF = Backoff(attempts=5, first_ms=200, max_ms=5_000, jitter=0.5)


class Stores:
    """Both, each opened when it is first read; what failed and can succeed is done again. To be used in a `with`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="diskless-reads", daemon=True)
        self._retrying = Retrying(_BACKOFF, SystemClock())
        self._opened = AsyncExitStack()
        self._objects: asyncio.Task[WalObjectStore] | None = None
        self._segments: asyncio.Task[RemoteStorage] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.begin(self._stop()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin some work on the event loop, to ask for its result later."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work on the event loop and wait for it."""
        return self.begin(work).result()

    async def objects(self) -> WalObjectStore:
        """The object store, opened for reading."""
        if self._objects is None:
            self._objects = asyncio.ensure_future(self._open_objects())
        return await asyncio.shield(self._objects)

    async def read_object(self, key: str, start: int, end: int) -> memoryview:
        """The bytes from `start` to before `end` of a WAL object, to be written to.

        Raises:
            WalObjectStoreError: they cannot be read.
            CorruptBatchError: the object ends before.
        """
        store = await self.objects()
        return _whole(f"object {key}", end - start, await store.get(key, start, end))

    async def read_segment(self, segment: RemoteLogSegmentMetadata, start: int, end: int) -> memoryview:
        """The same of a segment's log; errors are those of `RemoteStorage.fetch`."""
        storage = await self._storage()
        return _whole(_name(segment), end - start, await storage.fetch(segment, start, end))

    async def read_index(self, segment: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        """An index of a segment; errors are those of `RemoteStorage.fetch_index`."""
        storage = await self._storage()
        return await storage.fetch_index(segment, index)

    async def _storage(self) -> RemoteStorage:
        if self._segments is None:
            self._segments = asyncio.ensure_future(self._open_segments())
        return await asyncio.shield(self._segments)

    async def _open_objects(self) -> WalObjectStore:
        opening = started_objects(self._connection.objects, self._retrying)
        return SteadyObjects(await self._opened.enter_async_context(opening), self._retrying)

    async def _open_segments(self) -> RemoteStorage:
        storage = self._connection.segments()
        self._opened.push_async_callback(storage.stop)
        await self._retrying.do(storage.start)
        return RetryingRemoteStorage(storage, self._retrying)

    async def _stop(self) -> None:
        """End what is under way, and close what is open."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._opened.aclose()


def _whole(name: str, size: int, data: ObjectData) -> memoryview:
    found = memoryview(data)
    if len(found) != size:
        raise CorruptBatchError(f"the {name} ends too early: {size - len(found)} of {size} bytes are missing")
    return memoryview(bytearray(found)) if found.readonly else found


def _name(segment: RemoteLogSegmentMetadata) -> str:
    place = segment.segment_id.topic_id_partition
    return f"segment {segment.segment_id.id} of {place.name}"

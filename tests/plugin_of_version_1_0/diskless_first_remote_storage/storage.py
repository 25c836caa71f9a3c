"""The storage `first_remote_storage`: segments as folders. Replace `folder.py` by a client of yours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
)
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata

from diskless_first_remote_storage.folder import LOG, Folder
from diskless_first_remote_storage.settings import FirstRemoteStorageSettings
from diskless_first_remote_storage.worker import Worker

T = TypeVar("T")

_THREADS = 8


class FirstRemoteStorageStorage(RemoteStorage):
    """A segment is found by its metadata alone. The log gets its name last: where it is, its indexes are.

    No method retries: the broker does.
    """

    # By these the broker decides where records are safe, and who can read them. A wrong answer loses records.
    is_node_local = True
    is_process_local = False
    can_replace_index = True
    copies_may_overlap = True

    def __init__(self, context: PluginContext, settings: FirstRemoteStorageSettings) -> None:
        """A factory does no I/O: that is for `start`."""
        self.is_broker_local = not settings.folder
        self._folder = Folder(Path(settings.folder) if settings.folder else context.data_dir, context.clock)
        self._worker: Worker | None = None

    async def start(self) -> None:
        # After an error that is retriable it is called again on this object, without `stop` in between.
        if self._worker is None:
            self._worker = Worker(_THREADS)
        await self._run(self._folder.prepare)

    async def stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await asyncio.to_thread(worker.stop)

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        segment = str(metadata.segment_id.id)
        incoming = self._folder.incoming(segment)
        try:
            await self._run(incoming.open)  # within the `try`: it may be cancelled and have opened the file
            # Piece by piece: a log may be larger than memory. What it raises is the caller's, and passes.
            log = data.log()
            async for piece in log:
                await self._run(lambda piece=piece: incoming.write(piece))  # type: ignore[misc]
            for index, content in data.indexes().items():  # they are complete when the log has gone by
                await self._run(lambda index=index, content=content: self._folder.put(segment, index, content))  # type: ignore[misc]
            await self._run(lambda: incoming.finish(LOG))
        finally:
            await self._run(incoming.discard)  # of a copy that failed or was cancelled; no more than that is left
        return None  # or what you want to find in `metadata.custom_metadata` from now on

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        return await self._read(metadata, LOG, start, end)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        return await self._read(metadata, index.value, 0, 1 << 62)

    async def replace_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType, data: bytes) -> None:
        await self._run(lambda: self._folder.put(str(metadata.segment_id.id), index, data))

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._run(lambda: self._folder.remove(str(metadata.segment_id.id)))

    async def _read(self, metadata: RemoteLogSegmentMetadata, name: str, start: int, end: int) -> bytes:
        segment = str(metadata.segment_id.id)
        try:
            return await self._run(lambda: self._folder.read(segment, name, start, end))
        except FileNotFoundError:
            raise RemoteResourceNotFoundError(f"there is no {name} of {metadata.segment_id}") from None

    async def _run(self, work: Callable[[], T]) -> T:
        """Translate errors: the broker takes all but RemoteStorageError for a fault of the plugin."""
        if self._worker is None:
            raise RemoteStorageError("the storage is not started, or it is stopped", retriable=False)
        try:
            return await self._worker.run(work)
        except FileNotFoundError:
            raise
        except OSError as error:
            # A permission does not come back by itself; a full disk may.
            raise RemoteStorageError(str(error), retriable=not isinstance(error, PermissionError)) from error

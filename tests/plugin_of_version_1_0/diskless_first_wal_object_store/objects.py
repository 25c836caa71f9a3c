"""The object store `first_wal_object_store`: objects as files. Replace `folder.py` by a client of yours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.wal_object_store import (
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    WalObjectStore,
    WalObjectStoreError,
)

from diskless_first_wal_object_store.folder import Folder
from diskless_first_wal_object_store.settings import FirstWalObjectStoreSettings
from diskless_first_wal_object_store.worker import Worker

T = TypeVar("T")

_THREADS = 8


class FirstWalObjectStoreObjects(WalObjectStore):
    """A put is durable at return, and nobody sees a part of it before. No method retries: the broker does."""

    # By these the broker decides where records are safe, and who can read them. A wrong answer loses records.
    requests_are_billed = False
    is_node_local = True
    is_process_local = False

    def __init__(self, context: PluginContext, settings: FirstWalObjectStoreSettings) -> None:
        """A factory does no I/O: that is for `start`."""
        self._folder = Folder(Path(settings.folder) if settings.folder else context.data_dir, context.clock)
        self._page_objects = settings.page_objects
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

    async def put(self, key: str, data: ObjectData) -> None:
        # `data` is the caller's again at return. The worker waits for its thread also when this is cancelled.
        await self._run(lambda: self._folder.write(key, data))

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        try:
            return await self._run(lambda: self._folder.read(key, start, end))
        except FileNotFoundError:
            raise ObjectNotFoundError(key) from None

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        keys = await self._run(lambda: self._folder.keys(prefix))
        for first in range(0, len(keys), self._page_objects):
            page = keys[first : first + self._page_objects]
            yield await self._run(lambda page=page: self._folder.describe(page))  # type: ignore[misc]

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        return await self._run(lambda: self._folder.remove(keys))

    async def _run(self, work: Callable[[], T]) -> T:
        """Translate errors: the broker takes all but WalObjectStoreError for a fault of the plugin."""
        if self._worker is None:
            raise WalObjectStoreError("the store is not started, or it is stopped", retriable=False)
        try:
            return await self._worker.run(work)
        except FileNotFoundError:
            raise
        except OSError as error:
            # A permission does not come back by itself; a full disk may.
            raise WalObjectStoreError(str(error), retriable=not isinstance(error, PermissionError)) from error

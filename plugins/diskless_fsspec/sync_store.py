"""WAL objects on any file system that fsspec knows, through its blocking API on threads; `memory://` among them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import fsspec

from diskless_core.clock import Clock
from diskless_core.plugin.wal_object_store import (
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    WalObjectStore,
    WalObjectStoreError,
)
from diskless_fsspec.errors import translated
from diskless_fsspec.keys import INCOMING, require_key, require_prefix
from diskless_fsspec.listing import PAGE_OBJECTS, object_info, paged

T = TypeVar("T")

logger = logging.getLogger(__name__)


class SyncFilesystemStore(WalObjectStore):
    """Objects below the path of `url`.

    A file system that can rename gets each object under a passing name first, for its writes may be visible while they
    grow; one that can't is taken for an object store, which shows an object whole. How durable a put is, is up to it.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any],
        *,
        node_id: int,
        clock: Clock,
        threads: int = 4,
        billed: bool = True,
        page_objects: int = PAGE_OBJECTS,
    ) -> None:
        self.requests_are_billed = billed
        self._url = url
        self._options = options
        self._node_id = node_id
        self._clock = clock
        self._page_objects = page_objects
        self._pool = ThreadPoolExecutor(threads, "wal-object")
        self._filesystem: fsspec.AbstractFileSystem | None = None
        self._root = ""

    async def start(self) -> None:
        await self._run(f"cannot use {self._url}", self._connect)

    async def stop(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)

    async def put(self, key: str, data: ObjectData) -> None:
        await self._run(f"cannot write {key!r}", partial(self._write, require_key(key), data))

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        try:
            return await self._run(f"cannot read {key!r}", partial(self._read, require_key(key), start, end))
        except WalObjectStoreError as error:
            if isinstance(error.__cause__, (FileNotFoundError, IsADirectoryError)):
                raise ObjectNotFoundError(key) from None
            raise

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        found = await self._run(f"cannot list {self._url}", partial(self._find, require_prefix(prefix)))
        for page in paged(found, self._page_objects):
            yield page

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        checked = [require_key(key) for key in keys]
        return await self._run("cannot delete objects", lambda: [key for key in checked if self._deleted(key)])

    async def _run(self, doing: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except WalObjectStoreError:
            raise
        except Exception as error:
            raise translated(error, doing) from error

    def _connect(self) -> None:
        options = {"skip_instance_cache": True, "use_listings_cache": False, **self._options}
        filesystem, root = fsspec.core.url_to_fs(self._url, **options)
        self._filesystem, self._root = filesystem, root.rstrip("/")
        filesystem.makedirs(self._root or "/", exist_ok=True)
        if _renames(filesystem):
            filesystem.makedirs(self._path(self._incoming), exist_ok=True)
            for left_over in filesystem.find(self._path(self._incoming)):
                filesystem.rm_file(left_over)

    def _write(self, key: str, data: ObjectData) -> None:
        target = self._path(key)
        filesystem = self._connected
        if not _renames(filesystem):
            filesystem.pipe_file(target, bytes(data))
            return
        growing = self._path(f"{self._incoming}/{self._clock.new_uuid().hex}")
        filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
        filesystem.pipe_file(growing, bytes(data))
        filesystem.mv(growing, target)

    def _read(self, key: str, start: int, end: int) -> bytes:
        path, filesystem = self._path(key), self._connected
        if start >= end or _renames(filesystem):
            # What has files may try to make room for all that is asked for.
            info = filesystem.info(path)
            if info["type"] != "file":
                raise FileNotFoundError(path)
            end = min(end, info["size"])
        if start >= end:
            return b""
        data: bytes = filesystem.cat_file(path, start=start, end=end)
        return data

    def _find(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        try:
            found = self._connected.find(self._path(folder) if folder else self._root or "/", detail=True)
        except FileNotFoundError:
            return iter(())
        skipped = len(self._root) + 1
        infos = (object_info(path[skipped:], info) for path, info in found.items())
        return (info for info in infos if info.key.startswith(prefix) and not info.key.startswith(f"{INCOMING}/"))

    def _deleted(self, key: str) -> bool:
        try:
            self._connected.rm_file(self._path(key))
        except FileNotFoundError:
            return True
        except Exception as error:
            logger.warning("cannot delete %s: %s", key, error)
            return False
        return True

    @property
    def _connected(self) -> fsspec.AbstractFileSystem:
        if self._filesystem is None:
            raise WalObjectStoreError("the store is not started")
        return self._filesystem

    @property
    def _incoming(self) -> str:
        return f"{INCOMING}/{self._node_id}"

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"


def _renames(filesystem: fsspec.AbstractFileSystem) -> bool:
    return type(filesystem).mv is not fsspec.AbstractFileSystem.mv

"""WAL objects on any file system that fsspec knows, through its blocking API on threads.

It cannot write on condition: fsspec's own `mode="create"` looks first and writes then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from diskless_core.clock import Clock
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, WalObjectStore
from diskless_fsspec.keys import INCOMING, require_key, require_prefix
from diskless_fsspec.listing import PAGE_OBJECTS, object_info, paged
from diskless_fsspec.sync_filesystem import SyncFilesystem


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
        node_local: bool = False,
        process_local: bool = False,
        page_objects: int = PAGE_OBJECTS,
    ) -> None:
        self.requests_are_billed = billed
        self.is_node_local = node_local
        self.is_process_local = process_local
        self._files = SyncFilesystem(url, options, threads=threads, thread_name="wal-object")
        self._node_id = node_id
        self._clock = clock
        self._page_objects = page_objects

    async def start(self) -> None:
        await self._files.run(f"cannot use {self._files.url}", self._connect)

    async def stop(self) -> None:
        await self._files.stop()

    async def put(self, key: str, data: ObjectData) -> None:
        await self._files.run(f"cannot write {key!r}", partial(self._write, require_key(key), data))

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        return await self._files.read(key, start, end)

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        found = await self._files.run(f"cannot list {self._files.url}", partial(self._find, require_prefix(prefix)))
        for page in paged(found, self._page_objects):
            yield page

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        checked = [require_key(key) for key in keys]
        return await self._files.run(
            "cannot delete objects", lambda: [key for key in checked if self._files.deleted(key)]
        )

    def _connect(self) -> None:
        self._files.connect()
        if self._files.renames:
            incoming, filesystem = self._files.path(self._incoming), self._files.filesystem
            filesystem.makedirs(incoming, exist_ok=True)
            for left_over in filesystem.find(incoming):
                filesystem.rm_file(left_over)

    def _write(self, key: str, data: ObjectData) -> None:
        self._files.write(key, f"{self._incoming}/{self._clock.new_uuid().hex}", bytes(data))

    def _find(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        root = self._files.root
        found = self._files.found(self._files.path(folder) if folder else root or "/")
        skipped = len(root) + 1
        infos = (object_info(path[skipped:], info) for path, info in found.items())
        return (info for info in infos if info.key.startswith(prefix) and not info.key.startswith(f"{INCOMING}/"))

    @property
    def _incoming(self) -> str:
        return f"{INCOMING}/{self._node_id}"

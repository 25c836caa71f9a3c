"""Segments on any file system that fsspec knows, through its blocking API on threads; `memory://` among them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from diskless_core.clock import Clock
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStoreError
from diskless_fsspec.keys import INCOMING, require_key
from diskless_fsspec.parts import InFlight
from diskless_fsspec.segments import ALL_SUFFIXES, LOG, SegmentStore, SegmentUpload
from diskless_fsspec.sync_filesystem import SyncFilesystem


class SyncSegmentStore(SegmentStore):
    """Segments below the path of `url`.

    A file system that can rename gets each file under a passing name first. One that can't is taken for an object
    store; should it show a file that grows, a log can be seen there before the copy is complete. How durable a copy
    is, is up to the file system.
    """

    part_bytes = 8 << 20
    uploads_may_overlap = False

    def __init__(self, url: str, options: Mapping[str, Any], *, clock: Clock, threads: int = 4) -> None:
        self.files = SyncFilesystem(url, options, threads=threads, thread_name="segment")
        self.clock = clock

    async def start(self) -> None:
        await self.files.run(f"cannot use {self.files.url}", self.files.connect)

    async def stop(self) -> None:
        await self.files.stop()

    def upload(self, key: str, size_bytes: int) -> SegmentUpload:  # noqa: ARG002 - files grow
        return SyncUpload(self, require_key(key))

    async def read(self, key: str, start: int, end: int) -> ObjectData:
        return await self.files.read(key, start, end)

    async def replace(self, key: str, index: IndexType, data: bytes) -> None:
        await self.files.run(f"cannot write {key!r}", partial(self._replace, require_key(key), index, data))

    async def forget_uploads(self, key: str) -> None:
        doing = f"cannot clear away unfinished copies of {key!r}"
        await self.files.run(doing, partial(self.clear, require_key(key)))

    async def delete(self, key: str) -> None:
        await self.files.run(f"cannot delete {key!r}", partial(self._delete, require_key(key)))

    def growing(self, key: str) -> str:
        """Make a new name for a file that grows, and the folder for it."""
        folder = _incoming(key)
        self.files.filesystem.makedirs(self.files.path(folder), exist_ok=True)
        return f"{folder}/{self.clock.new_uuid().hex}"

    def remove(self, *keys: str) -> None:
        """Delete files. They may be gone already."""
        left = [key for key in keys if not self.files.deleted(key)]
        if left:
            raise WalObjectStoreError(f"cannot delete {', '.join(left)}; the log of this broker says why")

    def clear(self, key: str) -> None:
        """Remove what grew of a segment, and the folder for it."""
        incoming = self.files.path(_incoming(key))
        if self.files.renames and self.files.filesystem.exists(incoming):
            self.files.filesystem.rm(incoming, recursive=True)

    def _replace(self, key: str, index: IndexType, data: bytes) -> None:
        if not self.files.renames:
            self.files.write(key + index, "", data)
            return
        growing = self.growing(key)
        self.files.filesystem.pipe_file(self.files.path(growing), data)
        self.remove(key + index)
        self.files.rename(growing, key + index)
        self.clear(key)

    def _delete(self, key: str) -> None:
        self.remove(*(f"{key}{suffix}" for suffix in ALL_SUFFIXES))
        self.clear(key)


class SyncUpload(SegmentUpload):
    """Parts of the log are written one after the other, each while the next one fills."""

    def __init__(self, store: SyncSegmentStore, key: str) -> None:
        self._store = store
        self._files = store.files
        self._key = key
        self._doing = f"cannot write {key!r}"
        self._in_flight = InFlight(1)
        self._log_key = ""
        self._log: Any = None

    async def open(self) -> None:
        await self._files.run(self._doing, self._open)

    async def write(self, part: memoryview) -> None:
        await self._in_flight.add(partial(self._write, part))

    async def publish(self, indexes: Mapping[IndexType, bytes]) -> None:
        await self._in_flight.drain()
        await self._files.run(self._doing, partial(self._publish, indexes))

    async def discard(self) -> None:
        await self._in_flight.abandon(cancel=False)
        await self._files.run(f"cannot clear away {self._key!r}", self._clear)

    async def _write(self, part: memoryview) -> None:
        await self._files.run(self._doing, lambda: self._log.write(bytes(part)))

    def _open(self) -> None:
        self._log_key = self._store.growing(self._key) if self._files.renames else self._key + LOG
        self._log = self._files.filesystem.open(self._files.path(self._log_key), "wb")

    def _publish(self, indexes: Mapping[IndexType, bytes]) -> None:
        if self._files.renames:  # some rename onto nothing only
            self._store.remove(*(f"{self._key}{suffix}" for suffix in (LOG, *indexes)))
        for index, data in indexes.items():
            growing = self._store.growing(self._key) if self._files.renames else ""
            self._files.write(self._key + index, growing, data)
        self._log.close()
        if self._files.renames:
            self._files.rename(self._log_key, self._key + LOG)
            self._store.clear(self._key)

    def _clear(self) -> None:
        """Remove what was written of the log. Closing comes first: a file that is left open may be stored later."""
        if self._log is None:
            return
        self._log.close()
        if self._files.renames:
            self._store.clear(self._key)
        else:
            self._store.remove(self._log_key)


def _incoming(key: str) -> str:
    """Where the files of a segment grow."""
    return f"{INCOMING}/{key.rpartition('/')[2]}"

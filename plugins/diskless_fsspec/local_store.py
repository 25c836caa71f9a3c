"""WAL objects as files of a folder, for `file://`: no other library, and nothing acknowledged before it is on disk."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from diskless_core.clock import Clock
from diskless_core.plugin.folders import sync_folder
from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ObjectData,
    ObjectInfo,
    VersionedObject,
    WalObjectStoreError,
)
from diskless_fsspec.keys import INCOMING, require_key, require_prefix
from diskless_fsspec.listing import PAGE_OBJECTS, paged
from diskless_fsspec.local_conditions import ConditionalFiles
from diskless_fsspec.local_folder import LocalFolder, delete_files


class LocalObjectStore(ConditionalObjectStore):
    """One file for each object, below `root`.

    A put writes a file in `.incoming/<node id>`, syncs it, renames it, and syncs the folders that the rename changed.
    Several nodes may share a root. Reads have threads of their own, so that none waits for an fsync. Folders stay when
    their last object goes.
    """

    requests_are_billed = False
    is_node_local = True
    is_process_local = False

    def __init__(
        self, root: Path, *, node_id: int, clock: Clock, threads: int = 4, page_objects: int = PAGE_OBJECTS
    ) -> None:
        self._folder = LocalFolder(root, threads=threads, thread_name="wal-object")
        self._conditional = ConditionalFiles(self._folder, clock)
        self._root = root
        self._incoming = root / INCOMING / str(node_id)
        self._clock = clock
        self._page_objects = page_objects

    async def start(self) -> None:
        doing = f"cannot use {self._root} (wal_object_store.fsspec.url must name a folder that can be written)"
        await self._folder.when_writing(doing, self._prepare)

    async def start_reading(self) -> None:
        if not await self._folder.when_reading(f"cannot use {self._root}", self._root.is_dir):
            raise WalObjectStoreError(
                f"there is no folder {self._root}: no broker has written there (wal_object_store.fsspec.url names it)",
                retriable=False,
            )

    async def stop(self) -> None:
        await self._folder.stop()

    async def put(self, key: str, data: ObjectData) -> None:
        await self._folder.when_writing(f"cannot write {key!r}", partial(self._write, require_key(key), data))

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        return await self._folder.read(key, start, end)

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        pages = paged(_walk(self._root, require_prefix(prefix)), self._page_objects)
        while page := await self._folder.when_reading(f"cannot list {self._root}", partial(next, pages, None)):
            yield page

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        paths = {self._root / require_key(key): key for key in keys}
        gone = await self._conditional.when_not_replacing("cannot delete objects", partial(delete_files, paths))
        return [paths[path] for path in gone]

    async def create(self, key: str, data: ObjectData) -> str:
        return await self._conditional.create(require_key(key), self._new_incoming(), data)

    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        return await self._conditional.replace(require_key(key), self._new_incoming(), data, version)

    async def get_versioned(self, key: str) -> VersionedObject:
        return await self._conditional.read(require_key(key))

    def _prepare(self) -> None:
        self._folder.make(self._incoming)
        for left_over in self._incoming.iterdir():
            left_over.unlink()
        trial = self._incoming / "trial"
        self._folder.files.write(trial, b"trial")
        trial.unlink()

    def _write(self, key: str, data: ObjectData) -> None:
        target = self._root / key
        growing = self._new_incoming()
        with self._folder.made(self._incoming, target.parent, doing=f"cannot write {key!r}"):
            try:
                self._folder.files.write(growing, data)
                growing.rename(target)
                sync_folder(target.parent)
            except OSError:
                with suppress(OSError):
                    growing.unlink()
                raise

    def _new_incoming(self) -> Path:
        return self._incoming / self._clock.new_uuid().hex


def _walk(root: Path, prefix: str) -> Iterator[ObjectInfo]:
    """Objects below `root` in no order, one folder open at a time; what vanishes on the way is left out.

    Raises:
        FileNotFoundError: `root` itself has gone, which is not to be taken for a store without objects.
    """
    root.stat()
    folder, _, _ = prefix.rpartition("/")
    pending = [folder]
    while pending:
        folder = pending.pop()
        for entry in _entries(root / folder):
            key = f"{folder}/{entry.name}" if folder else entry.name
            if key == INCOMING:
                continue
            if entry.is_dir():
                if f"{key}/".startswith(prefix):
                    pending.append(key)
            elif key.startswith(prefix) and (info := _info(key, entry)):
                yield info


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return


def _info(key: str, entry: os.DirEntry[str]) -> ObjectInfo | None:
    try:
        found = entry.stat()
    except FileNotFoundError:
        return None
    return ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000)

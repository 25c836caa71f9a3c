"""WAL objects as files of a folder, for `file://`: no other library, and nothing acknowledged before it is on disk."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TypeVar

from diskless_core.clock import Clock
from diskless_core.plugin.folders import sync_folder
from diskless_core.plugin.wal_object_store import (
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    WalObjectStore,
    WalObjectStoreError,
)
from diskless_fsspec.direct_io import DurableFiles
from diskless_fsspec.errors import translated
from diskless_fsspec.keys import INCOMING, require_key, require_prefix
from diskless_fsspec.listing import PAGE_OBJECTS, paged

T = TypeVar("T")

logger = logging.getLogger(__name__)


class LocalObjectStore(WalObjectStore):
    """One file for each object, below `root`.

    A put writes a file in `.incoming/<node id>`, syncs it, renames it, and syncs the folders that the rename changed.
    Several nodes may share a root. Reads have threads of their own, so that none waits for an fsync. Folders stay when
    their last object goes.
    """

    requests_are_billed = False

    def __init__(
        self, root: Path, *, node_id: int, clock: Clock, threads: int = 4, page_objects: int = PAGE_OBJECTS
    ) -> None:
        self._root = root
        self._incoming = root / INCOMING / str(node_id)
        self._clock = clock
        self._files = DurableFiles()
        self._page_objects = page_objects
        self._folders_lock = RLock()
        self._durable_folders: set[Path] = set()
        self._readers = ThreadPoolExecutor(threads, "wal-object-read")
        self._writers = ThreadPoolExecutor(threads, "wal-object-write")

    async def start(self) -> None:
        doing = f"cannot use {self._root} (wal_object_store.fsspec.url must name a folder that can be written)"
        await self._run(self._writers, doing, self._prepare)

    async def start_reading(self) -> None:
        if not await self._run(self._readers, f"cannot use {self._root}", self._root.is_dir):
            raise WalObjectStoreError(
                f"there is no folder {self._root}: no broker has written there (wal_object_store.fsspec.url names it)",
                retriable=False,
            )

    async def stop(self) -> None:
        for pool in (self._writers, self._readers):
            await asyncio.to_thread(pool.shutdown)

    async def put(self, key: str, data: ObjectData) -> None:
        await self._run(self._writers, f"cannot write {key!r}", partial(self._write, require_key(key), data))

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        work = partial(self._files.read, self._root / require_key(key), start, end)
        try:
            return await self._run(self._readers, f"cannot read {key!r}", work)
        except WalObjectStoreError as error:
            if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
                raise ObjectNotFoundError(key) from None
            raise

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        pages = paged(_walk(self._root, require_prefix(prefix)), self._page_objects)
        while page := await self._run(self._readers, f"cannot list {self._root}", partial(next, pages, None)):
            yield page

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        paths = {key: self._root / require_key(key) for key in keys}
        return await self._run(self._writers, "cannot delete objects", partial(_delete, paths))

    async def _run(self, pool: ThreadPoolExecutor, doing: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except OSError as error:
            raise translated(error, doing) from error
        except RuntimeError as error:
            raise WalObjectStoreError(f"{doing}: the store is stopped") from error

    def _prepare(self) -> None:
        self._make_folder(self._incoming)
        for left_over in self._incoming.iterdir():
            left_over.unlink()
        trial = self._incoming / "trial"
        self._files.write(trial, b"trial")
        trial.unlink()

    def _write(self, key: str, data: ObjectData) -> None:
        target = self._root / key
        growing = self._incoming / self._clock.new_uuid().hex
        try:
            self._make_folder(self._incoming)
            self._make_folder(target.parent)
            self._files.write(growing, data)
            growing.rename(target)
            sync_folder(target.parent)
        except FileNotFoundError as error:
            with self._folders_lock:
                self._durable_folders.clear()
            raise WalObjectStoreError(f"cannot write {key!r}: its folder was removed meanwhile") from error
        finally:
            with suppress(OSError):
                growing.unlink()

    def _make_folder(self, folder: Path) -> None:
        """Create a folder and those above it, each durable in its parent.

        One that exists may be so new that another thread, or a process that was killed, has not synced it.
        """
        with self._folders_lock:
            if folder in self._durable_folders:
                return
            if folder != self._root:
                self._make_folder(folder.parent)
            else:
                folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
            self._durable_folders.add(folder)


def _delete(paths: dict[str, Path]) -> list[str]:
    """Remove files; those whose folder can't be synced may come back after a power loss, and count as not deleted."""
    gone: list[str] = []
    by_folder: dict[Path, list[str]] = {}
    for key, path in paths.items():
        by_folder.setdefault(path.parent, []).append(key)
    for folder, keys in by_folder.items():
        removed = [key for key in keys if _unlinked(paths[key])]
        try:
            sync_folder(folder)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            logger.warning("cannot sync %s: %s", folder, error)
            continue
        gone += removed
    return gone


def _unlinked(path: Path) -> bool:
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        logger.warning("cannot delete %s: %s", path, error)
        return False
    return True


def _walk(root: Path, prefix: str) -> Iterator[ObjectInfo]:
    """Objects below `root` in no order, one folder open at a time; what vanishes on the way is left out."""
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

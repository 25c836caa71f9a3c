"""Segments as files of a folder, for `file://`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from diskless_core.clock import Clock
from diskless_core.plugin.folders import sync_folder
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStoreError
from diskless_fsspec.direct_io import GrowingFile
from diskless_fsspec.keys import INCOMING, require_key
from diskless_fsspec.local_folder import LocalFolder, delete_files
from diskless_fsspec.parts import InFlight
from diskless_fsspec.segments import ALL_SUFFIXES, LOG, SegmentStore, SegmentUpload

PARTS_IN_FLIGHT = 2
GROW_ATTEMPTS = 10

T = TypeVar("T")


class LocalSegmentStore(SegmentStore):
    """The files of a segment grow in `.incoming/<segment>`, are synced, renamed, and synced with their folder.

    Any number of processes may share a root. Folders of partitions stay when their last segment goes.
    """

    part_bytes = 4 << 20
    uploads_may_overlap = True

    def __init__(self, root: Path, *, clock: Clock, threads: int = 4) -> None:
        self.folder = LocalFolder(root, threads=threads, thread_name="segment")
        self.clock = clock

    async def start(self) -> None:
        doing = f"cannot use {self.folder.root} (remote_storage.fsspec.url must name a folder that can be written)"
        await self.folder.when_writing(doing, self._try)

    async def stop(self) -> None:
        await self.folder.stop()

    def upload(self, key: str, size_bytes: int) -> SegmentUpload:  # noqa: ARG002 - files grow
        return LocalUpload(self, require_key(key))

    async def read(self, key: str, start: int, end: int) -> ObjectData:
        return await self.folder.read(key, start, end)

    async def replace(self, key: str, index: IndexType, data: bytes) -> None:
        await self.folder.when_writing(f"cannot write {key!r}", partial(self._replace, require_key(key), index, data))

    async def delete(self, key: str) -> None:
        await self.folder.when_writing(f"cannot delete {key!r}", partial(self._delete, require_key(key)))

    def incoming(self, key: str) -> Path:
        """Where the files of a segment grow."""
        return self.folder.root / INCOMING / key.rpartition("/")[2]

    def grow(self, key: str, create: Callable[[Path], T]) -> tuple[Path, T]:
        """Create a file that grows, in the folder of its segment: its path, and what `create` returned.

        Another copy of the segment, of an attempt that was given up, removes the folder when it ends.
        """
        folder = self.incoming(key)
        for attempt in range(GROW_ATTEMPTS):
            path = folder / self.clock.new_uuid().hex
            folder.mkdir(parents=True, exist_ok=True)
            try:
                return path, create(path)
            except FileNotFoundError:
                if attempt == GROW_ATTEMPTS - 1:
                    raise
        raise AssertionError("it raises the last error")

    def _try(self) -> None:
        self.folder.make(self.folder.root)
        trial, _ = self.grow(self.clock.new_uuid().hex, lambda path: self.folder.files.write(path, b"trial"))
        trial.unlink()
        trial.parent.rmdir()

    def _replace(self, key: str, index: IndexType, data: bytes) -> None:
        path, _ = self.grow(key, lambda path: self.folder.files.write(path, data))
        target = self.folder.root / f"{key}{index}"
        path.rename(target)
        sync_folder(target.parent)
        with suppress(OSError):
            path.parent.rmdir()

    def _delete(self, key: str) -> None:
        paths = [self.folder.root / f"{key}{suffix}" for suffix in ALL_SUFFIXES]
        if len(delete_files(paths)) < len(paths):
            raise WalObjectStoreError(f"cannot delete all of {key!r}; the log of this broker says why")
        incoming = self.incoming(key)
        with suppress(FileNotFoundError):
            for left_over in incoming.iterdir():
                left_over.unlink(missing_ok=True)
            incoming.rmdir()


class LocalUpload(SegmentUpload):
    """Parts of the log are written at once, by several threads."""

    def __init__(self, store: LocalSegmentStore, key: str) -> None:
        self._store = store
        self._folder = store.folder
        self._key = key
        self._doing = f"cannot write {key!r}"
        self._in_flight = InFlight(PARTS_IN_FLIGHT)
        self._log: GrowingFile | None = None
        self._size = 0
        self._growing: dict[str, Path] = {}

    async def open(self) -> None:
        await self._folder.when_writing(self._doing, self._open)

    async def write(self, part: memoryview) -> None:
        await self._in_flight.add(partial(self._write, self._size, part))
        self._size += len(part)

    async def publish(self, indexes: Mapping[IndexType, bytes]) -> None:
        await self._in_flight.drain()
        await self._folder.when_writing(self._doing, partial(self._publish, indexes))

    async def discard(self) -> None:
        await self._in_flight.abandon(cancel=False)
        await self._folder.when_writing(f"cannot clear away {self._key!r}", self._clear)

    async def _write(self, position: int, part: memoryview) -> None:
        await self._folder.when_writing(self._doing, partial(self._opened.write, position, part))

    def _open(self) -> None:
        self._growing[LOG], self._log = self._store.grow(self._key, self._folder.files.create)

    def _publish(self, indexes: Mapping[IndexType, bytes]) -> None:
        target = self._folder.root / self._key
        try:
            self._opened.finish(self._size)
            for index, data in indexes.items():
                write = partial(self._folder.files.write, data=data)
                self._growing[index], _ = self._store.grow(self._key, write)
            self._folder.make(target.parent)
            for suffix in (*indexes, LOG):
                self._growing[suffix].rename(target.with_name(target.name + suffix))
            sync_folder(target.parent)
        except FileNotFoundError as error:
            self._folder.forget()
            raise WalObjectStoreError(f"{self._doing}: its folder was removed meanwhile") from error
        self._clear()

    def _clear(self) -> None:
        """Close the log, and remove what has not got its name."""
        if self._log is not None:
            self._log.close()
        for path in self._growing.values():
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self._store.incoming(self._key).rmdir()

    @property
    def _opened(self) -> GrowingFile:
        if self._log is None:
            raise WalObjectStoreError(f"{self._doing}: it is not open")
        return self._log

"""Segments as files of a folder, for `file://`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

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


class LocalSegmentStore(SegmentStore):
    """The files of a segment grow as `.incoming/<segment>.<id>`, are synced, renamed, and synced with their folder.

    Any number of processes may share a root. Folders of partitions stay when their last segment goes.
    """

    part_bytes = 4 << 20
    uploads_may_overlap = True

    def __init__(self, root: Path, *, clock: Clock, threads: int = 4) -> None:
        self.folder = LocalFolder(root, threads=threads, thread_name="segment")
        self.clock = clock
        self.incoming = root / INCOMING

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
        doing = f"cannot write {key!r}"
        await self.folder.when_writing(doing, partial(self._replace, doing, require_key(key), index, data))

    async def forget_uploads(self, key: str) -> None:
        doing = f"cannot clear away unfinished copies of {key!r}"
        await self.folder.when_writing(doing, partial(self._clear, require_key(key)))

    async def delete(self, key: str) -> None:
        await self.folder.when_writing(f"cannot delete {key!r}", partial(self._delete, require_key(key)))

    def growing(self, key: str) -> Path:
        """A new name for a file that grows of a segment."""
        return self.incoming / f"{_segment_of(key)}.{self.clock.new_uuid().hex}"

    def _try(self) -> None:
        self.folder.make(self.incoming)
        trial = self.growing("trial")
        self.folder.files.write(trial, b"trial")
        trial.unlink()

    def _replace(self, doing: str, key: str, index: IndexType, data: bytes) -> None:
        path, target = self.growing(key), self.folder.root / f"{key}{index}"
        with self.folder.made(self.incoming, doing=doing):
            self.folder.files.write(path, data)
            path.rename(target)
            sync_folder(target.parent)

    def _delete(self, key: str) -> None:
        paths = [self.folder.root / f"{key}{suffix}" for suffix in ALL_SUFFIXES]
        if len(delete_files(paths)) < len(paths):
            raise WalObjectStoreError(f"cannot delete all of {key!r}; the log of this broker says why")
        self._clear(key)

    def _clear(self, key: str) -> None:
        """Remove what grew of a segment."""
        beginning = f"{_segment_of(key)}."
        with suppress(FileNotFoundError):
            for left_over in self.incoming.iterdir():
                if left_over.name.startswith(beginning):
                    left_over.unlink(missing_ok=True)


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
        path = self._store.growing(self._key)
        with self._folder.made(self._store.incoming, doing=self._doing):
            self._log = self._folder.files.create(path)
        self._growing[LOG] = path

    def _publish(self, indexes: Mapping[IndexType, bytes]) -> None:
        target = self._folder.root / self._key
        with self._folder.made(self._store.incoming, target.parent, doing=self._doing):
            self._opened.finish(self._size)
            for index, data in indexes.items():
                path = self._growing[index] = self._store.growing(self._key)
                self._folder.files.write(path, data)
            for suffix in (*indexes, LOG):
                self._growing[suffix].rename(target.with_name(target.name + suffix))
            sync_folder(target.parent)
        self._clear()

    def _clear(self) -> None:
        """Close the log, and remove what has not got its name."""
        if self._log is not None:
            self._log.close()
        for path in self._growing.values():
            path.unlink(missing_ok=True)

    @property
    def _opened(self) -> GrowingFile:
        if self._log is None:
            raise WalObjectStoreError(f"{self._doing}: it is not open")
        return self._log


def _segment_of(key: str) -> str:
    return key.rpartition("/")[2]

"""A compaction job whose objects and segments are files: for engines that work in other processes of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree

from diskless_core.clock import SystemClock
from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
)
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.segment_compaction import BackendSources
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, ObjectNotFoundError, WalObjectStore
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.testing.compaction_job import CUSTOM_METADATA, NO_RETRIES, SOME_RETRIES, FakeCompactionJob
from diskless_core.testing.fakes.remote_storage import StoredSegment, access_denied, unavailable
from diskless_core.testing.patience import within

POLL_S = 0.02

_LOG = ".log"


class FolderObjects(WalObjectStore):
    """WAL objects as files, to be read only."""

    is_node_local = True
    is_process_local = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        try:
            return (self._folder / key).read_bytes()[start:end]
        except FileNotFoundError:
            raise ObjectNotFoundError(key) from None

    def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        raise AssertionError(f"an engine has no need to list {prefix!r}")

    async def put(self, key: str, data: ObjectData) -> None:
        raise AssertionError(f"an engine must not write {key!r} ({len(data)} bytes)")

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        raise AssertionError(f"an engine must not delete {keys!r}")


class FolderSegments(RemoteStorage):
    """Segments as files. What it should do wrong is told by files too, so that it is done once among all processes.

    In the folder `faults`: each file `refuse-*` makes one copy fail for good, each `fail-*` one that a retry can help,
    each `straggle-*` one wait until another copy of the same segment is there; while `hold` is there, no copy ends, and
    those that wait have made `held`.
    """

    is_node_local = True
    is_process_local = False
    can_replace_index = True
    copies_may_overlap = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._faults = folder / "faults"
        self._clock = SystemClock()

    async def start(self) -> None:
        try:
            self._faults.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RemoteStorageError(f"cannot use {self._folder}: {error}", retriable=False) from error

    async def stop(self) -> None:
        """Nothing to do."""

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        log = b"".join([bytes(piece) async for piece in data.log()])
        files = {_LOG: log, **{index.value: bytes(content) for index, content in data.indexes().items()}}
        assert len(log) == metadata.segment_size_bytes
        while (self._faults / "hold").exists():
            (self._faults / "held").touch()
            await asyncio.sleep(POLL_S)
        if self._happens("straggle"):
            while not self._path(metadata, _LOG).exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(POLL_S)
        if self._happens("refuse"):
            raise access_denied()
        if self._happens("fail"):
            raise unavailable()
        growing = self._folder / f"growing-{self._clock.new_uuid().hex}"  # two attempts may write at once
        for suffix, content in files.items():
            growing.write_bytes(content)
            growing.replace(self._path(metadata, suffix))
        return CUSTOM_METADATA

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        return self._read(metadata, _LOG)[start:end]

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        return self._read(metadata, index)

    async def replace_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType, data: bytes) -> None:
        assert metadata.custom_metadata == CUSTOM_METADATA, "it comes without what its copy returned"
        self._path(metadata, index).write_bytes(data)

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        for suffix in (_LOG, *IndexType):
            self._path(metadata, suffix).unlink(missing_ok=True)

    def stored(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment | None:
        """What is there of a segment."""
        try:
            log = self._read(metadata, _LOG)
        except RemoteStorageError:
            return None
        there = [index for index in IndexType if self._path(metadata, index).exists()]
        indexes = {index: self._path(metadata, index).read_bytes() for index in there}
        return StoredSegment(log, indexes, is_complete=True)

    def _path(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> Path:
        return self._folder / f"{metadata.segment_id.id.hex}{suffix}"

    def _read(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> bytes:
        try:
            return self._path(metadata, suffix).read_bytes()
        except FileNotFoundError:
            raise RemoteResourceNotFoundError(f"there is no {suffix} of {metadata.segment_id}") from None

    def _happens(self, fault: str) -> bool:
        for marker in self._faults.glob(f"{fault}-*"):
            try:
                marker.unlink()
            except FileNotFoundError:
                continue
            return True
        return False


class FolderCompactionJob(FakeCompactionJob):
    """A `FakeCompactionJob` in a folder of its own, which it makes.

    Args:
        backoff: how the backends in other processes retry.
    """

    def __init__(self, folder: Path, *, parallel_partitions: int = 2, backoff: Backoff = NO_RETRIES) -> None:
        self.folder = folder
        self._backoff = backoff
        self.faults = folder / "segments" / "faults"
        super().__init__(parallel_partitions=parallel_partitions)

    def _make_backends(self) -> None:
        self.faults.mkdir(parents=True)
        sources = partial(FolderObjects, self.folder / "objects"), partial(FolderSegments, self.folder / "segments")
        self.backends = BackendSources(objects=sources[0], remote_storage=sources[1], backoff=self._backoff)
        self.stored_objects = _Files(self.folder / "objects")
        self.objects = sources[0]()
        self.folder_segments = sources[1]()
        self.remote_storage = self.folder_segments

    def stored(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment | None:
        return self.folder_segments.stored(metadata)

    def refuse_next_copy(self) -> None:
        (self.faults / "refuse-1").touch()

    def begin_next_copy_anew(self) -> None:
        (self.faults / "fail-1").touch()
        self._retry(self.folder_segments, SOME_RETRIES)

    @asynccontextmanager
    async def while_copying(self, engine: asyncio.Task[None]) -> AsyncIterator[None]:
        (self.faults / "hold").touch()
        try:
            async with within("a copy gets to its end"):
                while not (self.faults / "held").exists():
                    assert not engine.done()
                    await asyncio.sleep(POLL_S)
            yield
        finally:
            (self.faults / "hold").unlink()

    def remove(self) -> None:
        """Remove the folder."""
        rmtree(self.folder)


class _Files(MutableMapping[str, bytes]):
    """The files of a folder by their path in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, key: str) -> bytes:
        try:
            return (self._folder / key).read_bytes()
        except FileNotFoundError:
            raise KeyError(key) from None

    def __setitem__(self, key: str, value: bytes) -> None:
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)

    def __delitem__(self, key: str) -> None:
        (self._folder / key).unlink()

    def __iter__(self) -> Iterator[str]:
        return (str(path.relative_to(self._folder)) for path in self._folder.rglob("*") if path.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)

"""Remote storages that faulty ones are made from: in memory, and in the files of a folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.folders import sync_folder
from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
)
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage, Operation, StoredSegment
from diskless_core.testing.lost_folder import taken_by_a_file
from diskless_core.testing.power_cut import SyncedFiles
from diskless_core.testing.remote_storage import RemoteStorageContract
from diskless_core.testing.remote_storage_failures import BreakStorage, MakeStorage
from diskless_core.testing.remote_storage_tools import MEBIBYTE
from tests.kit.fault import Fault, MakeSuite

NOUN = "remote_storage"
PASSWORD = "correct-horse"
LOG = ".log"

Place = dict[RemoteLogSegmentId, StoredSegment]


class InMemory(MemoryRemoteStorage):
    """Several on one place, as the brokers of a cluster have them."""

    custom: ClassVar[bytes | None] = None

    def __init__(self, place: Place) -> None:
        super().__init__(custom_metadata=self.custom)
        self.segments = place


class WithCustomMetadata(InMemory):
    """Finds a segment only with what its copy returned."""

    custom = b"where it is"


class Unreachable(InMemory):
    """One whose place is not there."""

    async def start(self):
        raise RemoteStorageError("cannot be reached: check the address")


class InFolder(RemoteStorage):
    """Segments as files that grow under a passing name, are synced, renamed, and synced with the folder."""

    is_node_local = True
    is_process_local = False
    can_replace_index = True
    copies_may_overlap = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self.pool: ThreadPoolExecutor | None = None

    async def start(self) -> None:
        self.pool = self.pool or ThreadPoolExecutor(2, thread_name_prefix="segments")
        await self.run(partial(self.folder.mkdir, parents=True, exist_ok=True))

    async def stop(self) -> None:
        pool, self.pool = self.pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown)

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        growing = self.folder / f"{self.name(metadata)}.{self.clock.new_uuid().hex}.growing"
        try:
            file = await self.run(partial(growing.open, "wb"))
            try:
                await self.write_log(file, data)
                for index, content in data.indexes().items():
                    await self.run(self.replace_file, metadata, index, bytes(content))
                await self.run(self.finish, file)
            finally:
                await self.run(file.close)
            await self.run(self.publish, growing, metadata)
        finally:
            await self.run(partial(growing.unlink, missing_ok=True))
        return None

    async def write_log(self, file: BinaryIO, data: LogSegmentData) -> None:
        async for piece in data.log():
            await self.run(file.write, piece)

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        return await self.run(self.read, metadata, LOG, start, end)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        return await self.run(self.read, metadata, index, 0, 1 << 40)

    async def replace_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType, data: bytes) -> None:
        await self.run(self.replace_file, metadata, index, data)

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self.run(self.remove, metadata)

    # --- on threads --------------------------------------------------------------------------------------------------

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do what blocks, to its end also when this is cancelled."""
        if self.pool is None:
            raise RemoteStorageError("it is not started", retriable=False)
        doing = asyncio.get_running_loop().run_in_executor(self.pool, work, *arguments)
        try:
            return await self.settled(doing)
        except FileNotFoundError as error:
            raise RemoteResourceNotFoundError("there is no such segment, or it has no such index") from error
        except OSError as error:
            raise RemoteStorageError(f"the folder cannot be used: {error}") from error

    async def settled(self, doing: asyncio.Future[Any]) -> Any:
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            await asyncio.wait([doing])
            raise

    def read(self, metadata: RemoteLogSegmentMetadata, suffix: str, start: int, end: int) -> bytes:
        path = self.path(metadata, suffix)
        with path.open("rb") as file:
            file.seek(start)
            return file.read(max(0, min(end, path.stat().st_size) - start))

    def finish(self, file: BinaryIO) -> None:
        file.flush()
        self.sync(file)

    def sync(self, file: BinaryIO) -> None:
        os.fsync(file.fileno())

    def publish(self, growing: Path, metadata: RemoteLogSegmentMetadata) -> None:
        growing.replace(self.path(metadata, LOG))
        self.sync_names()

    def sync_names(self) -> None:
        sync_folder(self.folder)

    def replace_file(self, metadata: RemoteLogSegmentMetadata, suffix: str, content: bytes) -> None:
        growing = self.folder / f"{self.name(metadata)}.{self.clock.new_uuid().hex}.growing"
        with growing.open("wb") as file:
            file.write(content)
            self.finish(file)
        growing.replace(self.path(metadata, suffix))
        self.sync_names()

    def remove(self, metadata: RemoteLogSegmentMetadata) -> None:
        for found in os.listdir(self.folder):  # noqa: PTH208 - Path.glob keeps quiet about what it cannot read
            if found.startswith(f"{self.name(metadata)}."):
                (self.folder / found).unlink(missing_ok=True)

    def name(self, metadata: RemoteLogSegmentMetadata) -> str:
        return metadata.segment_id.id.hex

    def path(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> Path:
        return self.folder / f"{self.name(metadata)}{suffix}"


def memory_suite(made: type[InMemory], unreachable: type[InMemory] = Unreachable) -> MakeSuite:
    """The suite for storages that share what is in memory."""

    class Suite(RemoteStorageContract):
        secrets = (PASSWORD,)
        large_log_bytes = 2 * MEBIBYTE

        @pytest.fixture
        def make_storage(self) -> MakeStorage:
            place: Place = {}
            return lambda: made(place)

        @pytest.fixture
        def make_unreachable_storage(self) -> MakeStorage:
            return lambda: unreachable({})

        @pytest.fixture
        def break_storage(self) -> BreakStorage:
            return broken

    return lambda: Suite


def folder_suite(made: type[InFolder]) -> MakeSuite:
    """The suite for storages that share a folder."""

    class Suite(RemoteStorageContract):
        large_log_bytes = 2 * MEBIBYTE
        most_copy_memory_bytes = 2 * MEBIBYTE

        @pytest.fixture
        def folder(self, tmp_path: Path) -> Path:
            return tmp_path / "segments"

        @pytest.fixture
        def make_storage(self, folder: Path) -> MakeStorage:
            return lambda: made(folder)

        @pytest.fixture
        def make_unreachable_storage(self, tmp_path: Path) -> MakeStorage:
            (tmp_path / "file").touch()
            return lambda: made(tmp_path / "file")

        @pytest.fixture
        def break_storage(self) -> BreakStorage:
            return replaced_by_a_file

        @pytest.fixture
        def synced_files(self, folder: Path) -> SyncedFiles:
            return SyncedFiles(folder)

    return lambda: Suite


@asynccontextmanager
async def broken(storage: RemoteStorage) -> AsyncIterator[None]:
    """Every call fails."""
    assert isinstance(storage, MemoryRemoteStorage)
    with ExitStack() as stack:
        for operation in Operation:
            stack.enter_context(storage.failing(operation))
        yield


def replaced_by_a_file(storage: RemoteStorage) -> AbstractAsyncContextManager[None]:
    """Where the folder was is a file."""
    assert isinstance(storage, InFolder)
    return taken_by_a_file(storage.folder)


def memory_fault(name: str, made: type[InMemory], promise: str) -> Fault:
    """A fault of one in memory; what is wrong is its docstring."""
    return Fault(noun=NOUN, name=name, says=_says(made), promise=promise, suite=memory_suite(made))


def start_fault(name: str, unreachable: type[InMemory], promise: str) -> Fault:
    """A fault of one whose place is not there."""
    says, suite = _says(unreachable), memory_suite(InMemory, unreachable)
    return Fault(noun=NOUN, name=name, says=says, promise=promise, suite=suite)


def folder_fault(name: str, made: type[InFolder], promise: str) -> Fault:
    """A fault of one in a folder; what is wrong is its docstring."""
    return Fault(noun=NOUN, name=name, says=_says(made), promise=promise, suite=folder_suite(made))


def _says(made: type[RemoteStorage]) -> str:
    return (made.__doc__ or "").strip()

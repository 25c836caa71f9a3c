"""Object stores that faulty ones are made from: in memory, and on a folder whose files are put in place when whole."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.folders import make_folder, sync_folder
from diskless_core.plugin.wal_object_store import (
    ObjectInfo,
    ObjectNotFoundError,
    WalObjectStore,
    WalObjectStoreError,
)
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation, access_denied, timed_out
from diskless_core.testing.power_cut import SyncedFiles
from diskless_core.testing.wal_object_store import WalObjectStoreContract
from diskless_core.testing.wal_object_store_failures import DisturbBackend, MakeObjectStore
from diskless_core.testing.wal_object_store_tools import ObjectBackDoor
from tests.kit.fault import Fault, MakeSuite

NOUN = "wal_object_store"
PASSWORD = "correct-horse"
PAGE_OBJECTS = 10
TIMEOUT_S = 0.05

BLOCKED_S = 0.06
"""So long a call that blocks keeps the event loop waiting."""

CLOCK = SystemClock()


class MemoryStore(MemoryWalObjectStore):
    """In memory. `shared_with` gives another instance of the same objects; the place can be made to hang."""

    is_hung = False

    def __init__(self) -> None:
        super().__init__(CLOCK, page_objects=PAGE_OBJECTS)

    def shared_with(self) -> MemoryStore:
        other = type(self)()
        other.objects, other._modified_ms = self.objects, self._modified_ms
        return other

    def _called(self, operation: Operation):
        return self.hanging() if self.is_hung else super()._called(operation)

    @asynccontextmanager
    async def hanging(self) -> AsyncIterator[None]:
        await asyncio.sleep(TIMEOUT_S)
        raise timed_out()
        yield


class Unopenable(MemoryStore):
    """One whose place is not there."""

    async def start(self) -> None:
        raise WalObjectStoreError("cannot be reached: check the address")


class FolderStore(WalObjectStore):
    """Each object is a file of `root`; what is not whole yet is in `incoming`. Subclasses get a step wrong."""

    is_node_local = True
    is_process_local = False
    incoming: ClassVar[str] = ".incoming"

    def __init__(self, root: Path) -> None:
        self.root = root

    async def start(self) -> None:
        await self.run(self.prepare)

    async def stop(self) -> None:
        """Nothing to do."""

    async def put(self, key, data):
        await self.run(partial(self.write, self.root / key, bytes(data)))

    async def get(self, key, start, end):
        try:
            return (await self.run((self.root / key).read_bytes))[start:end]
        except WalObjectStoreError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError | IsADirectoryError):
                raise ObjectNotFoundError(key) from None
            raise

    async def list(self, prefix=""):
        found = iter(await self.run(self.walk))
        chosen = (info for info in found if info.key.startswith(prefix))
        while page := list(islice(chosen, PAGE_OBJECTS)):
            yield page

    async def delete(self, keys):
        return [key for key in keys if await self.run(partial(self.remove, self.root / key))]

    async def run(self, work):
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise WalObjectStoreError(f"{error.strerror}: check the folder") from error

    def prepare(self) -> None:
        make_folder(self.root / self.incoming)
        for left_over in (self.root / self.incoming).iterdir():
            left_over.unlink()

    def write(self, path: Path, data: bytes) -> None:
        growing = self.root / self.incoming / CLOCK.new_uuid().hex
        make_folder(path.parent)
        with growing.open("wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())
        growing.replace(path)
        sync_folder(path.parent)

    def walk(self) -> list[ObjectInfo]:
        found = []
        for path in self.root.rglob("*"):
            with suppress(FileNotFoundError):
                if path.is_file() and path.relative_to(self.root).parts[0] != self.incoming:
                    status = path.stat()
                    modified_ms = status.st_mtime_ns // 1_000_000
                    found.append(ObjectInfo(str(path.relative_to(self.root)), status.st_size, modified_ms))
        return found

    def remove(self, path: Path) -> bool:
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        sync_folder(path.parent)
        return True


class MemoryBackDoor(ObjectBackDoor):
    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    def write(self, key: str, data: bytes) -> None:
        self.store._store(key, data)

    def read(self, key: str) -> bytes | None:
        found = self.store.objects.get(key)
        return None if found is None else bytes(found)

    def protect(self, key: str) -> None:
        self.store.objects = _Guarded(self.store.objects, key)


class _Guarded(dict[str, bytes]):
    """Does not give one of them away."""

    def __init__(self, objects: dict[str, bytes], kept: str) -> None:
        super().__init__(objects)
        self.kept = kept

    def pop(self, key: str, *default: Any) -> Any:
        if key == self.kept:
            raise access_denied()
        return super().pop(key, *default)


class FolderBackDoor(ObjectBackDoor):
    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, key: str, data: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def read(self, key: str) -> bytes | None:
        path = self.root / key
        return path.read_bytes() if path.is_file() else None


class _Suite(WalObjectStoreContract):
    secrets = (PASSWORD,)
    page_objects = PAGE_OBJECTS
    large_object_bytes = 1 << 20


def memory_suite(backend: type[MemoryStore], unopenable: type[MemoryStore] = Unopenable) -> MakeSuite:
    """The suite for one that keeps objects in its instances."""

    class Suite(_Suite):
        writes_on_condition = True

        @pytest.fixture
        def store(self) -> WalObjectStore:
            return backend()

        @pytest.fixture
        def back_door(self, store: MemoryStore) -> ObjectBackDoor:
            return MemoryBackDoor(store)

        @pytest.fixture
        def make_store(self, store: MemoryStore) -> MakeObjectStore:
            return store.shared_with

        @pytest.fixture
        def unopenable_store(self) -> WalObjectStore:
            return unopenable()

        @pytest.fixture
        def fail_backend(self, store: MemoryStore) -> DisturbBackend:
            @asynccontextmanager
            async def fail() -> AsyncIterator[None]:
                with ExitStack() as failing:
                    for operation in Operation:
                        failing.enter_context(store.failing(operation))
                    yield

            return fail

        @pytest.fixture
        def hang_backend(self, store: MemoryStore) -> DisturbBackend:
            @asynccontextmanager
            async def hang() -> AsyncIterator[None]:
                store.is_hung = True
                yield
                store.is_hung = False

            return hang

    return lambda: Suite


def folder_suite(backend: type[FolderStore]) -> MakeSuite:
    """The suite for one on a folder."""

    class Suite(_Suite):
        @pytest.fixture
        def make_store(self, tmp_path: Path) -> MakeObjectStore:
            return lambda: backend(tmp_path / "objects")

        @pytest.fixture
        def store(self, make_store: MakeObjectStore) -> WalObjectStore:
            return make_store()

        @pytest.fixture
        def back_door(self, tmp_path: Path) -> ObjectBackDoor:
            return FolderBackDoor(tmp_path / "objects")

        @pytest.fixture
        def synced_files(self, tmp_path: Path) -> SyncedFiles:
            return SyncedFiles(tmp_path / "objects")

    return lambda: Suite


def fault(name: str, backend: type[WalObjectStore], promise: str) -> Fault:
    """A fault of a backend; what is wrong is its docstring."""
    suite = folder_suite(backend) if issubclass(backend, FolderStore) else memory_suite(backend)
    return Fault(noun=NOUN, name=name, says=(backend.__doc__ or "").strip(), promise=promise, suite=suite)


def start_fault(name: str, unopenable: type[MemoryStore], promise: str) -> Fault:
    """A fault of one whose place is not there."""
    suite = memory_suite(MemoryStore, unopenable)
    return Fault(noun=NOUN, name=name, says=(unopenable.__doc__ or "").strip(), promise=promise, suite=suite)

"""Coordinator stores that faulty ones are made from: in memory, and in files that are replaced with every write."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from diskless_core.plugin.coordinator_store import CoordinatorStore, ShardStore, TableSpec
from diskless_core.plugin.shard import ShardId
from diskless_core.testing.coordinator_store import CoordinatorStoreContract, MakeStore
from diskless_core.testing.fakes.store import MemoryCoordinatorStore, MemoryShardStore, _MemoryShard
from tests.kit.fault import Fault, MakeSuite

NOUN = "coordinator_store"


class OpensAs(MemoryCoordinatorStore):
    """A store in memory whose open shards are of a class of the subclass's own."""

    opened: ClassVar[type[MemoryShardStore]] = MemoryShardStore

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        super().open(shard, tables)
        return self.opened(self._shards[shard])


class FileShardStore(MemoryShardStore):
    """Has the content of a shard in a file, which a write replaces."""

    path: Path

    def write(self, changes, applied_offset):
        super().write(changes, applied_offset)
        self.save()

    def clear(self):
        super().clear()
        self.save()

    def save(self) -> None:
        replace_file(self.path, pickle.dumps(self._open_shard()))


class FileStore(MemoryCoordinatorStore):
    """Keeps each shard in a file."""

    opened: ClassVar[type[FileShardStore]] = FileShardStore

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> FileShardStore:
        path = self.folder / str(shard)
        kept = self.load(path)
        if kept is not None:
            self._shards[shard] = kept
        super().open(shard, tables)
        store = self.opened(self._shards[shard])
        store.path = path
        return store

    def load(self, path: Path) -> _MemoryShard | None:
        return pickle.loads(path.read_bytes()) if path.exists() else None


def replace_file(path: Path, content: bytes) -> None:
    """Write a file beside it, and put it in its place."""
    beside = path.with_suffix(".new")
    beside.write_bytes(content)
    beside.replace(path)


def memory_suite(backend: type[CoordinatorStore]) -> MakeSuite:
    """The suite for one that keeps what it has in its instance."""

    class Suite(CoordinatorStoreContract):
        @pytest.fixture
        def make_store(self) -> MakeStore:
            return partial(_itself, backend())

    return lambda: Suite


def file_suite(backend: type[FileStore]) -> MakeSuite:
    """The suite for one that survives a kill in files of a folder."""

    class Suite(CoordinatorStoreContract):
        survives_kill = True

        @pytest.fixture
        def make_store(self, tmp_path: Path) -> MakeStore:
            return partial(backend, tmp_path)

    return lambda: Suite


def memory_fault(name: str, opened: type[MemoryShardStore], promise: str) -> Fault:
    """A fault of the open store of a shard; what is wrong is its docstring."""
    backend = type(opened.__name__, (OpensAs,), {"opened": opened, "__doc__": opened.__doc__})
    return backend_fault(name, backend, promise)


def backend_fault(name: str, backend: type[CoordinatorStore], promise: str) -> Fault:
    """A fault of a backend; what is wrong is its docstring."""
    suite = file_suite(backend) if issubclass(backend, FileStore) else memory_suite(backend)
    return Fault(noun=NOUN, name=name, says=(backend.__doc__ or "").strip(), promise=promise, suite=suite)


def _itself(store):
    return store

"""Disks for coordinator stores that a test can copy, put back and wipe, and a store that fails when told to."""

from __future__ import annotations

import copy
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Protocol, Self

from diskless_core.plugin.coordinator_store import (
    CoordinatorStore,
    CoordinatorStoreError,
    Key,
    Row,
    ShardStore,
    StoreView,
    TableChanges,
    TableSpec,
)
from diskless_core.plugin.shard import ShardId
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from diskless_sqlite.store import SqliteCoordinatorStore


class Disk(Protocol):
    """What a store keeps. A copy is as it was at that moment, whatever is written later."""

    @property
    def store(self) -> CoordinatorStore: ...

    def copy(self) -> Self: ...

    def empty(self) -> Self:
        """A new one."""
        ...


class MemoryDisk:
    """For the memory store."""

    def __init__(self, store: MemoryCoordinatorStore | None = None) -> None:
        self.store = store or MemoryCoordinatorStore()

    def copy(self) -> MemoryDisk:
        return MemoryDisk(copy.deepcopy(self.store))

    def empty(self) -> MemoryDisk:
        return MemoryDisk()


class SqliteDisk:
    """For the `sqlite` store: a folder of its own below `root`, which the caller removes in the end."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folder = Path(tempfile.mkdtemp(dir=root))
        self.store = SqliteCoordinatorStore(self.folder)

    def copy(self) -> SqliteDisk:
        """Through SQLite: to open and close its files by ourselves would release the locks of whoever has them open."""
        other = self.empty()
        for path in self.folder.glob("*.db"):
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(other.folder / path.name)) as target:
                source.backup(target)
        return other

    def empty(self) -> SqliteDisk:
        return SqliteDisk(self._root)


class FailingStore(CoordinatorStore):
    """A store that refuses writes while `failing` and reads while `unreadable`, and whose disk can be exchanged.

    Attributes:
        disk: what is opened by the next process.
        writes: how many were done.
    """

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk: Disk = disk or MemoryDisk()
        self.failing = False
        self.unreadable = False
        self.writes = 0
        self._opened: list[_FailingShardStore] = []

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        opened = _FailingShardStore(self, self.disk.store.open(shard, tables))
        self._opened.append(opened)
        return opened

    def cut_off(self) -> None:
        """The process that uses the store is no more: what it still tries has no effect."""
        for opened in self._opened:
            opened.cut_off()
        self._opened.clear()


class _FailingShardStore(ShardStore):
    def __init__(self, owner: FailingStore, opened: ShardStore) -> None:
        self._owner = owner
        self._store = opened
        self._cut_off = False

    def cut_off(self) -> None:
        self._cut_off = True
        self._store.close()

    def applied_offset(self) -> int:
        return self._readable().applied_offset()

    def get(self, table: str, key: Key) -> Row | None:
        return self._readable().get(table, key)

    def scan(
        self,
        table: str,
        start: Key = (),
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        return self._readable().scan(table, start, end, limit=limit, reverse=reverse)

    def snapshot(self) -> AbstractContextManager[StoreView]:
        return self._readable().snapshot()

    def write(self, changes: Mapping[str, TableChanges], applied_offset: int) -> None:
        self._writable().write(changes, applied_offset)
        self._owner.writes += 1

    def clear(self) -> None:
        self._writable().clear()

    def close(self) -> None:
        if not self._cut_off:
            self._store.close()

    def _readable(self) -> ShardStore:
        if self._cut_off or self._owner.unreadable:
            raise CoordinatorStoreError("injected: the disk cannot be read")
        return self._store

    def _writable(self) -> ShardStore:
        if self._cut_off or self._owner.failing:
            raise CoordinatorStoreError("injected: the disk is full")
        return self._store

"""Stores that go wrong over time: snapshots, shards, reopening, crashes, what is left behind."""

from __future__ import annotations

import pickle
import threading
from functools import partial

import pytest

from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.testing.coordinator_store import CoordinatorStoreContract, MakeStore
from diskless_core.testing.fakes.store import (
    MemoryCoordinatorStore,
    MemoryShardStore,
    MemorySnapshot,
    _MemoryShard,
    _MemoryTable,
)
from tests.kit.fault import Fault, Unfound
from tests.kit.store_backends import NOUN, FileShardStore, FileStore, backend_fault, memory_fault, replace_file


class SnapshotIsAlive(MemoryShardStore):
    """A snapshot shows later writes."""

    def snapshot(self):
        return MemorySnapshot(self._open_shard())


class SnapshotIsTakenLater(MemoryShardStore):
    """A snapshot is of the moment at which it is entered."""

    def snapshot(self):
        store = self

        class Later(MemorySnapshot):
            def __enter__(self):
                self._shard = store._open_shard().copy()
                return self

        return Later(self._open_shard())


class SnapshotHasTheLiveOffset(MemoryShardStore):
    """A snapshot has the rows of its moment and the applied offset of now."""

    def snapshot(self):
        store = self

        class Beside(MemorySnapshot):
            def applied_offset(self):
                return store.applied_offset()

        return Beside(self._open_shard().copy())


class SnapshotEndsWithClear(MemoryShardStore):
    """A snapshot is empty once the store was cleared."""

    def __init__(self, shard: _MemoryShard) -> None:
        super().__init__(shard)
        self.taken = []

    def snapshot(self):
        copy = self._open_shard().copy()
        self.taken.append(copy)
        return MemorySnapshot(copy)

    def clear(self):
        super().clear()
        for copy in self.taken:
            copy.tables = {name: _MemoryTable(table.spec) for name, table in copy.tables.items()}


class SnapshotBelongsToItsThread(MemoryShardStore):
    """A snapshot can only be read by the thread that took it."""

    def snapshot(self):
        taken_by = threading.get_ident()

        class Owned(MemorySnapshot):
            def applied_offset(self):
                if threading.get_ident() != taken_by:
                    raise CoordinatorStoreError("this is another thread")
                return super().applied_offset()

        return Owned(self._open_shard().copy())


class OneSnapshotAtATime(MemoryShardStore):
    """A second snapshot ends the first one."""

    last = None

    def snapshot(self):
        if self.last is not None:
            self.last._closed = True
        self.last = super().snapshot()
        return self.last


class ClearKeepsTheOffset(MemoryShardStore):
    """Clearing drops the rows and leaves the applied offset."""

    def clear(self):
        offset = self.applied_offset()
        super().clear()
        self._open_shard().applied_offset = offset


class ClearForgetsATable(MemoryShardStore):
    """Clearing leaves the rows of the first table."""

    def clear(self):
        name, table = next(iter(self._open_shard().tables.items()))
        super().clear()
        self._open_shard().tables[name] = table


class ClosesOnce(MemoryShardStore):
    """A second close is an error."""

    def close(self):
        if self._closed:
            raise CoordinatorStoreError("closed already")
        super().close()


class LeavesAThread(MemoryShardStore):
    """A thread of an open store goes on when it is closed."""

    def __init__(self, shard: _MemoryShard) -> None:
        super().__init__(shard)
        threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()


class LeavesAFile(FileShardStore):
    """The file of an open store is never closed."""

    def save(self):
        super().save()
        _left_open.append(self.path.open("rb"))


_left_open = []


class ShardsOfAnIndexShareRows(MemoryCoordinatorStore):
    """A shard is told from others by its index only."""

    def open(self, shard, tables):
        return super().open(type(shard)("__one_topic", shard.index), tables)


class AllShardsShareRows(MemoryCoordinatorStore):
    """All shards have the same tables."""

    def open(self, shard, tables):
        return super().open(type(shard)(shard.topic, 0), tables)


class OneWriterAtATime(MemoryCoordinatorStore):
    """Only the thread that opened the backend's first shard can open others."""

    thread = None

    def open(self, shard, tables):
        self.thread = self.thread or threading.get_ident()
        if threading.get_ident() != self.thread:
            raise CoordinatorStoreError("opened by another thread")
        return super().open(shard, tables)


class RowsAreLostWhenReopened(FileStore):
    """A store that is opened again has lost its rows and kept the applied offset."""

    def load(self, path):
        kept = super().load(path)
        return kept and _MemoryShard({n: _MemoryTable(t.spec) for n, t in kept.tables.items()}, kept.applied_offset)


class OffsetIsLostWhenReopened(FileStore):
    """A store that is opened again begins at offset 0 and has rows."""

    def load(self, path):
        kept = super().load(path)
        return kept and _MemoryShard(kept.tables)


class _WritesAtClose(FileShardStore):
    def save(self):
        """Later."""

    def clear(self):
        super().clear()
        super().save()

    def close(self):
        if not self._closed:
            super().save()
        super().close()


class WritesAtClose(FileStore):
    """What was written comes to the disk when the store is closed, and it claims to survive a kill."""

    opened = _WritesAtClose


class OtherTablesAreTakenAsTheyAre(FileStore):
    """A store with other tables than are declared keeps its rows and its offset."""

    def open(self, shard, tables):
        store = super().open(shard, ())
        kept = self.load(store.path)
        if kept is not None:
            self._shards[shard] = kept
            for spec in tables:
                kept.tables.setdefault(spec.name, _MemoryTable(spec))
        else:
            kept = _MemoryShard({spec.name: _MemoryTable(spec) for spec in tables})
            self._shards[shard] = kept
        opened = self.opened(kept)
        opened.path = store.path
        return opened


class ANewTableEmptiesTheRest(FileStore):
    """A store to which a table is added starts empty."""

    def open(self, shard, tables):
        kept = self.load(self.folder / str(shard))
        if kept is not None and set(kept.tables) != {spec.name for spec in tables}:
            (self.folder / str(shard)).unlink()
            self._shards.pop(shard, None)
        return super().open(shard, tables)


class OrderOfTablesCounts(FileStore):
    """A store whose tables are declared in another order starts empty."""

    def open(self, shard, tables):
        kept = self.load(self.folder / str(shard))
        if kept is not None and [*kept.tables] != [spec.name for spec in tables]:
            (self.folder / str(shard)).unlink()
            self._shards.pop(shard, None)
        return super().open(shard, tables)


class _RowAfterRow(FileShardStore):
    def save(self):
        shard = self._open_shard()
        with self.path.open("wb", buffering=0) as file:
            pickle.dump(([table.spec for table in shard.tables.values()], shard.applied_offset), file)
            for name, table in shard.tables.items():
                for key in table.keys:
                    pickle.dump((name, table.rows[key]), file)


class TornWrites(FileStore):
    """A write rewrites the file in place, row after row, and what is there of it counts after a kill."""

    opened = _RowAfterRow

    def load(self, path):
        if not path.exists() or not path.stat().st_size:
            return None
        with path.open("rb") as file:
            specs, applied_offset = pickle.load(file)
            kept = _MemoryShard({spec.name: _MemoryTable(spec) for spec in specs}, applied_offset)
            while file.peek(1):
                name, row = pickle.load(file)
                kept.tables[name].put(row)
        return kept


class _OffsetApart(FileShardStore):
    def save(self):
        super().save()
        replace_file(self.path.with_suffix(".offset"), b"%d" % self.applied_offset())


class OffsetInAFileOfItsOwn(FileStore):
    """Rows and the applied offset are written one after the other."""

    opened = _OffsetApart

    def load(self, path):
        kept = super().load(path)
        apart = path.with_suffix(".offset")
        if kept is not None:
            kept.applied_offset = int(apart.read_bytes()) if apart.exists() else 0
        return kept


class _TablesApart(FileShardStore):
    def save(self):
        shard = self._open_shard()
        for name, table in shard.tables.items():
            replace_file(self.path.with_suffix("." + name), pickle.dumps(table))
        replace_file(self.path, pickle.dumps(shard))


class TablesInFilesOfTheirOwn(FileStore):
    """Each table is written apart."""

    opened = _TablesApart

    def load(self, path):
        kept = super().load(path)
        if kept is None:
            return None
        apart = {name: path.with_suffix("." + name) for name in kept.tables}
        return _MemoryShard({n: pickle.loads(p.read_bytes()) for n, p in apart.items()}, kept.applied_offset)


class CannotSayThatItCannotBeOpened(FileStore):
    """Where its folder is not one, the error of the operating system reaches the core."""


class _Unopenable(CoordinatorStoreContract):
    survives_kill = True

    @pytest.fixture
    def make_store(self, tmp_path) -> MakeStore:
        return partial(FileStore, tmp_path)

    @pytest.fixture
    def make_unopenable_store(self, tmp_path) -> MakeStore:
        (tmp_path / "file").touch()
        return partial(FileStore, tmp_path / "file")


FAULTS = (
    memory_fault("a-snapshot-shows-later-writes", SnapshotIsAlive, "a snapshot shows what was there when it was taken"),
    memory_fault("a-snapshot-is-taken-when-entered", SnapshotIsTakenLater, "a snapshot shows what was there when it"),
    memory_fault("a-snapshot-has-the-offset-of-now", SnapshotHasTheLiveOffset, "a snapshot shows what was there when"),
    memory_fault("a-snapshot-ends-with-a-clear", SnapshotEndsWithClear, "a snapshot outlives a clear"),
    memory_fault("a-snapshot-belongs-to-its-thread", SnapshotBelongsToItsThread, "is read by another thread"),
    memory_fault("one-snapshot-at-a-time", OneSnapshotAtATime, "two may exist"),
    memory_fault("clear-keeps-the-offset", ClearKeepsTheOffset, "clear drops all rows and the applied offset"),
    memory_fault("clear-forgets-a-table", ClearForgetsATable, "clear drops all rows and the applied offset"),
    memory_fault("close-works-once", ClosesOnce, "close may be called twice"),
    memory_fault("close-leaves-a-thread", LeavesAThread, "a closed store leaves no thread and no file open"),
    backend_fault(
        "close-leaves-a-file",
        type("LeavesFiles", (FileStore,), {"opened": LeavesAFile, "__doc__": LeavesAFile.__doc__}),
        "a closed store leaves no thread and no file open",
    ),
    backend_fault("kinds-of-shards-share-rows", ShardsOfAnIndexShareRows, "different kinds do not mix"),
    backend_fault("all-shards-share-rows", AllShardsShareRows, "shards know nothing of each other"),
    backend_fault("one-thread-for-all-shards", OneWriterAtATime, "from different threads at once"),
    backend_fault(
        "rows-are-lost-when-reopened", RowsAreLostWhenReopened, "content and offset are there after reopening"
    ),
    backend_fault("the-offset-is-lost-when-reopened", OffsetIsLostWhenReopened, "are there after reopening"),
    backend_fault("writes-come-to-the-disk-at-close", WritesAtClose, "killed at any time"),
    backend_fault("other-tables-are-taken-as-they-are", OtherTablesAreTakenAsTheyAre, "with other tables starts empty"),
    backend_fault("a-new-table-empties-the-rest", ANewTableEmptiesTheRest, "tables without rows come and go"),
    backend_fault("the-order-of-tables-counts", OrderOfTablesCounts, "the order in which tables are declared"),
    backend_fault("torn-writes", TornWrites, "killed at any step of a write"),
    backend_fault("the-offset-is-written-apart", OffsetInAFileOfItsOwn, "killed at any step of a write"),
    backend_fault("tables-are-written-apart", TablesInFilesOfTheirOwn, "killed at any step of a write"),
    Fault(
        noun=NOUN,
        name="an-unopenable-place-is-a-foreign-error",
        says=CannotSayThatItCannotBeOpened.__doc__ or "",
        promise="a store that cannot be opened says so",
        suite=lambda: _Unopenable,
    ),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That a power cut leaves a mixture of old and new pages.",
        reason="A suite can kill a process, but not the machine: after a kill, what the operating system had not yet "
        "written is there. Databases in C do not let a test see what they sync.",
    ),
    Unfound(
        noun=NOUN,
        says="That memory grows with the rows.",
        reason="Nothing is promised of it. `diskless plugins bench` tells how much it is.",
    ),
)

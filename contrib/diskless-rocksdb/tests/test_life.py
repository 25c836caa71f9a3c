"""Closing, snapshots beside it, waiting for a busy RocksDB, memory, settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError

from diskless_core.plugin.coordinator_store import (
    Column,
    ColumnType,
    CoordinatorStoreError,
    ShardStore,
    StoreView,
    TableChanges,
    TableSpec,
)
from diskless_core.shards import DISKLESS
from diskless_rocksdb.config import RocksdbSettings
from diskless_rocksdb.errors import ClosedError
from diskless_rocksdb.store import RocksdbCoordinatorStore, RocksdbShardStore
from diskless_rocksdb.write_buffers import WriteBuffers

MIB = 1 << 20
SHARD = DISKLESS.shard(0)
TABLE = TableSpec(name="rows", key=(Column("number", ColumnType.INTEGER),), values=(Column("data", ColumnType.BLOB),))

USES: dict[str, Callable[[ShardStore], object]] = {
    "applied_offset": lambda store: store.applied_offset(),
    "get": lambda store: store.get("rows", (1,)),
    "scan": lambda store: store.scan("rows"),
    "scan backwards": lambda store: store.scan("rows", reverse=True),
    "write": lambda store: store.write({}, 5),
    "snapshot": lambda store: store.snapshot(),
    "clear": lambda store: store.clear(),
}
READS: dict[str, Callable[[StoreView], object]] = {
    "applied_offset": lambda view: view.applied_offset(),
    "get": lambda view: view.get("rows", (1,)),
    "scan": lambda view: view.scan("rows"),
    "scan backwards": lambda view: view.scan("rows", reverse=True),
}


def put(store: ShardStore, numbers: range, offset: int, size: int = 10) -> None:
    store.write({"rows": TableChanges(put=[(number, bytes(size)) for number in numbers])}, offset)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ShardStore]:
    with closing(RocksdbCoordinatorStore(tmp_path).open(SHARD, (TABLE,))) as store:
        put(store, range(100), 1)
        yield store


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_closed_store_says_so(store: ShardStore, use: Callable[[ShardStore], object]) -> None:
    store.close()
    store.close()
    with pytest.raises(CoordinatorStoreError, match="is closed"):
        use(store)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_snapshot_ends_with_its_store_and_with_its_context(
    store: ShardStore, read: Callable[[StoreView], object]
) -> None:
    with store.snapshot() as ended:
        read(ended)
    with pytest.raises(CoordinatorStoreError, match="is closed"):
        read(ended)
    with store.snapshot() as view:
        store.close()
        with pytest.raises(CoordinatorStoreError, match="is closed"):
            read(view)


def test_a_store_is_opened_again_though_a_snapshot_of_it_was_forgotten(tmp_path: Path) -> None:
    backend = RocksdbCoordinatorStore(tmp_path)
    forgotten = []
    for _ in range(3):
        store = backend.open(SHARD, (TABLE,))
        forgotten.append(store.snapshot())
        store.close()


def test_a_store_may_be_cleared_and_closed_while_its_snapshots_are_read(tmp_path: Path) -> None:
    backend = RocksdbCoordinatorStore(tmp_path, RocksdbSettings(write_buffer_bytes=2 * MIB))
    stop = threading.Event()

    def read(view: StoreView) -> int:
        readings = 0
        while not stop.is_set():
            try:
                offset, rows = view.applied_offset(), view.scan("rows")
                some = view.scan("rows", (500,), (600,), reverse=True)
            except ClosedError:
                break
            assert (offset, [number for number, _ in rows]) == (1, list(range(2_000)))
            assert [number for number, _ in some] == list(range(599, 499, -1))
            readings += 1
        return readings

    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            store = backend.open(SHARD, (TABLE,))
            store.clear()
            put(store, range(2_000), 1)
            readers = [pool.submit(read, store.snapshot().__enter__()) for _ in range(2)]
            for offset in range(2, 8):
                put(store, range(2_000), offset, size=200)
            store.clear()
            store.close()
            for reader in readers:
                reader.result(60)
        stop.set()


def test_many_rows_that_were_cleared_do_not_slow_what_comes_after(store: ShardStore) -> None:
    for offset in range(2, 12):
        put(store, range(offset * 20_000, (offset + 1) * 20_000), offset)
    store.clear()
    put(store, range(5), 1)
    assert len(store.scan("rows")) == 5
    assert store.get("rows", (100_000,)) is None


class Busy:
    """A database that takes no write for a while."""

    def __init__(self, database: object, refusals: int) -> None:
        self._database = database
        self.refusals = refusals

    def write(self, *arguments: object) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Exception("Result incomplete: Write stall")
        self._database.write(*arguments)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)


def test_a_write_waits_for_a_busy_database(store: RocksdbShardStore) -> None:
    database = store._database
    database._open = busy = Busy(database._open, 3)  # type: ignore[assignment]
    put(store, range(100, 200), 2)
    assert busy.refusals == 0
    assert (store.applied_offset(), len(store.scan("rows"))) == (2, 200)


def test_a_write_gives_up_after_its_time_and_leaves_nothing(tmp_path: Path) -> None:
    backend = RocksdbCoordinatorStore(tmp_path, RocksdbSettings(write_timeout_ms=30))
    with closing(backend.open(SHARD, (TABLE,))) as store:
        assert isinstance(store, RocksdbShardStore)
        real = store._database._open
        store._database._open = Busy(real, 10**9)  # type: ignore[assignment]
        with pytest.raises(CoordinatorStoreError, match="takes no writes"):
            put(store, range(100), 1)
        store._database._open = real
        assert (store.applied_offset(), store.scan("rows")) == (0, [])


def test_rows_that_cannot_be_kept_are_refused_whole_and_without_their_content(store: ShardStore) -> None:
    for row in ((200, "\ud800secret"), (201, object()), (202, 2**70), (2**63, b"")):
        with pytest.raises(CoordinatorStoreError) as raised:
            store.write({"rows": TableChanges(put=[(300, b""), row])}, 9)  # type: ignore[list-item]
        assert "secret" not in str(raised.value)
    assert (store.applied_offset(), len(store.scan("rows"))) == (1, 100)


def test_a_table_that_was_not_declared_is_refused(store: ShardStore) -> None:
    for use in (lambda: store.get("other", (1,)), lambda: store.scan("other")):
        with pytest.raises(CoordinatorStoreError, match="no table 'other' was declared"):
            use()
    with pytest.raises(CoordinatorStoreError, match="no table 'other' was declared"):
        store.write({"other": TableChanges(put=[(1,)])}, 2)


def test_shards_share_the_memory_for_writes(tmp_path: Path) -> None:
    backend = RocksdbCoordinatorStore(tmp_path, RocksdbSettings(write_buffer_bytes=4 * MIB))
    stores = [backend.open(DISKLESS.shard(number), (TABLE,)) for number in range(6)]
    buffers = backend._engine.buffers
    folders = [tmp_path / str(DISKLESS.shard(number)) for number in range(6)]
    offset, tables = 0, [0] * 6
    try:
        while not all(tables):  # tables are written in the background: a shard's turn may come some writes later
            offset += 1
            assert offset < 100, tables
            for store in stores:
                put(store, range(offset * 1_000, offset * 1_000 + 1_000), offset, size=100)
                assert buffers.used_bytes < 4 * MIB
            tables = [len(list(folder.glob("*.sst"))) for folder in folders]
        assert [len(store.scan("rows")) for store in stores] == [offset * 1_000] * 6
        assert sum(tables) < 6 * offset  # fewer than writes
    finally:
        for store in stores:
            store.close()
    assert buffers.used_bytes == 0


class Flushed:
    def __init__(self) -> None:
        self.flushes = 0

    def flush_soon(self) -> None:
        self.flushes += 1


def test_the_largest_database_is_flushed_whoever_writes() -> None:
    buffers, idle, busy = WriteBuffers(1_000), Flushed(), Flushed()
    buffers.note(idle, 400)
    buffers.note(busy, 50)
    assert (idle.flushes, busy.flushes) == (0, 0)
    buffers.note(busy, 150)
    assert (idle.flushes, busy.flushes) == (1, 0)
    assert buffers.used_bytes == 150
    buffers.forget(busy)
    assert buffers.used_bytes == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"cache.bytes": 1},
        {"write.buffer.bytes": 1},
        {"max.open.files": 1},
        {"background.jobs": 0},
        {"write.timeout.ms": -1},
        {"path": "relative/folder"},
        {"wal": "off"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RocksdbSettings.model_validate(wrong)


def test_the_path_of_the_settings_is_where_the_databases_are(tmp_path: Path) -> None:
    settings = RocksdbSettings.model_validate({"path": str(tmp_path / "elsewhere")})
    RocksdbCoordinatorStore(tmp_path / "own", settings).open(SHARD, (TABLE,)).close()
    assert (tmp_path / "elsewhere" / str(SHARD) / "CURRENT").exists()
    assert not (tmp_path / "own").exists()


def test_settings_of_this_start_count_and_not_those_of_the_one_before(tmp_path: Path) -> None:
    for size in (4 * MIB, 8 * MIB):
        backend = RocksdbCoordinatorStore(tmp_path, RocksdbSettings(write_buffer_bytes=size))
        with closing(backend.open(SHARD, (TABLE,))) as store:
            put(store, range(10), 1)
    options = max((tmp_path / str(SHARD)).glob("OPTIONS-*")).read_text()
    assert f"write_buffer_size={4 * MIB}\n" in options

"""Damage is told apart from absence, and is never read as rows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import product
from pathlib import Path

import pytest

from diskless_core.plugin.coordinator_store import (
    Column,
    ColumnType,
    CoordinatorStoreError,
    Row,
    ShardStore,
    TableChanges,
    TableSpec,
)
from diskless_core.shards import DISKLESS
from diskless_rocksdb.config import RocksdbSettings
from diskless_rocksdb.errors import DamagedError
from diskless_rocksdb.store import RocksdbCoordinatorStore

SHARD = DISKLESS.shard(0)
TABLE = TableSpec(name="rows", key=(Column("number", ColumnType.INTEGER),), values=(Column("data", ColumnType.BLOB),))
WRITES = 40
ROWS_A_WRITE = 50
SMALL = RocksdbSettings(cache_bytes=1 << 20, write_buffer_bytes=2 << 20)
POSITIONS = [n / 16 for n in range(16)]

_OPEN_ELSEWHERE = """
import sys
from pathlib import Path
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.shards import DISKLESS
from diskless_rocksdb.store import RocksdbCoordinatorStore
try:
    RocksdbCoordinatorStore(Path(sys.argv[1])).open(DISKLESS.shard(0), ())
except CoordinatorStoreError as error:
    print(error)
"""


def rows_until(writes: int) -> list[Row]:
    return [(number, b"%d" % number * 20) for number in range(writes * ROWS_A_WRITE)]


def fill(store: ShardStore) -> None:
    rows = rows_until(WRITES)
    for write in range(WRITES):
        put = rows[write * ROWS_A_WRITE : (write + 1) * ROWS_A_WRITE]
        store.write({"rows": TableChanges(put=put)}, write + 1)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[], ShardStore]:
    return lambda: RocksdbCoordinatorStore(tmp_path / "store", SMALL).open(SHARD, (TABLE,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store" / str(SHARD)


@pytest.fixture
def closed(opened: Callable[[], ShardStore], folder: Path) -> Path:
    """A database whose rows are all in a table."""
    with closing(opened()) as store:
        fill(store)
    return folder


@pytest.fixture
def killed(opened: Callable[[], ShardStore], folder: Path, tmp_path: Path) -> Path:
    """A database as a killed process leaves it: all rows are in RocksDB's log."""
    with closing(opened()) as store:
        fill(store)
        shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder)
    (tmp_path / "copy").rename(folder)
    return folder


def the_one(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_size)


def flip(path: Path, position: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(position * len(data))] ^= 0x5A
    path.write_bytes(data)


def content(store: ShardStore) -> Iterator[tuple[int, list[Row]]]:
    """What can be read, in several ways; nothing where that fails."""
    readings = (
        lambda: store.scan("rows"),
        lambda: store.scan("rows", reverse=True)[::-1],
        lambda: [row for number, _ in rows_until(WRITES) if (row := store.get("rows", (number,)))],
    )
    for reading in readings:
        with suppress(DamagedError):
            yield store.applied_offset(), reading()


def test_an_absent_folder_is_an_empty_store(opened: Callable[[], ShardStore]) -> None:
    with closing(opened()) as store:
        assert (store.applied_offset(), store.scan("rows")) == (0, [])


def test_what_a_first_start_leaves_that_was_killed_is_an_empty_store(
    opened: Callable[[], ShardStore], folder: Path
) -> None:
    folder.mkdir(parents=True)
    for name in ("LOCK", "LOG", "IDENTITY", "MANIFEST-000001", "rocksdict-config.json"):
        (folder / name).touch()
    with closing(opened()) as store:
        assert (store.applied_offset(), store.scan("rows")) == (0, [])


@pytest.mark.parametrize("position", POSITIONS)
def test_a_changed_byte_of_a_table_gives_no_wrong_rows(
    opened: Callable[[], ShardStore], closed: Path, position: float
) -> None:
    flip(the_one(closed, "*.sst"), position)
    try:
        store = opened()
    except DamagedError:
        return
    with closing(store):
        for offset, rows in content(store):
            assert (offset, rows) == (WRITES, rows_until(WRITES))


@pytest.mark.parametrize("position", POSITIONS)
def test_a_changed_byte_of_the_log_leaves_the_writes_before_it_whole(
    opened: Callable[[], ShardStore], killed: Path, position: float
) -> None:
    flip(the_one(killed, "*.log"), position)
    with closing(opened()) as store:
        offset = store.applied_offset()
        assert offset < WRITES
        assert store.scan("rows") == rows_until(offset)


@pytest.mark.parametrize("position", POSITIONS[1:])
def test_a_log_that_is_cut_off_leaves_the_writes_before_it_whole(
    opened: Callable[[], ShardStore], killed: Path, position: float
) -> None:
    log = the_one(killed, "*.log")
    with log.open("r+b") as file:
        file.truncate(int(position * log.stat().st_size))
    with closing(opened()) as store:
        assert store.scan("rows") == rows_until(store.applied_offset())


@pytest.mark.parametrize(
    ("pattern", "harm"),
    [*product(["*.sst", "CURRENT"], ["gone", "empty", "half"]), ("MANIFEST-*", "gone"), ("MANIFEST-*", "empty")],
)
def test_a_file_that_is_not_as_it_was_is_an_error_that_says_what_to_do(
    opened: Callable[[], ShardStore], closed: Path, pattern: str, harm: str
) -> None:
    file = the_one(closed, pattern)
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2 if harm == "half" else 0])

    with pytest.raises(CoordinatorStoreError, match=r"is damaged .* delete this folder") as raised:
        opened().close()
    assert str(closed) in str(raised.value)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_changed_byte_of_the_manifest_is_an_error_or_does_no_harm(
    opened: Callable[[], ShardStore], closed: Path, position: float
) -> None:
    flip(the_one(closed, "MANIFEST-*"), position)
    try:
        store = opened()
    except DamagedError:
        return
    with closing(store):
        assert store.scan("rows") == rows_until(store.applied_offset())


def test_a_manifest_that_is_cut_off_gives_an_earlier_state(opened: Callable[[], ShardStore], closed: Path) -> None:
    manifest = the_one(closed, "MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[: manifest.stat().st_size // 2])
    with closing(opened()) as store:
        assert store.scan("rows") == rows_until(store.applied_offset())


def test_a_damaged_folder_that_was_deleted_is_an_empty_store(opened: Callable[[], ShardStore], closed: Path) -> None:
    the_one(closed, "*.sst").unlink()
    with pytest.raises(CoordinatorStoreError):
        opened()
    shutil.rmtree(closed)
    with closing(opened()) as store:
        assert store.applied_offset() == 0


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("in_snapshot", [False, True])
def test_an_error_that_somebody_keeps_does_not_keep_the_database_open(
    opened: Callable[[], ShardStore], closed: Path, reverse: bool, in_snapshot: bool
) -> None:
    flip(the_one(closed, "*.sst"), 0.1)
    with closing(opened()) as store, store.snapshot() as snapshot:
        view = snapshot if in_snapshot else store
        with pytest.raises(DamagedError) as kept:
            view.scan("rows", reverse=reverse)
    opened().close()
    assert kept.value.__traceback__ is not None


def test_a_folder_that_another_process_uses_is_refused(opened: Callable[[], ShardStore], tmp_path: Path) -> None:
    with closing(opened()):
        said = subprocess.run(
            [sys.executable, "-c", _OPEN_ELSEWHERE, tmp_path / "store"], capture_output=True, text=True, timeout=60
        )
        assert "is open already, in another process" in said.stdout, said.stderr
        with pytest.raises(CoordinatorStoreError, match="is open already"):
            opened()


def test_a_path_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with pytest.raises(CoordinatorStoreError, match="cannot open the database"):
        RocksdbCoordinatorStore(tmp_path / "store").open(SHARD, (TABLE,))

"""What the SQLite store promises beyond the contract: its indexes, and what it does with broken files and bad rows."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_store import (
    Column,
    ColumnType,
    CoordinatorStoreError,
    ShardStore,
    TableChanges,
    TableSpec,
)
from diskless_core.shards import DISKLESS
from diskless_sqlite.plugin import diskless_coordinator_stores
from diskless_sqlite.statements import TableStatements, create_table
from diskless_sqlite.store import SqliteCoordinatorStore

SHARD = DISKLESS.shard(3)
TABLE = TableSpec(
    name="group",
    key=(Column("topic", ColumnType.BLOB), Column("index", ColumnType.INTEGER), Column("from", ColumnType.TEXT)),
    values=(Column("value", ColumnType.INTEGER),),
)


def rows(count: int) -> TableChanges:
    return TableChanges(put=[(b"topic", number, "from", number) for number in range(count)])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ShardStore]:
    with closing(SqliteCoordinatorStore(tmp_path).open(SHARD, (TABLE,))) as store:
        yield store


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The file of a closed store with 2,000 rows."""
    with closing(SqliteCoordinatorStore(tmp_path).open(SHARD, (TABLE,))) as store:
        store.write({"group": rows(2000)}, 2000)
    return tmp_path / "__diskless_metadata-3.db"


@pytest.mark.parametrize(("start", "end", "reverse"), list(product(range(4), range(4), (False, True))))
def test_every_scan_walks_the_primary_key(start: int, end: int, reverse: bool) -> None:
    sql = TableStatements(TABLE).scan(start, end, limited=True, reverse=reverse)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(create_table(TABLE))
        parameters = [b"x"] * (start + end) + [1]
        plan = " ".join(step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters))
    assert "TEMP B-TREE" not in plan
    if start or end:
        assert plan.startswith("SEARCH group USING PRIMARY KEY")


def test_each_shard_has_a_file_named_after_it(store: ShardStore, tmp_path: Path) -> None:
    assert (tmp_path / "__diskless_metadata-3.db").is_file()


@pytest.mark.parametrize("damage", ["garbage", "middle", "first page", "truncated", "empty", "other database"])
def test_a_damaged_file_starts_empty_and_works(database: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    content = database.read_bytes()
    match damage:
        case "garbage":
            database.write_bytes(b"this is no database at all" * 1000)
        case "middle":
            middle = len(content) // 2 // 4096 * 4096
            database.write_bytes(content[:middle] + b"\xff" * 4096 + content[middle + 4096 :])
        case "first page":
            database.write_bytes(content[:100] + b"\xff" * 3000 + content[3100:])
        case "truncated":
            database.write_bytes(content[: len(content) // 2 // 4096 * 4096])
        case "empty":
            database.write_bytes(b"")
        case "other database":
            database.unlink()
            with closing(sqlite3.connect(database)) as connection:
                connection.execute("CREATE TABLE something (a)")
    with caplog.at_level(logging.WARNING), closing(SqliteCoordinatorStore(database.parent).open(SHARD, (TABLE,))) as it:
        assert it.applied_offset() == 0
        assert it.scan("group") == []
        it.write({"group": rows(3)}, 3)
        assert len(it.scan("group")) == 3
    corrupt = damage not in ("empty", "other database")
    assert any("corrupt" in record.message for record in caplog.records) == corrupt


@pytest.mark.parametrize("cut_at", [0, 33, 5000, -4000, -1])
def test_a_torn_log_leaves_every_write_whole(tmp_path: Path, cut_at: int) -> None:
    with closing(SqliteCoordinatorStore(tmp_path / "running").open(SHARD, (TABLE,))) as store:
        for number in range(1, 21):
            changes = [(b"topic", number, f"{row}", number) for row in range(10)]
            store.write({"group": TableChanges(put=list(changes))}, number)
        shutil.copytree(tmp_path / "running", tmp_path / "crashed")
    log = tmp_path / "crashed" / "__diskless_metadata-3.db-wal"
    log.write_bytes(log.read_bytes()[:cut_at])
    with closing(SqliteCoordinatorStore(tmp_path / "crashed").open(SHARD, (TABLE,))) as store:
        offset = store.applied_offset()
        assert [(row[1], row[2]) for row in store.scan("group")] == [
            (number, f"{row}") for number in range(1, offset + 1) for row in range(10)
        ]
        assert offset < 20
        assert offset == 19 or cut_at < -1 or cut_at >= 0


@pytest.mark.parametrize(
    "changes",
    [
        {"group": rows(2), "undeclared": TableChanges()},
        {"group": TableChanges(put=[(b"ok", 1, "x", 1), (b"t", "no integer", "x", 1)])},
        {"group": TableChanges(put=[(b"ok", 1, "x", 1), (b"t", None, "x", 1)])},
        {"group": TableChanges(put=[(b"ok", 1, "x", 1), (b"t", 2**63, "x", 1)])},
        {"group": TableChanges(put=[(b"ok", 1, "x", 1), (b"t", 1)])},
    ],
    ids=["undeclared table", "wrong type", "no key", "too large", "too few columns"],
)
def test_a_write_that_fails_changes_nothing(store: ShardStore, changes: dict[str, TableChanges]) -> None:
    store.write({"group": TableChanges(put=[(b"old", 1, "x", 1)])}, 1)
    with pytest.raises(CoordinatorStoreError):
        store.write(changes, 2)
    assert store.scan("group") == [(b"old", 1, "x", 1)]
    assert store.applied_offset() == 1
    store.write({"group": rows(1)}, 2)
    assert store.applied_offset() == 2


def test_reading_an_undeclared_table_is_an_error(store: ShardStore) -> None:
    with pytest.raises(CoordinatorStoreError, match="undeclared"):
        store.get("undeclared", (1,))
    with pytest.raises(CoordinatorStoreError, match="undeclared"):
        store.scan("undeclared")


def test_a_closed_store_says_so(store: ShardStore) -> None:
    store.close()
    for use in (store.applied_offset, store.clear, lambda: store.scan("group"), lambda: store.write({}, 1)):
        with pytest.raises(CoordinatorStoreError):
            use()


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CoordinatorStoreError, match="file/data"):
        SqliteCoordinatorStore(tmp_path / "file" / "data").open(SHARD, (TABLE,))


def test_the_descriptor_makes_a_store_in_the_plugins_folder(tmp_path: Path) -> None:
    (descriptor,) = diskless_coordinator_stores()
    context = PluginContext(node_id=1, data_dir=tmp_path / "data", log_dir=tmp_path, clock=SystemClock())
    backend = descriptor.factory(context, descriptor.settings())
    assert not (tmp_path / "data").exists()
    backend.open(SHARD, (TABLE,)).close()
    assert (tmp_path / "data" / "__diskless_metadata-3.db").is_file()


def test_naming_the_plugin_does_not_import_sqlite() -> None:
    code = "import sys, diskless_sqlite.plugin; sys.exit('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""What the SQLite store promises beyond the contract: its indexes, and what it does with broken files and bad rows."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
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
from diskless_sqlite import checking
from diskless_sqlite.plugin import diskless_coordinator_stores
from diskless_sqlite.statements import TableStatements, create_table
from diskless_sqlite.store import SqliteCoordinatorStore
from tests.support.waiting import wait_until

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


# --- when a database is checked ---------------------------------------------------------------------------------------


def damage(database: Path, *, keep_time: bool) -> None:
    """Overwrite a page in the middle, as a failing disk does it: the file's time stays as it was."""
    stat, content = database.stat(), bytearray(database.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = b"\xff" * 4096
    database.write_bytes(content)
    if keep_time:
        os.utime(database, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def opened_large(database: Path) -> ShardStore:
    """Open a store as one that is too large to be checked before it is used."""
    return SqliteCoordinatorStore(database.parent, checked_at_once_bytes=0).open(SHARD, (TABLE,))


def has_failed(store: ShardStore) -> bool:
    try:
        store.applied_offset()
    except CoordinatorStoreError:
        return True
    return False


def check_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("check-")]


class HeldCheck:
    """Checks wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_end = threading.Event()
        check = checking.checked

        def held(connection: sqlite3.Connection) -> str:
            assert self.may_end.wait(30)
            return check(connection)

        monkeypatch.setattr(checking, "checked", held)


def without_end(connection: sqlite3.Connection) -> str:
    connection.execute("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n")
    return "it ended"


def test_a_large_store_that_was_closed_in_order_is_used_at_once_and_checked_meanwhile(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = HeldCheck(monkeypatch)
    with closing(opened_large(database)) as store, ThreadPoolExecutor(1) as elsewhere:
        assert len(store.scan("group")) == 2000
        with store.snapshot() as view:
            store.write({"group": rows(3)}, 2003)
            reading = elsewhere.submit(view.applied_offset)
            with pytest.raises(TimeoutError):
                reading.result(0.05)
            check.may_end.set()
            assert reading.result(30) == 2000


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_snapshot_of_a_store_that_turns_out_damaged_or_is_closed_unchecked_is_not_read(
    database: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    """Other brokers would load it."""
    if is_damaged:
        damage(database, keep_time=True)
    else:
        monkeypatch.setattr(checking, "checked", without_end)
    with closing(opened_large(database)) as store, store.snapshot() as view, ThreadPoolExecutor(1) as elsewhere:
        reading = elsewhere.submit(view.applied_offset)
        if not is_damaged:
            store.close()
        with pytest.raises(CoordinatorStoreError, match="is damaged" if is_damaged else "was closed before"):
            reading.result(30)


def test_a_large_store_that_is_found_damaged_fails_from_then_on_and_starts_empty_when_it_is_opened_again(
    database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(database, keep_time=True)
    with closing(opened_large(database)) as store:
        wait_until(lambda: has_failed(store), "the check finds the damage")
        for use in (
            lambda: store.get("group", (b"topic", 1, "from")),
            lambda: store.scan("group"),
            lambda: store.write({"group": rows(1)}, 2001),
            store.clear,
        ):
            with pytest.raises(CoordinatorStoreError, match=r"is damaged .* restart the broker"):
                use()
    assert any("is damaged" in record.message for record in caplog.records)
    with closing(opened_large(database)) as store:
        assert store.applied_offset() == 0
        assert store.scan("group") == []


def test_a_large_store_whose_process_was_killed_is_checked_before_it_is_used(database: Path, tmp_path: Path) -> None:
    with closing(opened_large(database)):
        shutil.copytree(database.parent, tmp_path / "crashed")
    damage(tmp_path / "crashed" / database.name, keep_time=True)
    with closing(opened_large(tmp_path / "crashed" / database.name)) as store:
        assert store.applied_offset() == 0


@pytest.mark.parametrize("change", ["page", "size", "log"])
def test_a_large_store_that_was_changed_after_it_was_closed_is_checked_before_it_is_used(
    database: Path, change: str
) -> None:
    match change:
        case "page":
            damage(database, keep_time=False)
        case "size":
            stat = database.stat()
            database.write_bytes(database.read_bytes()[:-4096])
            os.utime(database, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        case "log":
            damage(database, keep_time=True)
            database.with_name(f"{database.name}-wal").touch()
    with closing(opened_large(database)) as store:
        assert store.applied_offset() == 0


def test_a_small_store_is_checked_before_it_is_used_in_any_case(database: Path) -> None:
    damage(database, keep_time=True)
    with closing(SqliteCoordinatorStore(database.parent).open(SHARD, (TABLE,))) as store:
        assert store.applied_offset() == 0


def test_a_store_that_sqlite_finds_damaged_while_it_is_read_is_checked_before_it_is_used_again(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(database, keep_time=True)
    with monkeypatch.context() as patch:
        patch.setattr(checking, "checked", without_end)
        with closing(opened_large(database)) as store, pytest.raises(CoordinatorStoreError, match="malformed"):
            store.scan("group")
    with closing(opened_large(database)) as store:
        assert store.applied_offset() == 0


def test_a_store_that_is_closed_while_it_is_checked_leaves_no_thread_and_is_checked_the_next_time(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checking, "checked", without_end)
        with closing(opened_large(database)):
            assert check_threads()
        assert not check_threads()
    with closing(opened_large(database)) as store:
        wait_until(lambda: not check_threads(), "the check ends")
        assert store.applied_offset() == 2000


def io_error() -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
    return error


class FailingCheck:
    """The first checks fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception, failures: int) -> None:
        self.tries = 0
        check = checking.checked

        def failing(connection: sqlite3.Connection) -> str:
            self.tries += 1
            if self.tries <= failures:
                raise error
            return check(connection)

        monkeypatch.setattr(checking, "checked", failing)


def test_snapshots_of_many_stores_that_are_being_checked_do_not_all_hold_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [DISKLESS.shard(index) for index in range(4)]
    for shard in shards:
        with closing(SqliteCoordinatorStore(tmp_path).open(shard, (TABLE,))) as store:
            store.write({"group": rows(20)}, 20)
    check = HeldCheck(monkeypatch)
    with ExitStack() as stack:
        elsewhere = stack.enter_context(ThreadPoolExecutor(len(shards)))
        large = SqliteCoordinatorStore(tmp_path, checked_at_once_bytes=0)
        stores = [stack.enter_context(closing(large.open(shard, (TABLE,)))) for shard in shards]
        views = [stack.enter_context(store.snapshot()) for store in stores]
        stack.callback(check.may_end.set)
        readings = [elsewhere.submit(view.applied_offset) for view in views]
        wait_until(lambda: sum(reading.done() for reading in readings) == 2, "two do not wait")
        refused = [reading for reading in readings if reading.done()]
        for reading in refused:
            with pytest.raises(CoordinatorStoreError, match="still being checked for damage: try again"):
                reading.result()
        check.may_end.set()
        assert [reading.result(30) for reading in readings if reading not in refused] == [20, 20]
        wait_until(lambda: not check_threads(), "the checks end")
        assert [view.applied_offset() for view in views] == [20] * 4


def test_a_store_stays_in_use_when_its_check_fails_for_another_reason_than_damage(
    database: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checking, "CHECK_PAUSE_S", 0.01)
    check = FailingCheck(monkeypatch, io_error(), failures=2)
    with closing(opened_large(database)) as store, store.snapshot() as view:
        assert view.applied_offset() == 2000
        assert store.applied_offset() == 2000
    assert check.tries == 3
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


@pytest.mark.parametrize(("error", "tries"), [(io_error(), 3), (MemoryError(), 3), (RuntimeError(), 1)])
def test_a_store_whose_check_always_fails_is_given_up_and_checked_before_it_is_used_again(
    database: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, tries: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checking, "CHECK_PAUSE_S", 0.01)
        check = FailingCheck(patch, error, failures=1000)
        with closing(opened_large(database)) as store, store.snapshot() as view, ThreadPoolExecutor(1) as elsewhere:
            with pytest.raises(CoordinatorStoreError, match=r"could not be checked for damage .* restart the broker"):
                elsewhere.submit(view.applied_offset).result(30)
            with pytest.raises(CoordinatorStoreError, match="could not be checked for damage"):
                store.applied_offset()
        assert check.tries == tries
    with closing(opened_large(database)) as store:
        assert not check_threads(), "it was checked before"
        assert store.applied_offset() == 2000, "nothing was lost"


def test_a_store_is_closed_at_once_while_its_check_waits_for_another_try(
    database: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checking, "CHECK_PAUSE_S", 600.0)
    FailingCheck(monkeypatch, io_error(), failures=1)
    with ThreadPoolExecutor(1) as elsewhere:
        store = opened_large(database)
        wait_until(lambda: bool(caplog.records), "the check fails")
        elsewhere.submit(store.close).result(30)
    assert not check_threads()


def test_a_mark_without_its_database_is_none(database: Path) -> None:
    for _ in range(2):
        database.unlink()
        with closing(opened_large(database)) as store:
            assert store.applied_offset() == 0
            database.unlink()
        database.touch()


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

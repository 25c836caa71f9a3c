"""`diskless store`: what is in the databases, read by SQL, and whether they are whole."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from diskless_core.cli.main import main
from diskless_core.plugin.coordinator_store import Column, ColumnType, TableChanges, TableSpec
from diskless_core.plugin.shard import ShardId
from diskless_sqlite import commands
from diskless_sqlite.store import SqliteCoordinatorStore

SHARD = ShardId("__shard", 0)
TABLE = TableSpec(
    name="file",
    key=(Column("id", ColumnType.INTEGER),),
    values=(Column("name", ColumnType.TEXT), Column("packed", ColumnType.BLOB)),
)
ROWS = [(number, f"file {number}", bytes([number])) for number in range(200)]


@contextmanager
def open_store(log_dirs):
    """A store that is open as long as a broker runs, and part of it still in SQLite's own log."""
    store = SqliteCoordinatorStore(log_dirs / "coordinator_store" / "sqlite")
    shard = store.open(SHARD, [TABLE])
    shard.write({"file": TableChanges(put=ROWS)}, 7)
    yield
    shard.close()


@pytest.fixture
def folder(tmp_path):
    """The `log.dirs` of a broker that is running."""
    with open_store(tmp_path):
        yield tmp_path


def database(folder: Path) -> Path:
    return folder / "coordinator_store" / "sqlite" / f"{SHARD}.db"


def call(folder, *arguments, code=0):
    result = CliRunner().invoke(main, ["store", *map(str, arguments), "-o", f"log.dirs={folder}"])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


def test_tables_are_listed_with_their_rows_and_how_far_the_log_was_applied(folder):
    assert json.loads(call(folder, "tables", "-f", "json")) == [
        {"shard": str(SHARD), "table": "file", "rows": 200, "applied_offset": 7}
    ]


def test_rows_are_chosen_sorted_and_written_in_each_format(folder):
    chosen = ("rows", SHARD, "file", "--where", "id < 4", "--order", "id desc", "--limit", "2", "--offset", "1")
    assert json.loads(call(folder, *chosen, "-f", "json")) == [
        {"id": 2, "name": "file 2", "packed": "02"},
        {"id": 1, "name": "file 1", "packed": "01"},
    ]
    assert list(csv.reader(io.StringIO(call(folder, *chosen, "-f", "csv")))) == [
        ["id", "name", "packed"],
        ["2", "file 2", "02"],
        ["1", "file 1", "01"],
    ]
    assert [line.split() for line in call(folder, *chosen).splitlines()][2:] == [
        ["2", "file", "2", "02"],
        ["1", "file", "1", "01"],
    ]
    assert len(json.loads(call(folder, "rows", SHARD, "file", "-f", "json"))) == 100
    assert len(json.loads(call(folder, "rows", SHARD, "file", "-f", "json", "--limit", "0"))) == 200


def test_a_query_takes_parameters_and_may_find_nothing(folder):
    count = ("query", SHARD, "SELECT count(*) AS n FROM file WHERE name LIKE :like")
    assert json.loads(call(folder, *count, "-p", "like=file 19%", "-f", "json")) == [{"n": 11}]
    assert json.loads(call(folder, "query", SHARD, "SELECT id FROM file WHERE id > 999", "-f", "json")) == []


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM file",
        "CREATE TABLE other (id)",
        "ATTACH '{}' AS other",
        "SELECT * FROM file; DELETE FROM file",
        "VACUUM INTO '{}'",
        "",
    ],
)
def test_what_a_query_could_break_stays_whole(folder, tmp_path, sql):
    other = tmp_path / "other.db"
    result = CliRunner().invoke(main, ["store", "query", str(SHARD), sql.format(other), "-o", f"log.dirs={folder}"])
    assert not other.exists()
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    with sqlite3.connect(database(folder)) as connection:
        assert connection.execute("SELECT count(*) FROM file").fetchone() == (200,)
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (2,)
    connection.close()


def test_a_mistake_in_sql_is_told_in_a_line(folder):
    assert "no such table: absent" in call(folder, "query", SHARD, "SELECT * FROM absent", code=1)


def test_what_is_left_out_is_told(folder):
    def cut(*arguments):
        result = CliRunner().invoke(main, ["store", *map(str, arguments), "-o", f"log.dirs={folder}"])
        return len(result.stdout.splitlines()), result.stderr

    every = "WITH n AS (SELECT a.id + 200 * b.id AS id FROM file a, file b) SELECT id FROM n WHERE id < {}"
    told = "there are more than these {}: --limit 0 writes all\n"
    assert cut("rows", SHARD, "file", "-f", "csv") == (101, told.format(100))
    assert cut("rows", SHARD, "file", "-f", "csv", "--limit", 200) == (201, "")
    assert cut("query", SHARD, every.format(1001)) == (1002, told.format(1000))
    assert cut("query", SHARD, every.format(1000)) == (1002, "")
    assert cut("query", SHARD, every.format(1001), "--limit", 0) == (1003, "")
    assert cut("query", SHARD, every.format(1001), "-f", "csv") == (1002, "")
    assert cut("query", SHARD, every.format(3), "-f", "csv", "--limit", 2) == (3, told.format(2))


def test_nothing_is_left_beside_the_stores_of_a_broker_that_is_stopped(tmp_path):
    with open_store(tmp_path):
        pass
    database(tmp_path).parent.chmod(0o555)
    before = [(path, path.read_bytes()) for path in database(tmp_path).parent.iterdir()]

    assert json.loads(call(tmp_path, "tables", "-f", "json"))[0]["rows"] == 200
    assert json.loads(call(tmp_path, "verify", "-f", "json")) == [{"shard": str(SHARD), "result": "ok"}]

    assert [(path, path.read_bytes()) for path in database(tmp_path).parent.iterdir()] == before


def test_a_broker_that_starts_while_its_store_is_read_is_noticed(tmp_path):
    with open_store(tmp_path):
        pass
    with pytest.raises(typer.Exit), commands._opened(database(tmp_path)), open_store(tmp_path):
        pass


def test_a_shard_may_be_called_as_operators_call_it(tmp_path):
    store = SqliteCoordinatorStore(tmp_path / "coordinator_store" / "sqlite")
    store.open(ShardId("__diskless_metadata", 0), [TABLE]).close()
    assert json.loads(call(tmp_path, "tables", "diskless-0", "-f", "json")) == [
        {"shard": "__diskless_metadata-0", "table": "file", "rows": 0, "applied_offset": 0}
    ]


def test_a_database_file_needs_no_configured_store(folder, tmp_path):
    copy = tmp_path / "copy.db"
    with sqlite3.connect(database(folder)) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    for command in (["tables", copy], ["rows", copy, "file"], ["verify", copy]):
        call(tmp_path / "elsewhere", *command)


def test_the_schema_is_shown_of_all_tables_or_of_one(folder):
    assert call(folder, "schema", SHARD, "file").startswith('CREATE TABLE "file"')
    assert "_meta" in call(folder, "schema", SHARD)
    assert "it has file" in call(folder, "schema", SHARD, "fil", code=1)


def test_a_damaged_store_is_noticed(folder):
    assert json.loads(call(folder, "verify", "-f", "json")) == [{"shard": str(SHARD), "result": "ok"}]
    damaged = folder / "coordinator_store" / "sqlite" / "damaged.db"
    with sqlite3.connect(damaged) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 500,)] * 100)
    connection.close()
    content = bytearray(damaged.read_bytes())
    content[8192:12288] = b"\xff" * 4096
    damaged.write_bytes(content)

    result = CliRunner().invoke(main, ["store", "verify", "-f", "json", "-o", f"log.dirs={folder}"])

    assert result.exit_code == 1
    assert {row["shard"]: row["result"] == "ok" for row in json.loads(result.stdout)} == {
        str(SHARD): True,
        "damaged": False,
    }
    assert "coordinator rebuild" in result.stderr


def test_a_shard_that_is_not_there_and_a_folder_without_stores_are_told(folder, tmp_path):
    assert f"there are {SHARD}" in call(folder, "schema", "__shard", code=1)
    assert "there is no store in" in call(tmp_path / "elsewhere", "tables", code=1)


def test_the_hook_does_not_import_the_commands():
    code = "import sys, diskless_sqlite.plugin; sys.exit('sqlite_utils' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

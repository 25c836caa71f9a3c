"""The store `first_coordinator_store`: rows as ordered pairs of a key and a value, in one SQLite file.

It is laid out as for a key-value library, such as LMDB: replace the few SQL statements by yours, and keep `rows.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from diskless_core.plugin.context import PluginContext
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

from diskless_first_coordinator_store.rows import declared, decode_row, encode_key, encode_row
from diskless_first_coordinator_store.settings import FirstCoordinatorStoreSettings

_SCHEMA = """
CREATE TABLE IF NOT EXISTS declared (name TEXT PRIMARY KEY, columns TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS pairs (name TEXT, key BLOB, row TEXT NOT NULL, PRIMARY KEY (name, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS applied (only INTEGER PRIMARY KEY CHECK (only = 0), "offset" INTEGER NOT NULL) STRICT;
INSERT OR IGNORE INTO applied VALUES (0, 0);
"""


class FirstCoordinatorStoreStore(CoordinatorStore):
    """One file for each shard. All calls for a shard come from one thread: nothing here needs to be asynchronous."""

    def __init__(self, context: PluginContext, settings: FirstCoordinatorStoreSettings) -> None:
        """A factory does no I/O: the folder may not exist yet."""
        self._folder = context.data_dir
        self._cache_bytes = settings.cache_bytes

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        path = self._folder / f"{shard}.db"
        with _errors_of(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            connection = _connect(path)
            try:
                connection.execute(f"PRAGMA cache_size = {-(self._cache_bytes // 1024)}")
                connection.execute("PRAGMA journal_mode = WAL")  # snapshots read while writes go on
                # The log has everything, so that a write need not be durable at return. It must never be torn.
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.executescript(_SCHEMA)
                _fit(connection, tables)
            except BaseException:
                connection.close()
                raise
        return FirstCoordinatorStoreShardStore(path, connection, tables)


class FirstCoordinatorStoreView(StoreView):
    """Reads through one connection."""

    def __init__(self, path: Path, connection: sqlite3.Connection, tables: Sequence[TableSpec]) -> None:
        self._path = path
        self._connection = connection
        self._tables = {table.name: table for table in tables}

    def applied_offset(self) -> int:
        with _errors_of(self._path):
            return int(self._connection.execute('SELECT "offset" FROM applied').fetchone()[0])

    def get(self, table: str, key: Key) -> Row | None:
        with _errors_of(self._path):
            statement = "SELECT row FROM pairs WHERE name = ? AND key = ?"
            found = self._connection.execute(statement, (self._spec(table).name, encode_key(key))).fetchone()
        return decode_row(found[0]) if found else None

    def scan(
        self,
        table: str,
        start: Key = (),
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        # `start` is inclusive, `end` is not, and both may be prefixes of a key: so are their encodings.
        statement = "SELECT row FROM pairs WHERE name = ? AND key >= ?"
        parameters: list[object] = [self._spec(table).name, encode_key(start)]
        if end is not None:
            statement += " AND key < ?"
            parameters.append(encode_key(end))
        statement += f" ORDER BY key {'DESC' if reverse else 'ASC'} LIMIT ?"
        with _errors_of(self._path):
            rows = self._connection.execute(statement, (*parameters, -1 if limit is None else limit))
            return [decode_row(row) for (row,) in rows]

    def _spec(self, table: str) -> TableSpec:
        if table not in self._tables:
            raise CoordinatorStoreError(f"no table {table!r} was declared")
        return self._tables[table]


class FirstCoordinatorStoreShardStore(FirstCoordinatorStoreView, ShardStore):
    """The view that can be written."""

    def write(self, changes: Mapping[str, TableChanges], applied_offset: int) -> None:
        with _errors_of(self._path), _transaction(self._connection) as run:
            for table, change in changes.items():
                spec = self._spec(table)
                for key in change.delete:
                    run.execute("DELETE FROM pairs WHERE name = ? AND key = ?", (table, encode_key(key)))
                for row in change.put:
                    pair = (table, encode_key(row[: len(spec.key)]), encode_row(row))
                    run.execute("INSERT OR REPLACE INTO pairs VALUES (?, ?, ?)", pair)
            # In the same transaction: an offset ahead of the rows would lose records for ever.
            run.execute('UPDATE applied SET "offset" = ?', (applied_offset,))

    def snapshot(self) -> AbstractContextManager[StoreView]:
        with _errors_of(self._path):
            connection = _connect(self._path)
            try:
                connection.execute("BEGIN")
                connection.execute('SELECT "offset" FROM applied').fetchone()  # the first read fixes the moment
            except BaseException:
                connection.close()
                raise
        view = FirstCoordinatorStoreView(self._path, connection, list(self._tables.values()))
        return _closing(view, connection)

    def clear(self) -> None:
        with _errors_of(self._path), _transaction(self._connection) as run:
            run.execute("DELETE FROM pairs")
            run.execute('UPDATE applied SET "offset" = 0')

    def close(self) -> None:
        self._connection.close()


def _fit(connection: sqlite3.Connection, tables: Sequence[TableSpec]) -> None:
    """Add what is missing, drop what is not declared and empty; start empty where anything else differs."""
    wanted = {table.name: declared(table) for table in tables}
    with _transaction(connection) as run:
        found = dict(run.execute("SELECT name, columns FROM declared").fetchall())
        filled = {name for (name,) in run.execute("SELECT DISTINCT name FROM pairs")}
        if filled - wanted.keys() or any(found[name] != wanted[name] for name in found.keys() & wanted.keys()):
            run.execute("DELETE FROM pairs")
            run.execute('UPDATE applied SET "offset" = 0')
        run.execute("DELETE FROM declared")
        run.executemany("INSERT INTO declared VALUES (?, ?)", wanted.items())


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _closing(view: StoreView, connection: sqlite3.Connection) -> Iterator[StoreView]:
    try:
        yield view
    finally:
        connection.close()


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Raise the noun's own error in the place of the library's: the broker can handle that."""
    try:
        yield
    except (OSError, sqlite3.Error, OverflowError) as error:
        hint = "check the folder and its free space, or stop the broker and delete the file: the log fills it again"
        raise CoordinatorStoreError(f"{path}: {error}; {hint}") from error

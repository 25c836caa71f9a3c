"""The `sqlite` coordinator store: a database file for each shard, written in grouped transactions."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

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
from diskless_sqlite.checking import (
    SOUND,
    CheckBesideUse,
    ClosedMark,
    Soundness,
    checked,
    connect,
    is_corruption,
)
from diskless_sqlite.statements import TableStatements, any_row, create_table, drop_table

logger = logging.getLogger(__name__)

LAYOUT_VERSION = 1
"""Part of what a database declares: one of another layout starts empty."""

PAGE_BYTES = 4096

CHECKED_AT_ONCE_BYTES = 64 << 20
"""A database up to this size is checked before it is used in any case: that takes 0.1 s."""

_META_DDL = "CREATE TABLE _meta (declaration TEXT NOT NULL, applied_offset INTEGER NOT NULL) STRICT"


class SqliteCoordinatorStore(CoordinatorStore):
    """Keeps each shard in `<data_dir>/<shard>.db`.

    A transaction survives a killed process whole. After a power loss the last ones may be missing, but those that are
    there are whole as well: `synchronous=NORMAL` syncs SQLite's log before it is copied into the database. OFF would be
    a third faster, but could leave a mixture of old and new pages that no check can tell from a good database.

    A database is checked before it is used. A large one that was closed in order, and has not changed since, is checked
    while it is used: if it is damaged it fails from then on, and snapshots are not read before.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        cache_bytes: int = 16 * 1024 * 1024,
        checkpoint_bytes: int = 16 * 1024 * 1024,
        checked_at_once_bytes: int = CHECKED_AT_ONCE_BYTES,
    ) -> None:
        self._data_dir = data_dir
        self._checked_at_once_bytes = checked_at_once_bytes
        self._pragmas = (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=NORMAL",
            f"PRAGMA cache_size={-(cache_bytes // 1024)}",
            f"PRAGMA wal_autocheckpoint={checkpoint_bytes // PAGE_BYTES}",
            "PRAGMA cell_size_check=ON",  # finds a damaged page when it is read
        )

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        path = self._data_dir / f"{shard}.db"
        declaration = _declaration(tables)
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            was_closed = ClosedMark(path).take()
            is_checked_later = was_closed and path.stat().st_size > self._checked_at_once_bytes
            connection = self._open_filled(path, tables, is_checked_later=is_checked_later)
            if connection is None:
                connection, is_checked_later = self._create(path, declaration, tables), False
            soundness = CheckBesideUse(path) if is_checked_later else Soundness(path)
        except (OSError, sqlite3.Error) as error:
            raise CoordinatorStoreError(
                f"cannot open {path}: {error}; check that the folder can be written and has free space, "
                "or delete the file: it is filled again from the log"
            ) from error
        return SqliteShardStore(path, connection, tables, soundness)

    def _open_filled(
        self, path: Path, tables: Sequence[TableSpec], *, is_checked_later: bool
    ) -> sqlite3.Connection | None:
        """Open what is there, or return None when there is nothing that can be used."""
        if not path.exists():
            return None
        connection = connect(path)
        try:
            self._configure(connection)
            check = SOUND if is_checked_later else checked(connection)
            fits = check == SOUND and _made_to_fit(connection, tables)
        except sqlite3.DatabaseError as error:
            connection.close()
            if not is_corruption(error):
                raise
            check, fits = str(error), False
        if fits:
            return connection
        connection.close()
        if check != SOUND:
            logger.warning("%s is corrupt (%s): it starts empty and is filled again from the log", path, check)
        else:
            logger.info("%s holds other tables than are declared now: it starts empty", path)
        return None

    def _create(self, path: Path, declaration: str, tables: Sequence[TableSpec]) -> sqlite3.Connection:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        connection = connect(path)
        try:
            self._configure(connection)
            with _transaction(connection):
                connection.execute(_META_DDL)
                for spec in tables:
                    connection.execute(create_table(spec))
                connection.execute("INSERT INTO _meta VALUES (?, 0)", (declaration,))
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: sqlite3.Connection) -> None:
        for pragma in self._pragmas:
            connection.execute(pragma)


class _SqliteView(StoreView):
    """Reads through one connection."""

    def __init__(
        self, connection: sqlite3.Connection, statements: Mapping[str, TableStatements], soundness: Soundness
    ) -> None:
        self._connection = connection
        self._soundness = soundness
        self._statements = statements
        self._scans: dict[tuple[str, int, int, bool, bool], str] = {}

    def applied_offset(self) -> int:
        self._require_sound()
        try:
            (offset,) = self._connection.execute("SELECT applied_offset FROM _meta").fetchone()
        except sqlite3.Error as error:
            self._soundness.note(error)
            raise CoordinatorStoreError(f"cannot read the store: {error}") from error
        return int(offset)

    def get(self, table: str, key: Key) -> Row | None:
        rows = self._query(self._of(table).get, key)
        return rows[0] if rows else None

    def scan(
        self,
        table: str,
        start: Key = (),
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        if end == ():
            return []
        shape = (table, len(start), len(end or ()), limit is not None, reverse)
        sql = self._scans.get(shape)
        if sql is None:
            _, start_columns, end_columns, limited, _ = shape
            sql = self._of(table).scan(start_columns, end_columns, limited=limited, reverse=reverse)
            self._scans[shape] = sql
        return self._query(sql, (*start, *(end or ()), *(() if limit is None else (limit,))))

    def _of(self, table: str) -> TableStatements:
        try:
            return self._statements[table]
        except KeyError:
            raise CoordinatorStoreError(f"no table {table!r} was declared") from None

    def _require_sound(self) -> None:
        self._soundness.require_no_damage()

    def _query(self, sql: str, parameters: Key = ()) -> list[Row]:
        self._require_sound()
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except (sqlite3.Error, OverflowError) as error:
            self._soundness.note(error)
            raise CoordinatorStoreError(f"cannot read the store: {error}") from error


class SqliteShardStore(_SqliteView, ShardStore):
    """One shard's open database."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        tables: Sequence[TableSpec],
        soundness: Soundness,
    ) -> None:
        super().__init__(connection, {spec.name: TableStatements(spec) for spec in tables}, soundness)
        self._path = path
        self._is_closed = False

    def write(self, changes: Mapping[str, TableChanges], applied_offset: int) -> None:
        self._soundness.require_no_damage()
        try:
            with _transaction(self._connection):
                for table, change in changes.items():
                    statements = self._of(table)
                    self._connection.executemany(statements.delete, change.delete)
                    self._connection.executemany(statements.put, change.put)
                self._connection.execute("UPDATE _meta SET applied_offset = ?", (applied_offset,))
        except (sqlite3.Error, OverflowError) as error:
            self._soundness.note(error)
            raise CoordinatorStoreError(f"cannot write to {self._path}: {error}") from error

    def snapshot(self) -> SqliteSnapshot:
        try:
            snapshot = SqliteSnapshot(connect(self._path), self._statements, self._soundness)
            snapshot.begin()
        except sqlite3.Error as error:
            raise CoordinatorStoreError(f"cannot take a snapshot of {self._path}: {error}") from error
        return snapshot

    def clear(self) -> None:
        self._soundness.require_no_damage()
        try:
            with _transaction(self._connection):
                for statements in self._statements.values():
                    self._connection.execute(statements.clear)
                self._connection.execute("UPDATE _meta SET applied_offset = 0")
        except sqlite3.Error as error:
            self._soundness.note(error)
            raise CoordinatorStoreError(f"cannot clear {self._path}: {error}") from error

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._soundness.give_up_check()
        self._connection.close()
        self._soundness.closed()


class SqliteSnapshot(_SqliteView):
    """The database at one instant, held by a read transaction of its own connection until the context ends.

    Its reads wait until the database has been checked: other brokers load what they are given. A few snapshots in a
    process wait; the reads of others fail, and can be tried again.
    """

    def begin(self) -> None:
        """Fix the point in time. SQLite does so at a transaction's first read, not at BEGIN."""
        try:
            self._connection.execute("BEGIN")
            self._connection.execute("SELECT applied_offset FROM _meta").fetchone()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> StoreView:
        return self

    def _require_sound(self) -> None:
        self._soundness.wait_until_checked()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _declaration(tables: Sequence[TableSpec]) -> str:
    described = [
        [spec.name, *([[column.name, column.type.value] for column in part] for part in (spec.key, spec.values))]
        for spec in tables
    ]
    return json.dumps([LAYOUT_VERSION, sorted(described)])


def _made_to_fit(connection: sqlite3.Connection, tables: Sequence[TableSpec]) -> bool:
    """Add the tables that are missing and drop those that are too many and empty. Whether the rest is as declared."""
    declaration = _declaration(tables)
    found = _read_declaration(connection)
    if found is None or found == declaration:
        return found is not None
    (found_layout, found_tables), (layout, declared_tables) = json.loads(found), json.loads(declaration)
    present = {table[0]: table for table in found_tables}
    declared = {table[0]: table for table in declared_tables}
    added, dropped = declared.keys() - present.keys(), present.keys() - declared.keys()
    if found_layout != layout or any(present[name] != declared[name] for name in present.keys() & declared.keys()):
        return False
    with _transaction(connection):
        if any(connection.execute(any_row(name)).fetchone() for name in dropped):
            return False
        for name in dropped:
            connection.execute(drop_table(name))
        for spec in tables:
            if spec.name in added:
                connection.execute(create_table(spec))
        connection.execute("UPDATE _meta SET declaration = ?", (declaration,))
    return True


def _read_declaration(connection: sqlite3.Connection) -> str | None:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = '_meta'").fetchone() is None:
        return None
    row = connection.execute("SELECT declaration FROM _meta").fetchone()
    return None if row is None else str(row[0])

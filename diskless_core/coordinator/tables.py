"""The state of a shard as tables of immutable values, with what is pending laid over what is committed.

A command changes state through a `Transaction`. Its writes are laid over the committed state while its log entry
is on the way, become committed when the entry was read back, and are forgotten when it was not. Nothing here knows
a log, a store or a clock: it is pure. (KIP-1164, "How operations are performed", steps 3 and 6.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from diskless_core.coordinator.grouped_rows import GroupedRows
from diskless_core.plugin.coordinator_store import TableChanges, TableSpec

V = TypeVar("V")

Key = tuple[Any, ...]
"""The key columns of a row. As the table declares them, which the type checker does not know."""

Row = tuple[Any, ...]
"""All columns of a row, key columns first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table(Generic[V]):
    """One kind of entity.

    Attributes:
        spec: how the store sees it.
        encode: the value columns of a value.
        decode: the value back from a whole row, key columns first.
        resident: whether all rows live in memory. Of the others, memory has only what the store lacks.
        grouped: whether rows of a resident table are found by all their key columns but the last, at the cost of what
            is found. Those of other tables are looked for among all rows.
    """

    spec: TableSpec
    encode: Callable[[V], tuple[Any, ...]]
    decode: Callable[[Row], V]
    resident: bool = True
    grouped: bool = False

    @property
    def name(self) -> str:
        return self.spec.name

    def row(self, key: Key, value: V) -> Row:
        return key + self.encode(value)

    def entity(self, row: Row) -> tuple[Key, V]:
        width = len(self.spec.key)
        return row[:width], self.decode(row)


Writes = Mapping[Table[Any], Mapping[Key, Any]]
"""What a command did: for each table, the new value of each key that it touched; None where it was deleted."""


class Reader(Protocol):
    """What operations and replay may read."""

    def get(self, table: Table[V], key: Key) -> V | None: ...

    def keys(self, table: Table[Any], prefix: Key) -> Iterator[Key]:
        """Keys of a resident table that begin with `prefix`.

        The cost follows the table's size. Where it is grouped, and the prefix is all columns but the last, it follows
        what is found.
        """
        ...


class Transaction:
    """Reads through to a base, keeps its own writes on top. Whoever made it decides what becomes of them."""

    __slots__ = ("_base", "writes")

    def __init__(self, base: Reader) -> None:
        self._base = base
        self.writes: dict[Table[Any], dict[Key, Any]] = {}

    def get(self, table: Table[V], key: Key) -> V | None:
        own = self.writes.get(table)
        if own is not None and key in own:
            return cast("V | None", own[key])
        return self._base.get(table, key)

    def keys(self, table: Table[Any], prefix: Key) -> Iterator[Key]:
        own = self.writes.get(table, {})
        yield from (key for key in self._base.keys(table, prefix) if key not in own)
        yield from [key for key, value in own.items() if value is not None and key[: len(prefix)] == prefix]

    def put(self, table: Table[V], key: Key, value: V) -> None:
        self.of(table)[key] = value

    def of(self, table: Table[V]) -> dict[Key, V | None]:
        """This transaction's own writes of a table, to put many into."""
        own = self.writes.get(table)
        if own is None:
            own = self.writes[table] = {}
        return own

    def delete(self, table: Table[Any], key: Key) -> None:
        self.writes.setdefault(table, {})[key] = None


class Page:
    """What some entries in a row did, for the store to take in one transaction.

    Attributes:
        commit_count: how many commits went into it.
        row_count: rows in all tables.
        size_bytes: of these entries in the log.
        applied_offset: everything in the log below it is in this page or in one before; set when the page is closed.
    """

    __slots__ = ("applied_offset", "commit_count", "row_count", "rows", "size_bytes")

    def __init__(self, tables: Iterable[Table[Any]]) -> None:
        self.rows: dict[Table[Any], dict[Key, Any]] = {table: {} for table in tables}
        self.commit_count = 0
        self.row_count = 0
        self.size_bytes = 0
        self.applied_offset = -1

    def changes(self) -> dict[str, TableChanges]:
        """The rows as the store wants them. A page that is closed never changes: any thread may ask for it."""
        return {table.name: _changes(table, layer) for table, layer in self.rows.items() if layer}


class State:
    """Committed values, pending ones over them, and what the store has not got yet, in pages.

    Attributes:
        unstored_rows: rows of pages that the store may lack, those on their way to it included. A row counts once in
            each page that has it.
        unstored_bytes: of the log, that made these pages.
    """

    def __init__(self, tables: Iterable[Table[Any]]) -> None:
        self.tables: tuple[Table[Any], ...] = tuple(tables)
        self._committed: dict[Table[Any], MutableMapping[Key, Any]] = {table: _no_rows(table) for table in self.tables}
        self._pending: dict[Table[Any], dict[Key, tuple[int, Any]]] = {table: {} for table in self.tables}
        self._pages: list[Page] = [Page(self.tables)]  # the newest, which is open, comes first
        self.unstored_rows = 0
        self.unstored_bytes = 0

    def load(self, table: Table[Any], rows: Iterable[Row]) -> None:
        """Take a resident table's rows from the store, at start."""
        self._committed[table].update(table.entity(row) for row in rows)

    def replace(self, rows: Mapping[Table[Any], Iterable[Row]]) -> Writes:
        """Take the rows of all resident tables from a store that was filled anew, and forget everything else.

        Returns what has changed in them.
        """
        self.forget_pending()
        self._pages = [Page(self.tables)]
        self.unstored_rows = self.unstored_bytes = 0
        writes: dict[Table[Any], dict[Key, Any]] = {}
        for table, stored in rows.items():
            before, after = self._committed[table], _no_rows(table)
            after.update(map(table.entity, stored))
            changed = {key: value for key, value in after.items() if before.get(key) != value}
            gone = dict.fromkeys(key for key in before if key not in after)
            writes[table] = {**gone, **changed}
            self._committed[table] = after
        return writes

    # --- reading -------------------------------------------------------------------------------------------------

    def get(self, table: Table[V], key: Key) -> V | None:
        """The speculative value: what it will be when everything pending has committed.

        Of a table that is not resident this knows only what memory has; see `Flusher.prefetch`.
        """
        pending = self._pending[table].get(key)
        if pending is not None:
            return cast("V | None", pending[1])
        if table.resident:
            return cast("V | None", self._committed[table].get(key))
        return self.in_memory(table, key)[1]

    def knows(self, table: Table[Any], key: Key) -> bool:
        """Whether what `get` says holds whatever the store has."""
        return key in self._pending[table] or self.in_memory(table, key)[0]

    def committed(self, table: Table[V], key: Key) -> V | None:
        """The value that clients may be told of. Of a table that is not resident: what memory has of it."""
        if table.resident:
            return cast("V | None", self._committed[table].get(key))
        return self.in_memory(table, key)[1]

    def in_memory(self, table: Table[V], key: Key) -> tuple[bool, V | None]:
        """Whether memory knows more of a key than the store does, and then its value, None when deleted."""
        for page in self._pages:
            layer = page.rows[table]
            if key in layer:
                return True, cast("V | None", layer[key])
        committed = self._committed[table]
        return (True, cast("V | None", committed[key])) if key in committed else (False, None)

    def rows(self, table: Table[V]) -> Iterator[tuple[Key, V]]:
        """All committed values of a resident table."""
        return iter(list(self._committed[table].items()))

    def row_count(self, table: Table[Any]) -> int:
        """How many committed rows a resident table has."""
        return len(self._committed[table])

    def keys(self, table: Table[Any], prefix: Key) -> Iterator[Key]:
        """Keys of a resident table, as they will be when everything pending has committed; see `Reader.keys`."""
        pending = self._pending[table]
        yield from (key for key in self.committed_keys(table, prefix) if key not in pending)
        yield from [key for key, (_, value) in pending.items() if value is not None and key[: len(prefix)] == prefix]

    def committed_keys(self, table: Table[Any], prefix: Key) -> list[Key]:
        """Committed keys of a resident table; see `Reader.keys`."""
        rows, width = self._committed[table], len(prefix)
        if isinstance(rows, GroupedRows) and width == len(table.spec.key) - 1:
            return [(*prefix, last) for last in rows.group(prefix)]
        return [key for key in rows if key[:width] == prefix]

    def groups(self, table: Table[Any]) -> list[Key]:
        """All key columns but the last of each group of a grouped table that has committed rows."""
        return self._grouped(table).groups()

    def group(self, table: Table[V], common: Key) -> Mapping[Any, V]:
        """A group's committed rows by their last key column. It changes with them: read it before others run."""
        return self._grouped(table).group(common)

    def _grouped(self, table: Table[Any]) -> GroupedRows:
        return cast("GroupedRows", self._committed[table])

    # --- the life of writes -------------------------------------------------------------------------------------

    def propose(self, sequence: int, writes: Writes) -> None:
        """Lay a command's writes over the state; later commands see them, clients do not."""
        for table, changed in writes.items():
            pending = self._pending[table]
            for key, value in changed.items():
                pending[key] = (sequence, value)

    def commit(self, writes: Writes, sequence: int | None = None, *, size_bytes: int = 0) -> None:
        """Make writes part of the committed state, all at once.

        Args:
            sequence: what they were proposed under, if they were.
            size_bytes: of the entry in the log that they come from.
        """
        page = self._pages[0]
        added = 0
        for table, changed in writes.items():
            if sequence is not None:
                self._settle(table, changed, sequence)
            if table.resident:
                self._apply(table, changed)
            rows = page.rows[table]
            before = len(rows)
            rows.update(changed)
            added += len(rows) - before
        page.commit_count += 1
        page.row_count += added
        page.size_bytes += size_bytes
        self.unstored_rows += added
        self.unstored_bytes += size_bytes

    def _settle(self, table: Table[Any], changed: Mapping[Key, Any], sequence: int) -> None:
        pending = self._pending[table]
        for key in changed:
            laid = pending.get(key)
            if laid is not None and laid[0] == sequence:
                del pending[key]

    def _apply(self, table: Table[Any], changed: Mapping[Key, Any]) -> None:
        committed = self._committed[table]
        for key, value in changed.items():
            if value is None:
                committed.pop(key, None)
            else:
                committed[key] = value

    def forget_pending(self) -> None:
        """Drop everything proposed and not committed."""
        for pending in self._pending.values():
            pending.clear()

    # --- the store's part ---------------------------------------------------------------------------------------

    @property
    def open_page(self) -> Page:
        """The page that the next commit goes to."""
        return self._pages[0]

    def close_page(self, applied_offset: int) -> Page:
        """Let the next commit begin another page: everything in the log below `applied_offset` is committed."""
        closed = self._pages[0]
        closed.applied_offset = applied_offset
        self._pages.insert(0, Page(self.tables))
        return closed

    def oldest_page(self) -> Page | None:
        """The page that the store has to take next; None when no closed one is left. It stays readable here."""
        return self._pages[-1] if len(self._pages) > 1 else None

    def page_stored(self) -> None:
        """The store has the oldest page. If it did not take it, do not call this: hand out the same page again."""
        page = self._pages.pop()
        self.unstored_rows -= page.row_count
        self.unstored_bytes -= page.size_bytes


def _no_rows(table: Table[Any]) -> MutableMapping[Key, Any]:
    return GroupedRows() if table.grouped else {}


def _changes(table: Table[Any], layer: Mapping[Key, Any]) -> TableChanges:
    changes = TableChanges()
    encoded, columns = None, ()
    for key, value in layer.items():
        if value is None:
            changes.delete.append(key)
        else:
            if value is not encoded:  # many rows that came to be together have one value, such as an empty partition's
                encoded, columns = value, table.encode(value)
            changes.put.append(key + columns)
    return changes

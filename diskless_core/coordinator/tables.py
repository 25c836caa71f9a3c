"""The state of a shard as tables of immutable values, with what is pending laid over what is committed.

A command changes state through a `Transaction`. Its writes are laid over the committed state while its log entry
is on the way, become committed when the entry was read back, and are forgotten when it was not. Nothing here knows
a log, a store or a clock: it is pure. (KIP-1164, "How operations are performed", steps 3 and 6.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

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
    """

    spec: TableSpec
    encode: Callable[[V], tuple[Any, ...]]
    decode: Callable[[Row], V]
    resident: bool = True

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
        """Keys of a resident table that begin with `prefix`; the cost follows the table's size."""
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


class State:
    """Committed values, pending ones over them, and what the store has not got yet."""

    def __init__(self, tables: Iterable[Table[Any]]) -> None:
        self.tables: tuple[Table[Any], ...] = tuple(tables)
        self._committed: dict[Table[Any], dict[Key, Any]] = {table: {} for table in self.tables}
        self._pending: dict[Table[Any], dict[Key, tuple[int, Any]]] = {table: {} for table in self.tables}
        self._unflushed: dict[Table[Any], dict[Key, Any]] = {table: {} for table in self.tables}
        self._flushing: dict[Table[Any], dict[Key, Any]] = {table: {} for table in self.tables}
        self._unflushed_rows = 0

    def load(self, table: Table[Any], rows: Iterable[Row]) -> None:
        """Take a resident table's rows from the store, at start."""
        self._committed[table].update(table.entity(row) for row in rows)

    def replace(self, rows: Mapping[Table[Any], Iterable[Row]]) -> Writes:
        """Take the rows of all resident tables from a store that was filled anew, and forget everything else.

        Returns what has changed in them.
        """
        self.forget_pending()
        for layers in (self._unflushed, self._flushing):
            layers.update({table: {} for table in self.tables})
        self._unflushed_rows = 0
        writes: dict[Table[Any], dict[Key, Any]] = {}
        for table, stored in rows.items():
            before, after = self._committed[table], dict(map(table.entity, stored))
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
        for layer in (self._unflushed[table], self._flushing[table], self._committed[table]):
            if key in layer:
                return True, cast("V | None", layer[key])
        return False, None

    def rows(self, table: Table[V]) -> Iterator[tuple[Key, V]]:
        """All committed values of a resident table."""
        return iter(list(self._committed[table].items()))

    def row_count(self, table: Table[Any]) -> int:
        """How many committed rows a resident table has."""
        return len(self._committed[table])

    def speculative_rows(self, table: Table[V]) -> Iterator[tuple[Key, V]]:
        """All values of a resident table as they will be when everything pending has committed."""
        pending = self._pending[table]
        for key, value in list(self._committed[table].items()):
            if key not in pending:
                yield key, value
        for key, (_, value) in list(pending.items()):
            if value is not None:
                yield key, value

    def keys(self, table: Table[Any], prefix: Key) -> Iterator[Key]:
        """Keys of a resident table, as they will be when everything pending has committed."""
        return (key for key, _ in self.speculative_rows(table) if key[: len(prefix)] == prefix)

    # --- the life of writes -------------------------------------------------------------------------------------

    def propose(self, sequence: int, writes: Writes) -> None:
        """Lay a command's writes over the state; later commands see them, clients do not."""
        for table, changed in writes.items():
            pending = self._pending[table]
            for key, value in changed.items():
                pending[key] = (sequence, value)

    def commit(self, writes: Writes, sequence: int | None = None) -> None:
        """Make writes part of the committed state; `sequence` is what they were proposed under, if they were."""
        for table, changed in writes.items():
            if sequence is not None:
                self._settle(table, changed, sequence)
            if table.resident:
                self._apply(table, changed)
            unflushed = self._unflushed[table]
            before = len(unflushed)
            unflushed.update(changed)
            self._unflushed_rows += len(unflushed) - before

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
    def unflushed_rows(self) -> int:
        return self._unflushed_rows

    @property
    def unstored_rows(self) -> int:
        """Rows that the store may lack, those on their way to it included."""
        return self._unflushed_rows + sum(map(len, self._flushing.values()))

    def begin_flush(self) -> dict[str, TableChanges]:
        """Hand out what the store lacks. It stays readable here until `end_flush`."""
        for table, unflushed in self._unflushed.items():
            self._flushing[table] = {**self._flushing[table], **unflushed}
            self._unflushed[table] = {}
        self._unflushed_rows = 0
        return {table.name: _changes(table, layer) for table, layer in self._flushing.items() if layer}

    def end_flush(self) -> None:
        """The store has what the last `begin_flush` handed out. After a failure, do not call it: begin again."""
        for table in self.tables:
            self._flushing[table] = {}


def _changes(table: Table[Any], layer: Mapping[Key, Any]) -> TableChanges:
    changes = TableChanges()
    for key, value in layer.items():
        if value is None:
            changes.delete.append(key)
        else:
            changes.put.append(table.row(key, value))
    return changes

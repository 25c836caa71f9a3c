"""A coordinator store in memory: the reference that `diskless_core.testing.coordinator_store` is checked against.

It needs no thread and no file, so a simulation can use it, and it is strict with the core: what some store would take
and another refuse (a wrong type, a key twice in one write) is an error here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from diskless_core.plugin.coordinator_store import (
    Column,
    ColumnType,
    CoordinatorStore,
    CoordinatorStoreError,
    Key,
    Row,
    ShardStore,
    StoreView,
    TableChanges,
    TableSpec,
    Value,
)
from diskless_core.plugin.shard import ShardId

_TYPES: Mapping[ColumnType, type] = {ColumnType.INTEGER: int, ColumnType.TEXT: str, ColumnType.BLOB: bytes}

_INTEGER_BITS = 64


@dataclass(slots=True)
class _MemoryTable:
    spec: TableSpec
    rows: dict[Key, Row] = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)

    def copy(self) -> _MemoryTable:
        return _MemoryTable(self.spec, dict(self.rows), list(self.keys))

    def put(self, row: Row) -> None:
        key = row[: len(self.spec.key)]
        if key not in self.rows:
            insort(self.keys, key)
        self.rows[key] = row

    def delete(self, key: Key) -> None:
        if self.rows.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]


@dataclass(slots=True)
class _MemoryShard:
    tables: dict[str, _MemoryTable]
    applied_offset: int = 0

    def copy(self) -> _MemoryShard:
        return _MemoryShard({name: table.copy() for name, table in self.tables.items()}, self.applied_offset)


class MemoryCoordinatorStore(CoordinatorStore):
    """Keeps what it was given for as long as it lives: a shard that is opened again is as it was left."""

    def __init__(self) -> None:
        self._shards: dict[ShardId, _MemoryShard] = {}

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        kept = self._shards.get(shard)
        if kept is None or not _made_to_fit(kept.tables, tables):
            kept = _MemoryShard({spec.name: _MemoryTable(spec) for spec in tables})
            self._shards[shard] = kept
        return MemoryShardStore(kept)


def _made_to_fit(present: dict[str, _MemoryTable], tables: Sequence[TableSpec]) -> bool:
    """Add the tables that are missing and drop those that are too many and empty. Whether the rest is as declared."""
    declared = {spec.name: spec for spec in tables}
    dropped = present.keys() - declared.keys()
    if any(present[name].rows for name in dropped):
        return False
    if any(present[name].spec != declared[name] for name in present.keys() & declared.keys()):
        return False
    for name in dropped:
        del present[name]
    for name in declared.keys() - present.keys():
        present[name] = _MemoryTable(declared[name])
    return True


class _MemoryView(StoreView):
    def __init__(self, shard: _MemoryShard) -> None:
        self._shard = shard
        self._closed = False

    def applied_offset(self) -> int:
        return self._open_shard().applied_offset

    def get(self, table: str, key: Key) -> Row | None:
        return self._table(table).rows.get(key)

    def scan(
        self,
        table: str,
        start: Key = (),
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        found = self._table(table)
        first = bisect_left(found.keys, start)
        last = len(found.keys) if end is None else bisect_left(found.keys, end)
        keys = found.keys[first:last]
        if reverse:
            keys.reverse()
        return [found.rows[key] for key in keys[:limit]]

    def _open_shard(self) -> _MemoryShard:
        if self._closed:
            raise CoordinatorStoreError("the store is closed")
        return self._shard

    def _table(self, name: str) -> _MemoryTable:
        try:
            return self._open_shard().tables[name]
        except KeyError:
            raise CoordinatorStoreError(f"no table {name!r} was declared") from None


class MemoryShardStore(_MemoryView, ShardStore):
    """One shard's open store."""

    def write(self, changes: Mapping[str, TableChanges], applied_offset: int) -> None:
        for name, change in changes.items():
            _require_sound(self._table(name).spec, change)
        for name, change in changes.items():
            table = self._table(name)
            for key in change.delete:
                table.delete(key)
            for row in change.put:
                table.put(row)
        self._open_shard().applied_offset = applied_offset

    def snapshot(self) -> MemorySnapshot:
        return MemorySnapshot(self._open_shard().copy())

    def clear(self) -> None:
        shard = self._open_shard()
        for name, table in shard.tables.items():
            shard.tables[name] = _MemoryTable(table.spec)
        shard.applied_offset = 0

    def close(self) -> None:
        self._closed = True


class MemorySnapshot(_MemoryView):
    """A copy of one shard."""

    def __enter__(self) -> StoreView:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True


def _require_sound(spec: TableSpec, change: TableChanges) -> None:
    width = len(spec.key)
    for row in change.put:
        _require_columns(spec, spec.columns, row)
        if None in row[:width]:
            raise CoordinatorStoreError(f"{spec.name}: a key column is None in {row!r}")
    for key in change.delete:
        _require_columns(spec, spec.key, key)
    touched = [row[:width] for row in change.put] + change.delete
    if len(set(touched)) != len(touched):
        raise CoordinatorStoreError(f"{spec.name}: a key is written or deleted twice in one write")


def _require_columns(spec: TableSpec, columns: tuple[Column, ...], values: tuple[Value, ...]) -> None:
    if len(values) != len(columns):
        raise CoordinatorStoreError(f"{spec.name}: {len(columns)} values are needed, not {values!r}")
    for column, value in zip(columns, values, strict=True):
        if value is not None and not _fits(column.type, value):
            raise CoordinatorStoreError(f"{spec.name}.{column.name}: {value!r} is no {column.type}")


def _fits(column_type: ColumnType, value: Value) -> bool:
    if not isinstance(value, _TYPES[column_type]):
        return False
    return not isinstance(value, int) or -(2 ** (_INTEGER_BITS - 1)) <= value < 2 ** (_INTEGER_BITS - 1)

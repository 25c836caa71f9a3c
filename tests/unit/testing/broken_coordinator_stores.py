"""Coordinator stores with a fault each, importable by the processes that a contract suite starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from diskless_core.plugin.coordinator_store import Key, ShardStore, TableChanges, TableSpec
from diskless_core.plugin.shard import ShardId
from diskless_sqlite.store import SqliteCoordinatorStore, SqliteShardStore


class OffsetFirst(SqliteShardStore):
    """The offset in one transaction, each table in another one."""

    def write(self, changes: Mapping[str, TableChanges], applied_offset: int) -> None:
        super().write({}, applied_offset)
        for table, change in changes.items():
            super().write({table: change}, applied_offset)


class OffsetLast(SqliteShardStore):
    """All rows in one transaction, the offset in another one."""

    def write(self, changes: Mapping[str, TableChanges], applied_offset: int) -> None:
        super().write(changes, self.applied_offset())
        super().write({}, applied_offset)


class ShortKeys(SqliteShardStore):
    """Cuts keys off that are longer than LMDB takes them."""

    def write(self, changes: Mapping[str, TableChanges], applied_offset: int) -> None:
        cut = {
            table: TableChanges(put=[_cut(row) for row in change.put], delete=[_cut(key) for key in change.delete])
            for table, change in changes.items()
        }
        super().write(cut, applied_offset)


class BrokenStore(SqliteCoordinatorStore):
    """SQLite, but with a broken shard's store."""

    shard_store: ClassVar[type[SqliteShardStore]]

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        opened = super().open(shard, tables)
        opened.__class__ = self.shard_store
        return opened


class OffsetFirstStore(BrokenStore):
    shard_store = OffsetFirst


class OffsetLastStore(BrokenStore):
    shard_store = OffsetLast


class ShortKeysStore(BrokenStore):
    shard_store = ShortKeys


def _cut(values: Key) -> Key:
    return tuple(value[:511] if isinstance(value, str | bytes) else value for value in values)

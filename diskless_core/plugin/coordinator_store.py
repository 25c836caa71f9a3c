"""Hook noun `coordinator_store`: the local state that a shard materialises from its log.

A store is a cache of the log: it may be deleted at any time and is filled again. It holds tables of rows, ordered by
key, that the core declares; it needs to know nothing of what they mean. Everything is synchronous: the core calls a
shard's store from one dedicated thread, never concurrently, and keeps the event loop free of it. (KIP-1164, "Local
state machine".)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum

from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.hookspecs import hookspec
from diskless_core.plugin.shard import ShardId

Value = int | str | bytes | None
"""A column's value. Integers are signed 64 bit; None only in columns that are not part of the key."""

Key = tuple[Value, ...]
"""The key columns of a row, or a prefix of them. Compared column by column, text and bytes by their (UTF-8) bytes."""

Row = tuple[Value, ...]
"""All columns of a row in the order of the table's declaration, key columns first."""


class CoordinatorStoreError(Exception):
    """The store failed. Who asked gets an error that can be retried; a write is tried again.

    After three failed writes in a row the core closes the store and opens it again before each further try, at growing
    pauses of up to half a minute. One that comes back with less than it had ends the shard's work on this node: the
    broker has to be restarted, and fills it from the log or a snapshot. One that opens and cannot be read, or cannot be
    opened, stays as it is until a person has mended its place, or has stopped the broker and deleted it.

    A write is tried again with the same content. When a store has fallen behind by about 100,000 rows, its shard
    accepts nothing new until it has caught up.
    """


class ColumnType(StrEnum):
    """Types of columns; named as SQLite names them."""

    INTEGER = "INTEGER"
    TEXT = "TEXT"
    BLOB = "BLOB"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        name: a plain identifier in lower case.
        type: what its values are. Those outside of the key can be None too.
    """

    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table as the core declares it: rows are unique by, and ordered by, the key columns.

    Attributes:
        name: a plain identifier in lower case, unique in the shard.
        key: the columns of the key, in order.
        values: the other columns, in order; there may be none.
        level: the level of `diskless.version` that brought the table, which has no rows below it. Stores need not look.
    """

    name: str
    key: tuple[Column, ...]
    values: tuple[Column, ...]
    level: int = field(default=1, compare=False)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.key + self.values


@dataclass(slots=True)
class TableChanges:
    """What one write does to one table. No key is in both lists, none twice in one.

    Attributes:
        put: whole rows, each of which replaces the row of the same key.
        delete: whole keys, of rows that may be absent.
    """

    put: list[Row] = field(default_factory=list)
    delete: list[Key] = field(default_factory=list)


class StoreView(ABC):
    """Read access to one shard's tables."""

    @abstractmethod
    def applied_offset(self) -> int:
        """The log offset that the content reaches: every entry below it is in. 0 for an empty store."""

    @abstractmethod
    def get(self, table: str, key: Key) -> Row | None:
        """The row with exactly this key."""

    @abstractmethod
    def scan(
        self,
        table: str,
        start: Key = (),
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        """Rows with `start` <= key < `end`, ordered by key, or from the end backwards with `reverse`.

        `start` and `end` may be prefixes of a key. A prefix compares as a shorter tuple does in Python, so
        `start=(a,)` begins with the first row of `a`, and `end=(a,)` ends before it. `end=None` has no upper limit.
        """


class ShardStore(StoreView):
    """One shard's tables, read and written from one thread."""

    @abstractmethod
    def write(self, changes: Mapping[str, TableChanges], applied_offset: int) -> None:
        """Do all changes and move `applied_offset` in one atomic transaction.

        After a crash the store holds all of it or none of it; that it is durable at return is not required,
        for the log has it all. A put replaces the row of the same key; deleting an absent key is no error.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[StoreView]:
        """A view of the point in time of this call, not of when its `with` begins. Writes and `clear` go on meanwhile.

        It is read by one thread at a time, not always the same one and not the one that writes. It can be closed on
        another thread again. A library whose transactions belong to one thread has to be told that they may move.
        """

    @abstractmethod
    def clear(self) -> None:
        """Drop all rows and set `applied_offset` to 0, atomically."""

    @abstractmethod
    def close(self) -> None:
        """Release files. Idempotent."""


class CoordinatorStore(ABC):
    """Opens the stores of shards."""

    @abstractmethod
    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        """Open or create a shard's store. Called on the thread that will use it.

        Tables that are declared and not found are added, empty. Tables that are found, not declared and empty are
        dropped. So versions of Diskless that differ in tables that are not in use yet can open each other's stores.
        Where anything else differs, the store starts empty: the log fills it again.

        Raises:
            CoordinatorStoreError: it can't be opened; the message says what to do.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorStorePlugin(Descriptor[CoordinatorStore]):
    """Descriptor that `diskless_coordinator_stores` yields."""

    noun = "coordinator_store"


@hookspec
def diskless_coordinator_stores() -> list[CoordinatorStorePlugin]:
    """Local stores of coordinator state, chosen with `coordinator_store=<name>`.

    Example::

        @hookimpl
        def diskless_coordinator_stores() -> list[CoordinatorStorePlugin]:
            return [
                CoordinatorStorePlugin(
                    name="lmdb",
                    factory=LmdbStore,
                    settings=LmdbStoreSettings,
                    api_version="1.0",
                    help="Keeps coordinator state in LMDB.",
                )
            ]
    """
    raise NotImplementedError

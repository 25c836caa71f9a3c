"""The `rocksdb` coordinator store: a database for each shard, in which each write is one batch with its offset.

A key is the number of its table and the key's columns (see keys.py); the value is the whole row as MessagePack, so that
a scan decodes nothing but values.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

import msgpack
from rocksdict import WriteBatch

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
from diskless_rocksdb.config import RocksdbSettings
from diskless_rocksdb.database import Database, Snapshot
from diskless_rocksdb.declaration import Declaration, DeclarationError
from diskless_rocksdb.engine import Engine
from diskless_rocksdb.errors import DamagedError
from diskless_rocksdb.keys import MAX_TABLES, KeyCodec, KeyFormatError, table_prefix

logger = logging.getLogger(__name__)

_OWN = table_prefix(0)
_DECLARATION = _OWN + b"declaration"
_OFFSET = _OWN + b"offset"
_ROWS = table_prefix(1)
_END = table_prefix(MAX_TABLES + 1)
_offset = struct.Struct(">q")
_unpack = msgpack.unpackb


class _Bytes(Protocol):
    """What can be read: a database, or a snapshot of one."""

    def get(self, key: bytes) -> bytes | None: ...

    def values(self, first: bytes, after: bytes, limit: int | None, *, reverse: bool) -> list[bytes]: ...


class RocksdbCoordinatorStore(CoordinatorStore):
    """Keeps each shard in the folder `<data_dir>/<shard>`, or below the `path` of the settings."""

    def __init__(self, data_dir: Path, settings: RocksdbSettings | None = None) -> None:
        settings = settings or RocksdbSettings()
        self._folder = Path(settings.path) if settings.path else data_dir
        self._engine = Engine(settings)

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        database = Database(self._folder / str(shard), self._engine)
        try:
            declaration = _made_to_fit(database, tables)
        except BaseException:
            database.close()
            raise
        return RocksdbShardStore(database, {spec.name: (spec, declaration.numbers[spec.name]) for spec in tables})


class _RocksdbView(StoreView):
    """Reads a database or a snapshot."""

    def __init__(self, source: _Bytes, folder: Path, codecs: Mapping[str, KeyCodec]) -> None:
        self._source = source
        self._folder = folder
        self._codecs = codecs

    def applied_offset(self) -> int:
        found = self._source.get(_OFFSET)
        if found is None or len(found) != _offset.size:
            raise DamagedError(self._folder, "it has lost the offset that it reaches")
        return int(_offset.unpack(found)[0])

    def get(self, table: str, key: Key) -> Row | None:
        codec = self._codec(table)
        if len(key) != codec.width:
            raise CoordinatorStoreError(f"a key of {table!r} has {codec.width} columns, not {len(key)}")
        found = self._source.get(_encoded(table, codec.encode, key))
        return None if found is None else self._rows([found])[0]

    def scan(
        self,
        table: str,
        start: Key = (),
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        codec = self._codec(table)
        first = _encoded(table, codec.bound, start)
        after = codec.after if end is None else _encoded(table, codec.bound, end)
        if first >= after or limit == 0:
            return []
        return self._rows(self._source.values(first, after, limit, reverse=reverse))

    def _codec(self, table: str) -> KeyCodec:
        try:
            return self._codecs[table]
        except KeyError:
            raise CoordinatorStoreError(f"no table {table!r} was declared") from None

    def _rows(self, values: Sequence[bytes]) -> list[Row]:
        try:
            return [_unpack(value, use_list=False) for value in values]
        except (ValueError, msgpack.UnpackException) as error:
            raise DamagedError(self._folder, "a row cannot be read") from error


class RocksdbShardStore(_RocksdbView, ShardStore):
    """One shard's open database."""

    def __init__(self, database: Database, tables: Mapping[str, tuple[TableSpec, int]]) -> None:
        codecs = {name: KeyCodec.of(spec, number) for name, (spec, number) in tables.items()}
        super().__init__(database, database.folder, codecs)
        self._database = database

    def write(self, changes: Mapping[str, TableChanges], applied_offset: int) -> None:
        self._database.write(lambda: self._batch(changes, applied_offset))

    def snapshot(self) -> RocksdbSnapshot:
        return RocksdbSnapshot(self._database.snapshot(), self._folder, self._codecs)

    def clear(self) -> None:
        self._database.write(lambda: _emptying(_OFFSET, _offset.pack(0)))

    def close(self) -> None:
        self._database.close()

    def _batch(self, changes: Mapping[str, TableChanges], applied_offset: int) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        put, delete, pack = batch.put, batch.delete, msgpack.Packer().pack
        for table, change in changes.items():
            encode = self._codec(table).encode
            try:
                for key in change.delete:
                    delete(encode(key))
                for row in change.put:
                    put(encode(row), pack(row))
            except KeyFormatError as error:
                raise CoordinatorStoreError(f"{table!r}: {error}") from error
            except (OverflowError, TypeError, ValueError) as error:
                raise CoordinatorStoreError(f"a row of {table!r} cannot be kept: {type(error).__name__}") from error
        try:
            put(_OFFSET, _offset.pack(applied_offset))
        except struct.error as error:
            raise CoordinatorStoreError(f"{applied_offset} is no offset") from error
        return batch


class RocksdbSnapshot(_RocksdbView):
    """The database at one point in time, until the context ends or the store is closed."""

    def __init__(self, snapshot: Snapshot, folder: Path, codecs: Mapping[str, KeyCodec]) -> None:
        super().__init__(snapshot, folder, codecs)
        self._snapshot = snapshot

    def __enter__(self) -> StoreView:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._snapshot.close()


def _made_to_fit(database: Database, tables: Sequence[TableSpec]) -> Declaration:
    """Have the database hold these tables, empty where it must be, and return its declaration."""
    try:
        new = Declaration.of(tables)
        data = database.get(_DECLARATION)
        found = None if data is None else Declaration.parse(data)
    except DeclarationError as error:
        raise DamagedError(database.folder, error) from error
    if found is None:
        if database.values(b"", _END, 1, reverse=False):
            raise DamagedError(database.folder, "it has rows, but does not say of which tables")
        _start_empty(database, new)
        return new
    fitted = found.fitted(tables)
    if fitted is not None and not any(_has_rows(database, number) for number in found.gone(tables).values()):
        if fitted != found:
            database.write(lambda: _declaring(fitted))
        return fitted
    logger.info("%s holds other tables than are declared now: it starts empty", database.folder)
    _start_empty(database, new)
    return new


def _start_empty(database: Database, declaration: Declaration) -> None:
    database.write(lambda: _emptying(_OFFSET, _offset.pack(0), _DECLARATION, declaration.encode()))


def _has_rows(database: Database, number: int) -> bool:
    return bool(database.values(table_prefix(number), table_prefix(number + 1), 1, reverse=False))


def _declaring(declaration: Declaration) -> WriteBatch:
    batch = WriteBatch(raw_mode=True)
    batch.put(_DECLARATION, declaration.encode())
    return batch


def _emptying(*own: bytes) -> WriteBatch:
    """A batch that deletes all rows, and puts these keys and values of the store itself."""
    batch = WriteBatch(raw_mode=True)
    batch.delete_range(_ROWS, _END)
    for key, value in zip(own[::2], own[1::2], strict=True):
        batch.put(key, value)
    return batch


def _encoded(table: str, encode: Callable[[Key], bytes], key: Key) -> bytes:
    try:
        return encode(key)
    except KeyFormatError as error:
        raise CoordinatorStoreError(f"{table!r}: {error}") from error

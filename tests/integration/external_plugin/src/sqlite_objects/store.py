"""WAL objects in a table of one SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.wal_object_store import ObjectInfo, ObjectNotFoundError, WalObjectStore, WalObjectStoreError

T = TypeVar("T")


class SqliteObjectsSettings(PluginSettings):
    """`wal_object_store.sqlite_objects.*`."""

    file: str = Field(default="objects.db", description="Name of the SQLite file in the plugin's folder.")


class SqliteObjects(WalObjectStore):
    """One connection, used by one thread."""

    requests_are_billed = False
    is_node_local = True
    is_process_local = False

    def __init__(self, context: PluginContext, settings: SqliteObjectsSettings) -> None:
        self._path = context.data_dir / settings.file
        self._clock = context.clock
        self._thread = ThreadPoolExecutor(1, "sqlite-objects")
        self._connection: sqlite3.Connection | None = None

    async def start(self) -> None:
        self._connection = await self._run(lambda: _open(self._path))

    async def stop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await self._run(connection.close)
        self._thread.shutdown()

    async def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
        row = (key, bytes(data), self._clock.now_ms())
        await self._run(lambda: self._execute("INSERT OR REPLACE INTO object VALUES (?, ?, ?)", row))

    async def get(self, key: str, start: int, end: int) -> bytes:
        statement = "SELECT substr(data, ?, ?) FROM object WHERE key = ?"
        found = await self._run(lambda: self._execute(statement, (start + 1, end - start, key)))
        if not found:
            raise ObjectNotFoundError(key)
        data: bytes = found[0][0]
        return data

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        statement = "SELECT key, length(data), modified_ms FROM object WHERE substr(key, 1, ?) = ?"
        rows = await self._run(lambda: self._execute(statement, (len(prefix), prefix)))
        yield [ObjectInfo(*row) for row in rows]

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        for key in keys:
            await self._run(lambda key=key: self._execute("DELETE FROM object WHERE key = ?", (key,)))
        return list(keys)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise WalObjectStoreError(f"{self._path}: {error}") from error

    def _execute(self, statement: str, parameters: tuple[object, ...]) -> list[tuple[object, ...]]:
        if self._connection is None:
            raise WalObjectStoreError("the store is stopped")
        with self._connection:
            return self._connection.execute(statement, parameters).fetchall()


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS object (key TEXT PRIMARY KEY, data BLOB, modified_ms INTEGER)")
    return connection

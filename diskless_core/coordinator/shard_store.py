"""A shard's store on its own thread, and the worker that brings it up to date in groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

import structlog

from diskless_core.coordinator.tables import Key, State, Table, V
from diskless_core.plugin.coordinator_store import CoordinatorStore, CoordinatorStoreError, ShardStore
from diskless_core.plugin.shard import ShardId

T = TypeVar("T")

FLUSH_ROWS = 500
"""Rows in one transaction: enough to spread a commit's cost, few enough not to hold up reads."""

FLUSH_INTERVAL_S = 0.5
RETRY_INTERVAL_S = 1.0

_log = structlog.get_logger(__name__)


class StoreThread:
    """Runs everything that touches one shard's store, one call after the other."""

    def __init__(self, backend: CoordinatorStore, shard: ShardId) -> None:
        self._backend = backend
        self._shard = shard
        self._executor: Executor = ThreadPoolExecutor(1, thread_name_prefix=f"store-{shard}")
        self._store: ShardStore | None = None

    async def open(self, tables: tuple[Table[Any], ...]) -> None:
        self._store = await self._run(self._backend.open, self._shard, [table.spec for table in tables])

    @property
    def is_open(self) -> bool:
        return self._store is not None

    async def close(self) -> None:
        """Release the store and the thread."""
        try:
            if self._store is not None:
                await self._run(self._store.close)
        finally:
            self._executor.shutdown(wait=True)

    async def read(self, work: Callable[[ShardStore], T]) -> T:
        """Run `work` with the store."""
        return await self._run(work, self._opened())

    async def write(self, state: State, applied_offset: int) -> None:
        """Give the store everything that it lacks.

        Raises:
            CoordinatorStoreError: it did not take it; the state still has it all.
        """
        changes = state.begin_flush()
        await self._run(self._opened().write, changes, applied_offset)
        state.end_flush()

    def _opened(self) -> ShardStore:
        if self._store is None:
            raise CoordinatorStoreError(f"the store of {self._shard} is not open")
        return self._store

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)


class Flusher:
    """Writes grouped transactions, by rows and by time. The store is a cache: an error is retried, nothing is lost."""

    def __init__(self, thread: StoreThread, state: State, applied_offset: Callable[[], int], shard: ShardId) -> None:
        self._thread = thread
        self._state = state
        self._applied_offset = applied_offset
        self._shard = shard
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._flushing = asyncio.Lock()
        self.generation = 0

    def note(self) -> None:
        """Something was committed."""
        self._wake.set()
        if self._state.unflushed_rows >= FLUSH_ROWS:
            self._full.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            try:
                async with asyncio.timeout(FLUSH_INTERVAL_S):
                    await self._full.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            self._full.clear()
            try:
                await self.flush()
            except CoordinatorStoreError as error:
                _log.error(
                    "the coordinator store refused a write; it is tried again", shard=str(self._shard), error=str(error)
                )
                self._wake.set()
                await asyncio.sleep(RETRY_INTERVAL_S)

    async def flush(self) -> None:
        async with self._flushing:
            self.generation += 1
            await self._thread.write(self._state, self._applied_offset())

    async def prefetch(self, table: Table[V], key: Key) -> V | None:
        """A row that memory may not have, as of now: no flush came between looking at the store and at memory."""
        while True:
            generation = self.generation
            found = self._state.in_memory(table, key)
            if found[0]:
                return found[1]
            row = await self._thread.read(lambda store: store.get(table.name, key))
            if generation == self.generation:
                return table.entity(row)[1] if row is not None else None

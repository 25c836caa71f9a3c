"""A shard's store on its own thread, and the worker that brings it up to date in groups.

(KIP-1164, "Local state machine".)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import structlog

from diskless_core.coordinator.meter import ShardMeter
from diskless_core.coordinator.tables import Key, State, Table
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

    async def write(self, state: State, applied_offset: int) -> int:
        """Give the store everything that it lacks, and return how many rows that were.

        Raises:
            CoordinatorStoreError: it did not take it; the state still has it all.
        """
        changes = state.begin_flush()
        await self._run(self._opened().write, changes, applied_offset)
        state.end_flush()
        return sum(len(table.put) + len(table.delete) for table in changes.values())

    def _opened(self) -> ShardStore:
        if self._store is None:
            raise CoordinatorStoreError(f"the store of {self._shard} is not open")
        return self._store

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)


class Flusher:
    """Writes grouped transactions, by rows and by time. The store is a cache: an error is retried, nothing is lost.

    Attributes:
        generation: another one after each flush.
        stored_offset: everything in the log below it is in the store.
    """

    def __init__(
        self, thread: StoreThread, state: State, applied_offset: Callable[[], int], shard: ShardId, meter: ShardMeter
    ) -> None:
        self._thread = thread
        self._state = state
        self._applied_offset = applied_offset
        self._shard = shard
        self._meter = meter
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self.generation = 0
        self.stored_offset = 0

    def note(self) -> None:
        """Something was committed."""
        self._wake.set()
        if self._state.unflushed_rows >= FLUSH_ROWS:
            self._full.set()

    @property
    def is_suspended(self) -> bool:
        return not self._resumed.is_set()

    async def suspend(self) -> None:
        """Let the flush under way end. Until `resume` the store is neither written nor asked."""
        self._resumed.clear()
        self.generation += 1
        async with self._flushing:
            pass

    def resume(self) -> None:
        """The store has all that memory knows of again."""
        self.generation += 1
        self._resumed.set()

    def require_store(self) -> None:
        """Refuse while suspended.

        Raises:
            CoordinatorStoreError: a snapshot is taking the store's place.
        """
        if self.is_suspended:
            raise CoordinatorStoreError(f"the store of {self._shard} is being filled from a snapshot")

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await self._resumed.wait()
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
            self.require_store()
            self.generation += 1
            await self._write(self._applied_offset())

    async def _write(self, applied_offset: int) -> None:
        try:
            with self._meter.flush_seconds.time():
                rows = await self._thread.write(self._state, applied_offset)
        except CoordinatorStoreError:
            self._meter.flush_failures.inc()
            raise
        self._meter.flushed_rows.inc(rows)
        self.stored_offset = applied_offset

    async def prefetch(self, rows: Sequence[tuple[Table[Any], Key]]) -> dict[tuple[Table[Any], Key], Any]:
        """The values of rows that memory may not have, None where there is no row, all of them as of now.

        That is: no flush came between looking at memory and at the store, for none of them.
        """
        while True:
            generation = self.generation
            found = {row: self._state.in_memory(*row) for row in rows}
            missing = [row for row, (is_known, _) in found.items() if not is_known]
            values = {row: value for row, (is_known, value) in found.items() if is_known}
            if not missing:
                return values
            self.require_store()
            stored = await self._thread.read(partial(_values, missing))
            if generation == self.generation:
                return values | dict(zip(missing, stored, strict=True))


def _values(rows: Sequence[tuple[Table[Any], Key]], store: ShardStore) -> list[Any]:
    found = [(table, store.get(table.name, key)) for table, key in rows]
    return [table.decode(row) if row is not None else None for table, row in found]

"""A shard's store on its own thread, and the worker that brings it up to date in groups.

(KIP-1164, "Local state machine".)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.meter import ShardMeter
from diskless_core.coordinator.tables import Key, State, Table
from diskless_core.plugin.coordinator_store import CoordinatorStore, CoordinatorStoreError, ShardStore, TableSpec
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.shard import ShardId

T = TypeVar("T")

FLUSH_ROWS = 500
"""Rows in one transaction: enough to spread a commit's cost, few enough not to hold up reads."""

FLUSH_INTERVAL_S = 0.5
RETRY = Backoff(first_ms=1_000, max_ms=30_000)

REOPEN_AFTER = 3
"""Writes that failed in a row until the store is closed and opened again: what fails for a moment needs no new one."""

_log = structlog.get_logger(__name__)


class StoreThread:
    """Runs everything that touches one shard's store, one call after the other.

    Attributes:
        on_failure: called after a read that failed.
    """

    def __init__(self, backend: CoordinatorStore, shard: ShardId) -> None:
        self._backend = backend
        self._shard = shard
        self._executor: Executor = ThreadPoolExecutor(1, thread_name_prefix=f"store-{shard}")
        self._store: ShardStore | None = None
        self._specs: list[TableSpec] = []
        self._lendings = 0
        self.on_failure: Callable[[], None] = lambda: None

    async def open(self, tables: tuple[Table[Any], ...]) -> None:
        self._specs = [table.spec for table in tables]
        await self._run(self._open)

    async def reopen(self, least_offset: int) -> None:
        """Close the store, whatever it says to that, and open it again.

        Raises:
            CoordinatorStoreError: it cannot be opened now. It stays closed, and reads and writes fail.
            CoordinatorError: it does not reach `least_offset` any more. It stays closed.
        """
        if self._lendings:
            return
        await self._run(self._reopen, least_offset)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """As long as it lasts the store is not opened again: others have views of it."""
        self._lendings += 1
        try:
            yield
        finally:
            self._lendings -= 1

    @property
    def is_open(self) -> bool:
        return self._store is not None

    async def close(self) -> None:
        """Release the store and the thread."""
        try:
            await self._run(self._close)
        finally:
            self._executor.shutdown(wait=True)

    async def read(self, work: Callable[[ShardStore], T]) -> T:
        """Run `work` with the store."""
        try:
            return await self._run(lambda: work(self._opened()))
        except CoordinatorStoreError:
            self.on_failure()
            raise

    async def write(self, state: State, applied_offset: int) -> int:
        """Give the store everything that it lacks, and return how many rows that were.

        Raises:
            CoordinatorStoreError: it did not take it; the state still has it all.
        """
        changes = state.begin_flush()
        await self._run(lambda: self._opened().write(changes, applied_offset))
        state.end_flush()
        return sum(len(table.put) + len(table.delete) for table in changes.values())

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    # --- on the thread -------------------------------------------------------------------------------------------

    def _opened(self) -> ShardStore:
        if self._store is None:
            raise CoordinatorStoreError(f"the store of {self._shard} is not open")
        return self._store

    def _open(self) -> None:
        self._store = self._backend.open(self._shard, self._specs)

    def _close(self) -> None:
        opened, self._store = self._store, None
        if opened is not None:
            opened.close()

    def _reopen(self, least_offset: int) -> None:
        try:
            self._close()
        except CoordinatorStoreError as error:
            _log.warning("a coordinator store could not be closed", shard=str(self._shard), error=str(error))
        self._open()
        try:
            reached = self._opened().applied_offset()
        except CoordinatorStoreError:
            self._close()
            raise
        if reached < least_offset:
            self._close()
            raise CoordinatorError(
                f"the store of {self._shard} had the log up to offset {least_offset}, and came back with what is below "
                f"{reached}: restart the broker, which fills it from the log"
            )
        _log.warning("the coordinator store was opened again", shard=str(self._shard))


class Flusher:
    """Writes grouped transactions, by rows and by time. The store is a cache: an error is retried, nothing is lost.

    After some errors in a row it opens the store again before each further try.

    Attributes:
        generation: another one after each flush.
        stored_offset: everything in the log below it is in the store.
    """

    def __init__(
        self,
        thread: StoreThread,
        state: State,
        applied_offset: Callable[[], int],
        shard: ShardId,
        meter: ShardMeter,
        clock: Clock,
    ) -> None:
        self._thread = thread
        self._state = state
        self._applied_offset = applied_offset
        self._shard = shard
        self._meter = meter
        self._clock = clock
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._failures = 0
        self.generation = 0
        self.stored_offset = 0
        thread.on_failure = self._wake.set  # a store that cannot be read is found out by a write

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
                if self._failures >= REOPEN_AFTER:
                    await self._reopen()
                await self.flush()
                self._failures = 0
            except CoordinatorStoreError as error:
                self._failures += 1
                _log.error(
                    "the coordinator store failed; it is tried again",
                    shard=str(self._shard),
                    failures=self._failures,
                    error=str(error),
                )
                self._wake.set()
                await asyncio.sleep(self._pause_s())

    def _pause_s(self) -> float:
        """Short until the store is opened again: until then it cannot get well, and commits wait for it."""
        return RETRY.pause_s(max(1, self._failures - REOPEN_AFTER + 1), self._clock)

    async def _reopen(self) -> None:
        async with self._flushing:
            self.require_store()
            await self._thread.reopen(self.stored_offset)

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

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
from diskless_core.coordinator.errors import CoordinatorError, StoreBehindError
from diskless_core.coordinator.meter import ShardMeter
from diskless_core.coordinator.tables import Key, Page, State, Table
from diskless_core.plugin.coordinator_store import CoordinatorStore, CoordinatorStoreError, ShardStore, TableSpec
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.shard import ShardId

T = TypeVar("T")

FLUSH_ROWS = 500
FLUSH_ENTRIES = 4
"""Rows, and entries of the log, that are written at once: enough to spread a transaction's cost and to write rows that
change with each entry only once; few enough not to hold up reads."""

PAGE_ROWS = 20_000
PAGE_BYTES = 4 << 20
"""A page is closed when it has as many rows, or so many bytes of the log made it: what one write to the store has at
most, and the rows of one entry."""

MAX_UNSTORED_ROWS = 100_000
MAX_UNSTORED_BYTES = 64 << 20
"""What memory may have that the store lacks, in rows and in bytes of the log: 50 to 100 MB."""

SAY_AGAIN_S = 30.0
"""Between two lines of the log that say that there is no room."""

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
        self._executor = self._new_executor()
        self._store: ShardStore | None = None
        self._specs: list[TableSpec] = []
        self._lendings = 0
        self.on_failure: Callable[[], None] = lambda: None

    def _new_executor(self) -> Executor:
        """It has no thread before there is something to do."""
        return ThreadPoolExecutor(1, thread_name_prefix=f"store-{self._shard}")

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
        """Release the store and the thread. It can be opened again."""
        executor = self._executor
        try:
            await self._run(self._close)
        finally:
            self._executor = self._new_executor()
            executor.shutdown(wait=True)

    async def read(self, work: Callable[[ShardStore], T]) -> T:
        """Run `work` with the store."""
        try:
            return await self._run(lambda: work(self._opened()))
        except CoordinatorStoreError:
            self.on_failure()
            raise

    async def write(self, page: Page) -> None:
        """Give the store a closed page.

        Raises:
            CoordinatorStoreError: it did not take it.
        """
        await self._run(lambda: self._opened().write(page.changes(), page.applied_offset))

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

    After some errors in a row it opens the store again before each further try. What the store lacks is bounded: see
    `has_room`.

    Attributes:
        generation: another one after each flush.
        stored_offset: everything in the log below it is in the store.
        on_room: called when there is room again.
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
        self._room = asyncio.Event()
        self._room.set()
        self._said_at: float | None = None
        self._is_said = False
        self.on_room: Callable[[], None] = lambda: None
        self.generation = 0
        self.stored_offset = 0
        thread.on_failure = self._wake.set  # a store that cannot be read is found out by a write

    def note(self) -> None:
        """Something was committed."""
        self._wake.set()
        page = self._state.open_page
        if page.row_count >= PAGE_ROWS or page.size_bytes >= PAGE_BYTES:
            self._state.close_page(self._applied_offset())
            self._look_for_room()
            self._full.set()
        elif page.row_count >= FLUSH_ROWS and page.commit_count >= FLUSH_ENTRIES:
            self._full.set()

    # --- room ----------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether memory may take more that the store lacks."""
        return self._room.is_set()

    async def until_room(self) -> None:
        """Wait until there is room."""
        await self._room.wait()

    def require_room(self) -> None:
        """Refuse while there is no room.

        Raises:
            StoreBehindError: the store lacks as much as memory may keep for it.
        """
        if self.has_room:
            return
        self._say_that_there_is_no_room()
        self._meter.refused_commands.inc()
        raise StoreBehindError(
            f"the store of {self._shard} lacks {self._state.unstored_rows} rows, and memory may keep no more for it: "
            f"mend the store; until it has taken them, nothing new is accepted"
        )

    def _look_for_room(self) -> None:
        state = self._state
        has_room = state.unstored_rows < MAX_UNSTORED_ROWS and state.unstored_bytes < MAX_UNSTORED_BYTES
        if has_room and not self.has_room:
            self._room.set()
            self.on_room()
            if self._is_said:
                self._is_said = False
                _log.info("the coordinator store has caught up enough: the shard goes on", shard=str(self._shard))
        elif not has_room and self.has_room:
            self._room.clear()
            self._say_that_there_is_no_room()

    def _say_that_there_is_no_room(self) -> None:
        now = self._clock.monotonic()
        if self._said_at is not None and now < self._said_at + SAY_AGAIN_S:
            return
        self._said_at, self._is_said = now, True
        _log.warning(
            "the coordinator store is too far behind: a leader refuses commands, a follower stops reading the log",
            shard=str(self._shard),
            unstored_rows=self._state.unstored_rows,
            unstored_log_bytes=self._state.unstored_bytes,
            failures=self._failures,
        )

    # --- restoring -----------------------------------------------------------------------------------------------

    @property
    def is_suspended(self) -> bool:
        return not self._resumed.is_set()

    def forget(self) -> None:
        """The store was released, and the state emptied: nothing is lacking."""
        self.stored_offset = self._failures = 0
        self.generation += 1
        self._resumed.set()
        self._look_for_room()

    async def suspend(self) -> None:
        """Let the flush under way end. Until `resume` the store is neither written nor asked."""
        self._resumed.clear()
        self.generation += 1
        async with self._flushing:
            pass

    def resume(self) -> None:
        """The store has all that memory knows of again."""
        self.generation += 1
        self._look_for_room()
        self._resumed.set()

    def require_store(self) -> None:
        """Refuse while suspended.

        Raises:
            CoordinatorStoreError: a snapshot is taking the store's place.
        """
        if self.is_suspended:
            raise CoordinatorStoreError(f"the store of {self._shard} is being filled from a snapshot")

    # --- writing -------------------------------------------------------------------------------------------------

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
        """Give the store all that is committed now, page by page.

        Raises:
            CoordinatorStoreError: it did not take one; it has those before, and memory keeps the rest.
        """
        async with self._flushing:
            self.require_store()
            wanted = self._applied_offset()
            while True:
                page = self._state.oldest_page() or self._state.close_page(self._applied_offset())
                self.generation += 1
                await self._write(page)
                if page.applied_offset >= wanted:
                    return

    async def _write(self, page: Page) -> None:
        try:
            with self._meter.flush_seconds.time():
                await self._thread.write(page)
        except CoordinatorStoreError:
            self._meter.flush_failures.inc()
            raise
        self._state.page_stored()
        self._meter.flushed_rows.inc(page.row_count)
        self.stored_offset = page.applied_offset
        self._look_for_room()

    # --- reading -------------------------------------------------------------------------------------------------

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

"""A process that writes to a store until it is killed, to find out what a crash leaves. Part of the contract suite."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType

from diskless_core.plugin.coordinator_store import Column, ColumnType, CoordinatorStore, TableChanges, TableSpec
from diskless_core.plugin.shard import ShardId

ROWS_PER_WRITE = 20

WRITTEN = TableSpec(
    name="written",
    key=(Column("write", ColumnType.INTEGER), Column("row", ColumnType.INTEGER)),
    values=(Column("again", ColumnType.INTEGER),),
)
"""Write number n puts the rows (n, 0, n) to (n, ROWS_PER_WRITE - 1, n) and applies offset n."""

_START_TIMEOUT_S = 300


class KillableWriter:
    """Goes on from the store's applied offset, in a process that SIGKILL ends with the context."""

    def __init__(self, make_store: Callable[[], CoordinatorStore], shard: ShardId) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._progress, its_end = spawning.Pipe(duplex=False)
        self._process = spawning.Process(target=_write_for_ever, args=(make_store, shard, its_end), daemon=True)
        self._its_end = its_end

    def wait_for(self, write: int) -> int:
        """Return once that write is known to have returned, with the number of the last one that is."""
        while True:
            if not self._progress.poll(_START_TIMEOUT_S):
                raise TimeoutError("the writing process makes no progress")
            done: int = self._progress.recv()
            if done >= write:
                return done

    def __enter__(self) -> KillableWriter:
        self._process.start()
        self._its_end.close()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self._progress.close()


def _write_for_ever(make_store: Callable[[], CoordinatorStore], shard: ShardId, progress: Connection) -> None:
    store = make_store().open(shard, (WRITTEN,))
    number = store.applied_offset()
    while True:
        number += 1
        rows = [(number, row, number) for row in range(ROWS_PER_WRITE)]
        store.write({WRITTEN.name: TableChanges(put=list(rows))}, number)
        progress.send(number)

"""Looks a partition's runs up by time, in the store and, where that lags behind, in memory.

(KIP-1164, DisklessListOffsets, "for specified timestamps".)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import TypeVar

from diskless_core.coordinator.tables import Key, Table
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.tables import BATCHES, BLOCKS
from diskless_core.diskless.time_index import Block, first_at_or_after, greatest_timestamp
from diskless_core.plugin.coordinator_store import StoreView
from diskless_core.wal.runs import Run

S = TypeVar("S", bound=Run | Block)

_BASE_OFFSET = attrgetter("base_offset")


class PartitionRuns:
    """The `RunTree` of one partition.

    Args:
        newer: runs of memory by ascending offset; of all that the store lacks, none is missing.
    """

    def __init__(self, store: StoreView, partition: PartitionKey, newer: Sequence[Run]) -> None:
        self._store = store
        self._partition = partition
        self._newer = newer

    def blocks(self, level: int, start: int, end: int) -> Sequence[Block]:
        return self._overlapping(BLOCKS, (*self._partition, level), start, end)

    def runs(self, start: int, end: int) -> Sequence[Run]:
        stored = self._overlapping(BATCHES, self._partition, start, end)
        after = stored[-1].base_offset if stored else -1
        first = max(0, bisect_right(self._newer, max(start, after), key=_BASE_OFFSET) - 1)
        newer = self._newer[first : bisect_right(self._newer, end - 1, key=_BASE_OFFSET)]
        return [*stored, *(run for run in newer if run.base_offset > after and run.last_offset >= start)]

    def _overlapping(self, table: Table[S], prefix: Key, start: int, end: int) -> list[S]:
        values = [table.decode(row) for row in self._store.scan(table.name, (*prefix, start), (*prefix, end))]
        if not values or values[0].base_offset > start:
            floor = self._store.scan(table.name, prefix, (*prefix, start), limit=1, reverse=True)
            values[:0] = [value for value in map(table.decode, floor) if value.last_offset >= start]
        return values


def latest_runs(runs: PartitionRuns, start: int, end: int) -> list[Run]:
    """The at most two runs of which one has the latest record in [start, end), by ascending offset.

    These are the first of the latest among those that begin there, and before it the run that contains `start`, unless
    it never had so late a record.
    """
    found = [run for run in runs.runs(start, start + 1) if run.base_offset < start]
    behind = found[-1].last_offset + 1 if found else start
    greatest = greatest_timestamp(runs, behind, end)
    latest = first_at_or_after(runs, greatest, behind, end) if greatest >= 0 else None
    return [run for run in (*found, latest) if run is not None and run.max_timestamp >= max(greatest, 0)]

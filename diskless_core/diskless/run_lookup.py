"""Finding batch runs: the newest ones in memory, which is what a consumer at the tail asks for, others in the store.

Pure. (KIP-1164, DisklessFindBatches.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from operator import attrgetter

from diskless_core.coordinator.tables import Key, State, Writes
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.tables import BATCHES
from diskless_core.plugin.coordinator_store import ShardStore
from diskless_core.wal.runs import Run

RECENT_RUNS = 20_000
"""Runs that memory keeps although the store has them. A memory bound, about 10 MB; what is not flushed yet stays."""

PAGE_RUNS = 256
"""Runs of one partition in one answer at most."""

ANSWER_RUNS = 5_000
"""Runs of all partitions in one answer at most: less than a megabyte, and some tens of milliseconds to write."""

FEW_RUNS = 32
"""Runs that are read first: often they are as many bytes as were asked for."""

UNLIMITED_BYTES = 2**63

_BASE_OFFSET = attrgetter("base_offset")


class RecentRuns:
    """The newest runs of each partition, without gaps from some offset on."""

    def __init__(self, state: State, limit: int = RECENT_RUNS) -> None:
        self._state = state
        self._limit = limit
        self._by_partition: dict[Key, list[Run]] = {}
        self._order: deque[Key] = deque()

    def note(self, writes: Writes) -> None:
        """Take the runs of a committed entry."""
        by_partition, order = self._by_partition, self._order
        for key, run in writes.get(BATCHES, {}).items():
            if run is not None:
                runs = by_partition.get(key[:2])
                if runs is None:
                    runs = by_partition[key[:2]] = []
                runs.append(run)
                order.append(key)
        while len(order) > self._limit and not self._state.in_memory(BATCHES, order[0])[0]:
            partition = order.popleft()[:2]
            runs = by_partition[partition]
            del runs[0]
            if not runs:
                del by_partition[partition]

    def forget(self) -> None:
        """Drop everything: what comes next does not follow what is here."""
        self._by_partition.clear()
        self._order.clear()

    def since(self, partition: PartitionKey, offset: int) -> Sequence[Run] | None:
        """Up to a page of runs from the one that contains `offset`, or else the next one, on.

        None when memory does not reach back that far.
        """
        runs = self._by_partition.get(partition)
        if not runs or runs[0].base_offset > offset:
            return None
        start = bisect_right(runs, offset, key=_BASE_OFFSET) - 1
        if runs[start].last_offset < offset:
            start += 1
        return runs[start : start + PAGE_RUNS]

    def of(self, partition: PartitionKey) -> Sequence[Run]:
        """All of a partition's runs that memory has, which includes those that the store lacks."""
        return list(self._by_partition.get(partition, ()))

    def after(self, partition: PartitionKey, offset: int) -> Sequence[Run]:
        """Up to a page of runs that begin at `offset` or later, as far as memory has them."""
        runs = self._by_partition.get(partition, [])
        start = bisect_right(runs, offset - 1, key=_BASE_OFFSET)
        return runs[start : start + PAGE_RUNS]


def stored_runs(store: ShardStore, partition: PartitionKey, offset: int, max_bytes: int = UNLIMITED_BYTES) -> list[Run]:
    """A page of the store's runs, from the one that contains `offset`, or else the next one, on.

    It may have fewer when they come to `max_bytes`.
    """
    after = (partition.topic_id, partition.partition + 1)
    found = store.scan(BATCHES.name, partition, (*partition, offset + 1), limit=1, reverse=True)
    first = BATCHES.decode(found[0]) if found else None
    start = first.base_offset if first is not None and first.last_offset >= offset else offset
    runs: list[Run] = []
    wanted = FEW_RUNS
    while wanted > 0:
        limit = min(wanted, PAGE_RUNS - len(runs))
        rows = store.scan(BATCHES.name, (*partition, start), after, limit=limit)
        runs += map(BATCHES.decode, rows)
        if len(rows) < limit or len(runs) == PAGE_RUNS:
            break
        start, total = runs[-1].base_offset + 1, total_bytes(runs)
        wanted = -(-(max_bytes - total) * len(runs) // total)
    return runs


def total_bytes(runs: Sequence[Run]) -> int:
    return sum([run.byte_size for run in runs])


def within_budget(runs: Sequence[Run], max_bytes: int) -> Sequence[Run]:
    """The first runs whose sizes come to `max_bytes`, and at least one."""
    total = 0
    for count, run in enumerate(runs, start=1):
        total += run.byte_size
        if total >= max_bytes:
            return runs[:count]
    return runs

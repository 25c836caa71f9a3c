"""Finding batch runs: the newest ones in memory, which is what a consumer at the tail asks for, others in the store.

(KIP-1164, DisklessFindBatches.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from operator import attrgetter

from diskless_core.coordinator.commands import PartitionKey, Run
from diskless_core.coordinator.schema import BATCHES
from diskless_core.coordinator.tables import State, Writes
from diskless_core.plugin.coordinator_store import ShardStore

RECENT_RUNS = 20_000
"""Runs that memory keeps although the store has them. A memory bound, about 10 MB; what is not flushed yet stays."""

PAGE_RUNS = 256
"""Runs in one answer at most."""

_BASE_OFFSET = attrgetter("base_offset")


class RecentRuns:
    """The newest runs of each partition, without gaps from some offset on."""

    def __init__(self, state: State, limit: int = RECENT_RUNS) -> None:
        self._state = state
        self._limit = limit
        self._by_partition: dict[PartitionKey, list[Run]] = {}
        self._order: deque[tuple[PartitionKey, int]] = deque()

    def note(self, writes: Writes) -> None:
        """Take the runs of a committed entry."""
        for key, run in writes.get(BATCHES, {}).items():
            if run is not None:
                partition = PartitionKey(key[0], key[1])
                self._by_partition.setdefault(partition, []).append(run)
                self._order.append((partition, run.base_offset))
        while len(self._order) > self._limit and self._stored(*self._order[0]):
            partition, _ = self._order.popleft()
            runs = self._by_partition[partition]
            del runs[0]
            if not runs:
                del self._by_partition[partition]

    def _stored(self, partition: PartitionKey, base_offset: int) -> bool:
        known, _ = self._state.in_memory(BATCHES, (*partition, base_offset))
        return not known

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

    def after(self, partition: PartitionKey, offset: int) -> Sequence[Run]:
        """Up to a page of runs that begin at `offset` or later, as far as memory has them."""
        runs = self._by_partition.get(partition, [])
        start = bisect_right(runs, offset - 1, key=_BASE_OFFSET)
        return runs[start : start + PAGE_RUNS]


def stored_runs(store: ShardStore, partition: PartitionKey, offset: int) -> list[Run]:
    """Runs of the store, from the one that contains `offset`, or else the next one, on."""
    after = (partition.topic_id, partition.partition + 1)
    found = store.scan(BATCHES.name, partition, (*partition, offset + 1), limit=1, reverse=True)
    first = BATCHES.decode(found[0]) if found else None
    start = first.base_offset if first is not None and first.last_offset >= offset else offset
    return [BATCHES.decode(row) for row in store.scan(BATCHES.name, (*partition, start), after, limit=PAGE_RUNS)]


def within_budget(runs: Sequence[Run], max_bytes: int) -> Sequence[Run]:
    """The first runs whose sizes come to `max_bytes`, and at least one."""
    total = 0
    for count, run in enumerate(runs, start=1):
        total += run.byte_size
        if total >= max_bytes:
            return runs[:count]
    return runs

"""Removes from a shard's store what replay has made garbage, page by page, and notes which objects died of it.

Each replica does it for itself, on the store's thread and apart from replay: no row that is touched here is in memory,
and what is left when there is nothing more to trim follows from the log alone. See docs/adr/0005. (KIP-1164, "WAL file
management".)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from diskless_core.coordinator.tables import Key
from diskless_core.diskless.tables import BATCHES, BLOCKS, DEAD_FILES, LIVE_FILES, TRIMS, DeadFile
from diskless_core.diskless.time_index import LEVELS
from diskless_core.plugin.coordinator_store import ShardStore, TableChanges

PAGE_ROWS = 500
"""Rows of batches in one transaction: enough to spread a commit's cost, few enough not to hold up reads."""


class Trimmed(NamedTuple):
    """What one page did. `more` says that another page may find something."""

    runs: int
    dead_files: int
    more: bool


def trim_page(store: ShardStore, now_ms: int) -> Trimmed:
    """Remove up to a page of one partition's garbage, atomically; objects whose last live run goes are dead from now.

    Sees only what the store has. A run that contains the offset below which all is garbage stays whole.
    """
    waiting = store.scan(TRIMS.name, limit=1)
    if not waiting:
        return Trimmed(0, 0, more=False)
    partition, before_offset = TRIMS.entity(waiting[0])
    rows = store.scan(BATCHES.name, partition, (*partition, before_offset), limit=PAGE_ROWS)
    runs = [run for run in map(BATCHES.decode, rows) if run.last_offset < before_offset]
    changes = _count_down(store, Counter(run.object_key for run in runs), now_ms)
    changes[BATCHES.name] = TableChanges(delete=[(*partition, run.base_offset) for run in runs])
    last_page = len(runs) < PAGE_ROWS
    changes[BLOCKS.name] = _blocks_before(store, partition, before_offset if last_page else runs[-1].last_offset + 1)
    if last_page:
        changes[TRIMS.name] = TableChanges(delete=[partition])
    store.write(changes, store.applied_offset())
    return Trimmed(len(runs), len(changes[DEAD_FILES.name].put), more=True)


def _blocks_before(store: ShardStore, partition: Key, end: int) -> TableChanges:
    """The blocks that end below an offset. One that contains it stays, and promises more than is left of it."""
    rows = (
        row
        for level in range(1, LEVELS + 1)
        for row in store.scan(BLOCKS.name, (*partition, level), (*partition, level, end))
    )
    blocks = map(BLOCKS.entity, rows)
    return TableChanges(delete=[key for key, block in blocks if block.last_offset < end])


def _count_down(store: ShardStore, removed_runs: Mapping[str, int], now_ms: int) -> dict[str, TableChanges]:
    """What becomes of the objects that had these runs.

    One that is not live any more was deleted for good before this store, filled from the log again, came to trim it.
    """
    live, dead = TableChanges(), TableChanges()
    for object_key, removed in removed_runs.items():
        key = (object_key,)
        row = store.get(LIVE_FILES.name, key)
        if row is None:
            continue
        file = LIVE_FILES.decode(row)
        if file.live_runs > removed:
            live.put.append(LIVE_FILES.row(key, file._replace(live_runs=file.live_runs - removed)))
        else:
            live.delete.append(key)
            dead.put.append(DEAD_FILES.row(key, DeadFile(now_ms, file.committed_at, file.owner_ids)))
    return {LIVE_FILES.name: live, DEAD_FILES.name: dead}

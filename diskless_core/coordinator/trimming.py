"""Removes from a shard's store what replay has made garbage, page by page, and notes which objects died of it.

Each replica does it for itself, on the store's thread and apart from replay: no row that is touched here is in memory,
and what is left when there is nothing more to trim follows from the log alone. See docs/adr/0005.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from diskless_core.coordinator.state import BATCHES, DEAD_FILES, FILES, TRIMS, DeadFile
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
    files, dead = _count_down(store, Counter(run.object_key for run in runs), now_ms)
    trims = TableChanges()
    if len(rows) < PAGE_ROWS:
        trims.delete.append(partition)
    batches = TableChanges(delete=[(*partition, run.base_offset) for run in runs])
    store.write(
        {BATCHES.name: batches, FILES.name: files, DEAD_FILES.name: dead, TRIMS.name: trims}, store.applied_offset()
    )
    return Trimmed(len(runs), len(dead.put), more=True)


def _count_down(store: ShardStore, removed_runs: Mapping[str, int], now_ms: int) -> tuple[TableChanges, TableChanges]:
    """New rows of the files that had these runs, and of those that are dead now.

    A file without a row was deleted for good before this store, filled from the log again, came to trim it.
    """
    files, dead = TableChanges(), TableChanges()
    for object_key, removed in removed_runs.items():
        row = store.get(FILES.name, (object_key,))
        if row is None:
            continue
        file = FILES.decode(row)
        file = file._replace(live_runs=file.live_runs - removed)
        files.put.append(FILES.row((object_key,), file))
        if not file.live_runs:
            dead.put.append(DEAD_FILES.row((object_key,), DeadFile(now_ms, file.committed_at, file.owner_ids)))
    return files, dead

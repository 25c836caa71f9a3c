"""How a shard is doing on this node, in figures for operators. Everything here only looks.

(KIP-1164, "Monitoring".)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diskless_core.coordinator.entries import ACCEPTANCE
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.coordinator_store import Key, StoreView, TableSpec

NO_LEADER = -1

COUNT_PAGE_ROWS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    """One shard as this node sees it.

    Attributes:
        leader: the node that the log hints at, -1 while none is known.
        leading: whether this node leads, that is, has read its own claim back.
        term: the latest claim's offset, -1 before the first.
        log_start_offset: first offset of the log that can be read.
        high_watermark: first offset of the log that is not committed yet.
        applied_offset: everything below it is applied here.
        stored_offset: everything below it is in the store too.
        pending_commands: accepted by this node and not read back from the log yet.
        snapshot_offset: what the newest snapshot that this node knows of reaches; None without one.
        snapshot_taken_at: when it was taken, in milliseconds since the epoch; None without one.
        bytes_since_snapshot: of the log, applied by this process since then.
        failure: why the shard's work on this node is over; None while it goes on.
        rows: by table; the large tables, which are not held in memory, are there only when they were counted.
        data_bytes: size of all batches that can be read; None in a shard that has none.
        objects: WAL objects that this shard knows, by stage of life.
            None where they were not counted, or the shard has none.
    """

    shard: str
    leader: int
    leading: bool
    term: int
    log_start_offset: int
    high_watermark: int
    applied_offset: int
    stored_offset: int
    pending_commands: int
    snapshot_offset: int | None
    snapshot_taken_at: int | None
    bytes_since_snapshot: int
    failure: str | None
    rows: Mapping[str, int]
    data_bytes: int | None
    objects: Mapping[str, int] | None


async def shard_status(shard: CoordinatorShard[Any], log: CoordinatorLog, *, count: bool) -> ShardStatus:
    """Look at a shard; with `count` also count what only its store has, which takes time but holds nothing up.

    Raises:
        CoordinatorLogError, CoordinatorStoreError: log or store did not answer.
    """
    bounds = await log.bounds(shard.id)
    rows = {table.name: shard.state.row_count(table) for table in shard.state.tables if table.resident}
    objects: Mapping[str, int] | None = None
    if count:
        stored, objects = await _count_stored(shard)
        rows |= stored
    acceptance = shard.state.committed(ACCEPTANCE, (0,))
    return ShardStatus(
        shard=str(shard.id),
        leader=NO_LEADER if shard.leader_hint is None else shard.leader_hint,
        leading=shard.leading,
        term=acceptance.term if acceptance is not None else -1,
        log_start_offset=bounds.start,
        high_watermark=bounds.end,
        applied_offset=shard.next_offset,
        stored_offset=shard.stored_offset,
        pending_commands=shard.pending_commands,
        snapshot_offset=shard.snapshot.applied_offset if shard.snapshot is not None else None,
        snapshot_taken_at=shard.snapshot.taken_at if shard.snapshot is not None else None,
        bytes_since_snapshot=shard.bytes_since_snapshot,
        failure=shard.failure,
        rows=rows,
        data_bytes=shard.data_bytes(),
        objects=objects,
    )


def count_rows(view: StoreView, table: TableSpec) -> int:
    """How many rows a stored table has. It reads them all, a page at a time."""
    counted = 0
    last: Key = ()
    while rows := [row for row in view.scan(table.name, last, limit=COUNT_PAGE_ROWS) if row[: len(table.key)] != last]:
        counted += len(rows)
        last = rows[-1][: len(table.key)]
    return counted


async def _count_stored(shard: CoordinatorShard[Any]) -> tuple[Mapping[str, int], Mapping[str, int] | None]:
    """Rows and objects of a snapshot that has all that was committed before; counted off the store's own thread."""
    stored = [table for table in shard.state.tables if not table.resident]
    await shard.flush()
    snapshot = await shard.with_store(lambda store: store.snapshot())

    def count() -> tuple[Mapping[str, int], Mapping[str, int] | None]:
        with snapshot as view:
            rows = {table.name: count_rows(view, table.spec) for table in stored}
            return rows, shard.count_objects(view, rows)

    return await asyncio.to_thread(count)

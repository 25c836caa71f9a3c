"""Empties the coordinator stores of a stopped broker, once it is sure that log and snapshots can fill them again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from diskless_core.broker.coordinators import SHARD_ROOMS, shard_ids
from diskless_core.cli.backends import Backends
from diskless_core.cli.shard_counts import counts_of
from diskless_core.coordinator import which_log
from diskless_core.coordinator.entries import tables_of
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.plugin.coordinator_log import CoordinatorLog, LogBounds
from diskless_core.plugin.coordinator_store import CoordinatorStore, TableSpec
from diskless_core.plugin.folders import FolderLock
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import kind_of


class RebuildRefusedError(Exception):
    """Nothing was emptied: what the stores have could not be made again."""


async def rebuild_stores(backends: Backends) -> Sequence[tuple[ShardId, tuple[int, int]]]:
    """Empty the stores of all shards, and return which log offsets the next start replays: from, to before.

    The folder is locked meanwhile as a broker locks it.

    Raises:
        RebuildRefusedError: the log does not have what the stores have.
        FolderInUseError: a broker runs on the folder.
        CoordinatorLogError, CoordinatorStoreError, WalObjectStoreError, SnapshotError: a backend failed.
    """
    folder = backends.config.data_dir.absolute()
    if not folder.is_dir():
        raise RebuildRefusedError(f"there is no folder {folder}: no broker has run with this log.dirs")
    lock = FolderLock(folder)
    lock.acquire()
    try:
        replayed = await _replayable(backends)
        store = backends.store()
        for shard, _ in replayed:
            tables = [table.spec for table in tables_of(SHARD_ROOMS[kind_of(shard)].machine())]
            await asyncio.to_thread(_clear, store, shard, tables)
        return replayed
    finally:
        lock.release()


async def _replayable(backends: Backends) -> list[tuple[ShardId, tuple[int, int]]]:
    async with backends.log() as log:
        shards = shard_ids(await counts_of(backends, log))
        bounds = {shard: await log.bounds(shard) for shard in shards}
        if all(found.end == 0 for found in bounds.values()):
            raise RebuildRefusedError("the coordinator log is empty: the stores could not be filled again")
        replayed = {
            shard: (await _replay_start(backends, log, shard, found), found.end) for shard, found in bounds.items()
        }
        for shard, (start, end) in replayed.items():
            await _read_through(log, shard, start, end)
    return list(replayed.items())


async def _read_through(log: CoordinatorLog, shard: ShardId, start: int, end: int) -> None:
    """A damaged log is found here, while the stores still have what it has not."""
    if start >= end:
        return
    async for batches in log.read(shard, start):
        if batches[-1].next_offset >= end:
            return


async def _replay_start(backends: Backends, log: CoordinatorLog, shard: ShardId, bounds: LogBounds) -> int:
    if bounds.start == 0:
        name = await which_log.name_of(log, shard, bounds)
        if name is None or name.moved_from is None:
            return 0
    async with backends.objects() as objects:
        manifest = await Snapshots.of(backends.config, objects, backends.clock).newest(shard)
    if manifest is None or manifest.applied_offset < bounds.start:
        raise RebuildRefusedError(
            f"the log of {shard} begins at offset {bounds.start}, and no snapshot reaches it: "
            f"what came before is only in the store"
        )
    return manifest.applied_offset


def _clear(store: CoordinatorStore, shard: ShardId, tables: Sequence[TableSpec]) -> None:
    opened = store.open(shard, tables)
    try:
        opened.clear()
    finally:
        opened.close()

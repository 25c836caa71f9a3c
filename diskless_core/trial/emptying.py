"""Empties what a trial has written, by the methods of the backends themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.trial.segments_apart import Copied

EMPTY_LISTINGS = 2
"""So many empty listings in a row count as empty: a write that a trial gave up may still arrive."""

PAUSE_S = 0.2
DELETE_KEYS = 500
ROUNDS = 10


async def empty_objects(store: WalObjectStore, where: str) -> str | None:
    """Delete every object that a store lists. A sentence about what stays, None if nothing does."""
    await store.start()
    try:
        empty, keys = 0, list[str]()
        for _ in range(ROUNDS):
            keys = [info.key async for page in store.list() for info in page]
            empty = 0 if keys else empty + 1
            if empty == EMPTY_LISTINGS:
                return None
            for first in range(0, len(keys), DELETE_KEYS):
                await store.delete(keys[first : first + DELETE_KEYS])
            if not keys:
                await asyncio.sleep(PAUSE_S)
        return f"{where}: {len(keys)} objects are still listed after they were deleted {ROUNDS} times" if keys else None
    finally:
        await store.stop()


async def delete_segments(storage: RemoteStorage, copied: Copied) -> None:
    """Delete every segment that was copied, or begun to be."""
    await storage.start()
    try:
        for metadata in list(copied.values()):
            await storage.delete(metadata)
            del copied[metadata.segment_id]
    finally:
        await storage.stop()


async def prune_shards(log: CoordinatorLog, shards: Collection[ShardId]) -> None:
    """Let a log forget what it can."""
    await log.start()
    try:
        for shard in shards:
            await log.prune(shard, (await log.bounds(shard)).end)
    finally:
        await log.stop()

"""Finds and deletes objects that were uploaded and never committed (KIP-1164, "Orphan files").

Only an object that was created, by its key, before a threshold is looked at. Before anything is deleted, the threshold
is written into the log of every shard as a horizon: an older object that is not committed by then never will be. So
whatever clocks say, and however late a CommitFile comes, no object goes that is, or can still be, committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.client import DisklessShard
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.schema import LIVE_FILES
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_store import CoordinatorStoreError, ShardStore
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError
from diskless_core.wal.format import WalFormatError, created_ms_of, is_older

PAGE_FILES = 500
"""Objects in one question to the shards and in one call of the object store at most."""

FIRST_SCAN_S = 600.0
"""Longest wait for the first scan of a process."""

_PAGE_ROWS = 5_000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanServices:
    """What a scan needs. `object_prefix` is what the keys of all WAL objects of the cluster begin with."""

    objects: WalObjectStore
    object_prefix: str
    shards: Mapping[int, DisklessShard]
    grace_period_ms: int
    clock: Clock
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """What a scan found.

    Attributes:
        threshold_ms: only objects created before were looked at, in milliseconds since the epoch.
        listed: objects below the prefix.
        orphans: keys of those that no shard knows.
        deleted: how many of them are surely gone.
    """

    threshold_ms: int
    listed: int
    orphans: Sequence[str]
    deleted: int


def threshold_ms(oldest_ms: Sequence[int | None], grace_period_ms: int, now_ms: int) -> int:
    """The smaller of the KIP's, the oldest live object's time plus the grace period, and now minus that period.

    Args:
        oldest_ms: creation time of each shard's oldest live object, None for a shard without any.
    """
    by_shards = [oldest + grace_period_ms for oldest in oldest_ms if oldest is not None]
    return max(0, min([now_ms - grace_period_ms, *by_shards]))


class OrphanScanner:
    """Scans now and then. All shards have to be led by this node; else a scan fails and is put off."""

    def __init__(self, services: OrphanServices, interval_ms: int) -> None:
        self._services = services
        self._interval_s = interval_ms / 1000

    async def run(self) -> None:
        """Scan for ever. What a scan misses, the next one finds."""
        pause_s = min(self._interval_s, FIRST_SCAN_S)
        while True:
            await asyncio.sleep(pause_s)
            pause_s = self._interval_s
            try:
                await self.scan(dry_run=False)
            except (CoordinatorError, CoordinatorStoreError, WalObjectStoreError) as error:
                _log.warning("the scan for orphans is put off", error=str(error))

    async def scan(self, *, dry_run: bool) -> ScanReport:
        """Look at all objects once. A dry run changes nothing, and what it calls an orphan may still be committed.

        Raises:
            CoordinatorError, CoordinatorStoreError, WalObjectStoreError: it ended early; what was deleted, is.
        """
        services = self._services
        oldest = [await _oldest_live_ms(shard) for shard in services.shards.values()]
        threshold = threshold_ms(oldest, services.grace_period_ms, services.clock.now_ms())
        if not dry_run:
            for shard in services.shards.values():
                await shard.raise_horizon(threshold)
        listed, deleted = 0, 0
        orphans: list[str] = []
        async for page in services.objects.list(f"{services.object_prefix}/"):
            listed += len(page)
            for keys in _chunks([found.key for found in page if is_older(found.key, threshold)]):
                unknown = await self._unknown(keys)
                orphans += unknown
                if unknown and not dry_run:
                    deleted += len(set(await services.objects.delete(unknown)).intersection(unknown))
        services.metrics.orphans_found.set(len(orphans))
        services.metrics.orphans_deleted.inc(deleted)
        if orphans:
            _log.info("orphans found", found=len(orphans), deleted=deleted, listed=listed, dry_run=dry_run)
        return ScanReport(threshold_ms=threshold, listed=listed, orphans=orphans, deleted=deleted)

    async def _unknown(self, keys: Sequence[str]) -> list[str]:
        known: set[str] = set()
        for shard in self._services.shards.values():
            known.update(await shard.describe_files(keys))
        return [key for key in keys if key not in known]


def _chunks(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[start : start + PAGE_FILES] for start in range(0, len(keys), PAGE_FILES))


async def _oldest_live_ms(shard: DisklessShard) -> int | None:
    await shard.shard.flush()
    oldest: int | None = None
    after: tuple[str, ...] = ()
    while True:
        page = await shard.shard.with_store(partial(_live_keys, after))
        for key in page:
            try:
                created_ms = created_ms_of(key)
            except WalFormatError:
                continue
            oldest = created_ms if oldest is None else min(oldest, created_ms)
        if len(page) < _PAGE_ROWS:
            return oldest
        after = (page[-1] + "\0",)


def _live_keys(start: tuple[str, ...], store: ShardStore) -> list[str]:
    return [str(row[0]) for row in store.scan(LIVE_FILES.name, start, limit=_PAGE_ROWS)]

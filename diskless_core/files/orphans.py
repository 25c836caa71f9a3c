"""Finds and deletes objects that were uploaded and never committed (KIP-1164, "Orphan files").

What may be an orphan, a plugin says; all that keeps data safe is here. Before anything is deleted, the threshold is
written into the log of every shard as a horizon: an object that was created before, by its key, and is not committed by
then never will be. After that each shard is asked for each candidate, by a leader that proves to be one. So whatever
clocks and plugins say, and however late a CommitFile comes, no object goes that is, or can still be, committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from diskless_core.clock_watch import ClockWatch
from diskless_core.coordinator.errors import ClockSkewError, CoordinatorError
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.peer_checks import MAX_FILES
from diskless_core.metrics import Metrics
from diskless_core.passed_time import Passed
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanDetectionError, OrphanSearch
from diskless_core.plugin.wal_object_store import ObjectInfo, WalObjectStore, WalObjectStoreError

PAGE_FILES = MAX_FILES
"""Objects in one question to the shards and in one call of the object store at most."""

FIRST_SCAN_S = 600.0
"""Longest wait for the first scan of a process, or of a node that has to scan from now on."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanServices:
    """What a scan needs.

    Attributes:
        objects_source: makes further stores like `objects` for detectors, see `OrphanSearch.objects`.
        object_prefix: what the keys of all WAL objects of the cluster begin with, without the '/' after it.
        snapshot_prefix: the same of the shards' snapshots.
        shards: all diskless shards of the cluster, wherever they are led.
        shards_in_use: asks, strictly, for the indexes of those that have partitions, `shards` among them or not.
        scans_here: whether it is this node's turn to scan by itself. Where two take it for theirs, work is done twice.
    """

    objects: WalObjectStore
    objects_source: Callable[[], WalObjectStore] = field(repr=False)
    object_prefix: str
    snapshot_prefix: str
    detection: OrphanDetection
    shards: Mapping[int, DisklessCoordinator]
    shards_in_use: Callable[[], Awaitable[Collection[int]]]
    scans_here: Callable[[], bool]
    grace_period_ms: int
    clock_watch: ClockWatch
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """What a scan found.

    Attributes:
        threshold_ms: only objects created before were looked for, in milliseconds since the epoch.
        listed: objects that the detector looked at.
        candidates: old objects that the detector named and the shards were asked for.
        orphans: keys of those that no shard knows.
        deleted: how many of them are surely gone.
    """

    threshold_ms: int
    listed: int
    candidates: int
    orphans: Sequence[str]
    deleted: int


def threshold_ms(oldest_ms: Sequence[int | None], grace_period_ms: int, passed: Passed) -> int:
    """The smaller of the KIP's, the oldest live object's time plus the grace period, and what is certainly that old.

    Args:
        oldest_ms: creation time of each shard's oldest live object, None for a shard without any.
    """
    by_shards = [oldest + grace_period_ms for oldest in oldest_ms if oldest is not None]
    return min([passed.before(grace_period_ms), *by_shards])


class OrphanScanner:
    """Scans now and then. A shard that does not answer ends a scan; what was not found then, the next one finds."""

    def __init__(self, services: OrphanServices, interval_ms: int) -> None:
        self._services = services
        self._interval_s = interval_ms / 1000

    async def run(self) -> None:
        """Scan for ever, while it is this node's turn."""
        look_again_s = min(self._interval_s, FIRST_SCAN_S)
        pause_s = look_again_s
        while True:
            await asyncio.sleep(pause_s)
            pause_s = look_again_s
            if self._services.scans_here():
                await self._try_scan()
                pause_s = self._interval_s

    async def _try_scan(self) -> None:
        try:
            await self.scan(dry_run=False)
        except (CoordinatorError, WalObjectStoreError, OrphanDetectionError) as error:
            self._services.metrics.orphan_scan_failures.inc()
            _log.warning("the scan for orphans is put off", error=str(error))
        except Exception:
            self._services.metrics.orphan_scan_failures.inc()
            _log.error("a defect, of the orphan_detection plugin perhaps, ended the scan for orphans", exc_info=True)

    async def scan(self, *, dry_run: bool) -> ScanReport:
        """Look at all objects once. A dry run changes nothing, and what it calls an orphan may still be committed.

        Raises:
            ClockSkewError: the clock of a live broker is off, or the threshold is too late by the clock of a shard's
                leader; nothing was deleted.
            CoordinatorError, WalObjectStoreError, OrphanDetectionError: it ended early; what was deleted, is.
        """
        services = self._services
        await self._require_all_shards()
        threshold = await self._threshold_ms()
        if not dry_run:
            await asyncio.gather(*(shard.raise_horizon(threshold) for shard in services.shards.values()))
        listing = _Listing(services.objects)
        search = OrphanSearch(
            prefix=f"{services.object_prefix}/",
            threshold_ms=threshold,
            list_objects=listing.list_objects,
            objects=services.objects_source,
            snapshot_prefix=services.snapshot_prefix,
            note_listed=listing.note,
        )
        candidates, deleted = 0, 0
        orphans: dict[str, None] = {}
        async for page in services.detection.find(search):
            for keys in _chunks([key for key in page if search.is_candidate(key) and key not in orphans]):
                candidates += len(keys)
                unknown = await self._unknown(keys)
                orphans.update(dict.fromkeys(unknown))
                if unknown and not dry_run:
                    # What is listed was sealed before: of a shard that is used only from now on it has nothing.
                    await self._require_all_shards()
                    gone = len(set(await services.objects.delete(unknown)).intersection(unknown))
                    services.metrics.orphans_deleted.inc(gone)
                    deleted += gone
        services.metrics.orphans_found.set(len(orphans))
        if orphans:
            _log.info("orphans found", found=len(orphans), deleted=deleted, candidates=candidates, dry_run=dry_run)
        return ScanReport(
            threshold_ms=threshold,
            listed=listing.listed,
            candidates=candidates,
            orphans=list(orphans),
            deleted=deleted,
        )

    async def _require_all_shards(self) -> None:
        strangers = set(await self._services.shards_in_use()).difference(self._services.shards)
        if strangers:
            raise CoordinatorError(
                f"partitions are in the shards {sorted(strangers)}, of which this node does not know: "
                f"diskless.metadata.topic.num.partitions is smaller here than on another node"
            )

    async def _threshold_ms(self) -> int:
        services = self._services
        passed = services.clock_watch.passed()
        if passed.is_held:
            raise ClockSkewError(
                "the clock of a live broker is off, so no object is certainly old enough to be an orphan. The broker's "
                "log says whose clock it is: set it and scan again"
            )
        oldest = await asyncio.gather(*(shard.oldest_file_ms() for shard in services.shards.values()))
        return threshold_ms(oldest, services.grace_period_ms, passed)

    async def _unknown(self, keys: Sequence[str]) -> list[str]:
        known = await asyncio.gather(*(shard.describe_files(keys) for shard in self._services.shards.values()))
        known_anywhere = {key for some in known for key in some}
        return [key for key in keys if key not in known_anywhere]


class _Listing:
    """Lists for a detector, and counts."""

    def __init__(self, objects: WalObjectStore) -> None:
        self._objects = objects
        self.listed = 0

    def note(self, objects: int) -> None:
        self.listed += objects

    async def list_objects(self, prefix: str) -> AsyncIterator[Sequence[ObjectInfo]]:
        async for page in self._objects.list(prefix):
            self.note(len(page))
            yield page


def _chunks(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """The keys without repetitions, as many at once as may be asked for."""
    distinct = list(dict.fromkeys(keys))
    return (distinct[start : start + PAGE_FILES] for start in range(0, len(distinct), PAGE_FILES))

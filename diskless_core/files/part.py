"""The end of data's life on one node, as a part: retention, trimming, deletion, and the search for orphans.

(KIP-1164, "WAL file management", "Orphan files".) A broker, the simulation, tests and benchmarks make it alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from diskless_core.background import Background
from diskless_core.clock import Clock
from diskless_core.clock_watch import ClockWatch
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.snapshots import snapshot_prefix
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.shard import DisklessShard
from diskless_core.files.deletion import DeletionServices, FileDeleter
from diskless_core.files.orphans import OrphanScanner, OrphanServices
from diskless_core.files.retention_worker import RetentionSchedule, RetentionWorker, RulesOf
from diskless_core.files.trimmer import Trimmer
from diskless_core.metrics import Metrics
from diskless_core.plugin.orphan_detection import OrphanDetection
from diskless_core.plugin.wal_object_store import WalObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSettings:
    """When data ends, and where objects and snapshots are.

    Attributes:
        delete_delay_ms: between an object's death and its deletion.
        object_prefix, snapshot_prefix: what keys begin with, without the '/' after it.
        orphan_grace_period_ms: how old an object has to be before it may be an orphan.
    """

    retention: RetentionSchedule
    delete_delay_ms: int
    object_prefix: str
    snapshot_prefix: str
    orphan_grace_period_ms: int
    orphan_scan_interval_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> FilesSettings:
        """The settings of a broker."""
        return cls(
            retention=RetentionSchedule(
                initial_delay_ms=config.log_initial_task_delay_ms,
                interval_ms=config.log_retention_check_interval_ms,
            ),
            delete_delay_ms=config.diskless_file_delete_delay_ms,
            object_prefix=config.diskless_wal_object_prefix,
            snapshot_prefix=snapshot_prefix(config),
            orphan_grace_period_ms=config.diskless_coordinator_orphan_scan_grace_period_ms,
            orphan_scan_interval_ms=config.diskless_coordinator_orphan_scan_interval_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesNeighbours:
    """What the end of data stands on.

    Attributes:
        objects, objects_source: the store, and what makes further ones like it for detectors.
        shards: the Diskless shards with a replica on this node.
        coordinators: all Diskless coordinators, wherever they are led.
        shards_in_use, scans_here: as in `OrphanServices`.
        rules_of: what retention a partition's topic asks for.
        on_deleted: called with the key of each object that is gone.
    """

    objects: WalObjectStore
    objects_source: Callable[[], WalObjectStore]
    detection: OrphanDetection
    shards: Mapping[int, DisklessShard]
    coordinators: Mapping[int, DisklessCoordinator]
    shards_in_use: Callable[[], Awaitable[Collection[int]]]
    scans_here: Callable[[], bool]
    rules_of: RulesOf
    on_deleted: Callable[[str], None]
    clock: Clock
    clock_watch: ClockWatch
    metrics: Metrics


class Files:
    """Keeps a node's disk and bucket from filling up with what nobody can read any more.

    Attributes:
        retention: moves the log starts of partitions.
        trimmers: remove from each shard's store what lies before them.
        deleters: end the objects of each shard that hold nothing alive, in the order of `trimmers`.
        orphans: looks for objects that nobody committed, now and then and on demand.
    """

    def __init__(self, settings: FilesSettings, neighbours: FilesNeighbours) -> None:
        shards, clock, metrics = neighbours.shards, neighbours.clock, neighbours.metrics
        deletion = DeletionServices(
            objects=neighbours.objects,
            shards=shards,
            coordinators=neighbours.coordinators,
            delete_delay_ms=settings.delete_delay_ms,
            clock=clock,
            metrics=metrics,
            on_deleted=neighbours.on_deleted,
        )
        orphans = OrphanServices(
            objects=neighbours.objects,
            objects_source=neighbours.objects_source,
            object_prefix=settings.object_prefix,
            snapshot_prefix=settings.snapshot_prefix,
            detection=neighbours.detection,
            shards=neighbours.coordinators,
            shards_in_use=neighbours.shards_in_use,
            scans_here=neighbours.scans_here,
            grace_period_ms=settings.orphan_grace_period_ms,
            clock_watch=neighbours.clock_watch,
            metrics=metrics,
        )
        self.retention = RetentionWorker(shards, neighbours.rules_of, settings.retention)
        self.deleters = [FileDeleter(index, deletion) for index in shards]
        self.trimmers = [
            Trimmer(shard, clock, deleter.wake) for shard, deleter in zip(shards.values(), self.deleters, strict=True)
        ]
        self.orphans = OrphanScanner(orphans, settings.orphan_scan_interval_ms)
        self._loops = Background()

    def start(self) -> None:
        """Begin. The shards have been started."""
        for loop in (self.retention.run, *(one.run for one in self.trimmers), *(one.run for one in self.deleters)):
            self._loops.run(loop, loop.__qualname__)
        self._loops.run(self.orphans.run, "orphan scan")

    async def stop(self) -> None:
        """Stop; what is under way is done again by the next start."""
        await self._loops.stop()
        await asyncio.gather(*(deleter.stop() for deleter in self.deleters))

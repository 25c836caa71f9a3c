"""All background work at the end of data's life, for all shards of a node: retention, trimming, deletion.

(KIP-1164, "WAL file management".)
"""

from __future__ import annotations

import asyncio

from diskless_core.background import for_ever
from diskless_core.files.deletion import DeletionServices, FileDeleter
from diskless_core.files.retention_worker import RetentionSchedule, RetentionWorker, RulesOf
from diskless_core.files.trimmer import Trimmer


class FileMaintenance:
    """Keeps a node's disk and bucket from filling up with what nobody can read any more."""

    def __init__(self, services: DeletionServices, rules_of: RulesOf, schedule: RetentionSchedule) -> None:
        self._services = services
        self.retention = RetentionWorker(services.shards, rules_of, schedule, services.clock)
        self.deleters = [FileDeleter(index, services) for index in services.shards]
        self.trimmers = [
            Trimmer(shard, services.clock, deleter.wake)
            for shard, deleter in zip(services.shards.values(), self.deleters, strict=True)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin. The shards have been started."""
        loops = [self.retention.run, *(one.run for one in self.trimmers), *(one.run for one in self.deleters)]
        self._tasks = [asyncio.create_task(for_ever(loop), name=loop.__qualname__) for loop in loops]

    async def stop(self) -> None:
        """Stop; what is under way is done again by the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(deleter.stop() for deleter in self.deleters))

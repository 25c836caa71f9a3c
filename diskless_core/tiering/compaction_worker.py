"""Compacts topics that are tiered, every so often (KIP-405, `remote.log.manager.task.interval.ms`)."""

from __future__ import annotations

import asyncio

import structlog

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.tiering.compaction import Compactor

_log = structlog.get_logger(__name__)


class CompactionWorker:
    """Looks again and again. A partition that has nothing new to compact costs no I/O."""

    def __init__(self, compactor: Compactor, interval_ms: int) -> None:
        self._compactor = compactor
        self._interval_s = interval_ms / 1000

    async def run(self) -> None:
        """Look for ever, the first time after one interval."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._compactor.compact_due()
            except (CoordinatorError, CoordinatorStoreError) as error:
                _log.warning("compaction is put off", error=str(error))

"""Trims a shard's store in the background, on every node that has a replica of the shard.

(KIP-1164, "WAL file management".)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.tables import Writes
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import TRIMS
from diskless_core.diskless.trimming import trim_page
from diskless_core.plugin.coordinator_store import CoordinatorStoreError

PAUSE_S = 1.0
"""Between rounds: what becomes garbage meanwhile is flushed and trimmed together."""

_log = structlog.get_logger(__name__)


class Trimmer:
    """Works whenever replay has left garbage, a page at a time, so that others get at the store in between."""

    def __init__(self, shard: DisklessShard, clock: Clock, on_dead_files: Callable[[], None]) -> None:
        self._shard = shard
        self._clock = clock
        self._on_dead_files = on_dead_files
        self._wake = asyncio.Event()
        self._wake.set()
        shard.on_restore(self._wake.set)
        shard.on_commit(self._committed)

    def _committed(self, writes: Writes) -> None:
        if TRIMS in writes:
            self._wake.set()

    async def run(self) -> None:
        """Trim what there is, and then whatever comes."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._shard.is_followed:
                continue
            try:
                await self.trim()
            except CoordinatorStoreError as error:
                _log.warning("trimming is put off", shard=str(self._shard.id), error=str(error))
                self._wake.set()
            await asyncio.sleep(PAUSE_S)

    async def trim(self) -> None:
        """Remove all garbage that there is now.

        Raises:
            CoordinatorStoreError: some of it is left.
        """
        await self._shard.flush()
        more = True
        while more:
            trimmed = await self._shard.with_store(partial(trim_page, now_ms=self._clock.now_ms()))
            more = trimmed.more
            if trimmed.dead_files:
                self._on_dead_files()

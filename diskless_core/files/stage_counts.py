"""Counts the objects that a shard knows by their stage of life, now and then, a page at a time.

(KIP-1164, "WAL file management", "Monitoring".)
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial

import structlog

from diskless_core.diskless.file_stages import Stage, ending_files, stage_of
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import LIVE_FILES
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_store import CoordinatorStoreError, ShardStore

INTERVAL_S = 300.0
"""Between counts: what they cost grows with the number of objects."""

PAUSE_S = 0.02
"""Between pages, so that others get at the store."""

PAGE_ROWS = 1_000

_log = structlog.get_logger(__name__)


class StageCounter:
    """Sets `diskless_wal_objects` of one shard, on every node that has a replica of it."""

    def __init__(self, index: int, shard: DisklessShard, metrics: Metrics) -> None:
        self._index = index
        self._shard = shard
        self._gauge = metrics.wal_objects

    async def run(self) -> None:
        """Count for ever. A store that fails leaves the figures as they were."""
        while True:
            await self._shard.until_leadership(lambda: self._shard.is_readable)
            try:
                for stage, objects in (await self.count()).items():
                    self._gauge.labels(str(self._shard.id), stage.value).set(objects)
            except CoordinatorStoreError as error:
                _log.warning("objects could not be counted", shard=str(self._shard.id), error=str(error))
            await asyncio.sleep(INTERVAL_S)

    async def count(self) -> Mapping[Stage, int]:
        """How many objects the store has in each stage; roughly, where they change meanwhile.

        Raises:
            CoordinatorStoreError: the store failed.
        """
        counts = Counter(dict.fromkeys(Stage, 0))
        after = ""
        while ending := await self._shard.with_store(partial(ending_files, after=after, limit=PAGE_ROWS)):
            counts.update(stage_of(self._index, file) for file in ending)
            after = ending[-1].object_key
            await asyncio.sleep(PAUSE_S)
        after = ""
        while live := await self._shard.with_store(partial(_live_keys, after=after)):
            counts[Stage.LIVE] += len(live)
            after = live[-1]
            await asyncio.sleep(PAUSE_S)
        return counts


def _live_keys(store: ShardStore, after: str) -> list[str]:
    return [str(row[0]) for row in store.scan(LIVE_FILES.name, (after + "\0",), limit=PAGE_ROWS)]

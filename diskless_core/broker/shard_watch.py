"""Exports how the coordinator shards of a node are doing: by each scrape, and what takes a question, now and then.

(KIP-1164, "Monitoring".)
"""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from diskless_core.broker.coordinators import Coordinators
from diskless_core.diskless.tables import PRODUCERS
from diskless_core.files.stage_counts import StageCounter
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_log import CoordinatorLogError

LOOK_S = 5.0
"""Between questions to the log where it begins and ends."""

LOOK_LIMIT_S = 10.0
"""After which a log that has not answered counts as one that fails."""

_log = structlog.get_logger(__name__)


class ShardWatch:
    """Keeps the metrics of all shards of a node."""

    def __init__(self, coordinators: Coordinators, metrics: Metrics) -> None:
        self._coordinators = coordinators
        self._metrics = metrics
        self._stage_counters = [StageCounter(index, shard, metrics) for index, shard in coordinators.diskless.items()]
        for shard in coordinators.all():
            metrics.watch_shard(str(shard.id), shard)
        for diskless in coordinators.diskless.values():
            metrics.watch_producers(str(diskless.id), partial(diskless.state.row_count, PRODUCERS))

    async def run(self) -> None:
        """Ask for ever."""
        async with asyncio.TaskGroup() as loops:
            for loop in (self._look_at_logs, *(counter.run for counter in self._stage_counters)):
                loops.create_task(loop())

    async def _look_at_logs(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_LIMIT_S):
                    await self.look_at_logs()
                self._coordinators.log_failure = None
            except (CoordinatorLogError, TimeoutError) as error:
                self._coordinators.log_failure = str(error) or "it does not answer"
                _log.warning("the log does not say where it ends", error=self._coordinators.log_failure)
            await asyncio.sleep(LOOK_S)

    async def look_at_logs(self) -> None:
        """Export where each shard's log begins and ends.

        Raises:
            CoordinatorLogError: the log did not answer.
        """
        for shard in self._coordinators.all():
            bounds = await self._coordinators.log.bounds(shard.id)
            self._metrics.coordinator_log_start_offset.labels(str(shard.id)).set(bounds.start)
            self._metrics.coordinator_log_end_offset.labels(str(shard.id)).set(bounds.end)

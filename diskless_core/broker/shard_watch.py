"""Exports how the coordinator shards of a node are doing: by each scrape, and what takes a question, now and then.

(KIP-1164, "Monitoring".)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import structlog

from diskless_core.broker.coordinators import Coordinators
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.diskless.tables import PRODUCERS
from diskless_core.files.stage_counts import StageCounter
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.shard import ShardId
from diskless_core.side_by_side import together

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
        self._ends: dict[ShardId, int] = {}
        self._turn = 0
        self._stage_counters = [StageCounter(index, shard, metrics) for index, shard in coordinators.diskless.items()]
        for shard in coordinators.all():
            metrics.watch_shard(str(shard.id), shard)
        for diskless in coordinators.diskless.values():
            metrics.watch_producers(str(diskless.id), partial(diskless.state.row_count, PRODUCERS))

    async def run(self) -> None:
        """Ask for ever."""
        await together(loop() for loop in (self._look_at_logs, *(counter.run for counter in self._stage_counters)))

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
        """Export where each shard's log begins and ends, as far as is known.

        Raises:
            CoordinatorLogError: the log did not answer.
        """
        for shard in self._to_ask():
            self._ends.pop(shard.id, None)  # if there is no answer, it is asked about until there is one
            bounds = await self._coordinators.log.bounds(shard.id)
            self._ends[shard.id] = bounds.end
            self._metrics.coordinator_log_start_offset.labels(str(shard.id)).set(bounds.start)
        for shard in self._coordinators.all():
            if not shard.is_followed:
                self._ends.pop(shard.id, None)
            end = max(self._ends.get(shard.id, 0), shard.next_offset)
            self._metrics.coordinator_log_end_offset.labels(str(shard.id)).set(end)

    def _to_ask(self) -> Sequence[CoordinatorShard[Any]]:
        """All at first; then, of a log that brokers share, one in turn: each question may cost a request there."""
        shards = self._coordinators.followed()
        if not self._coordinators.log.is_shared:
            return shards
        unknown = [shard for shard in shards if shard.id not in self._ends]
        if unknown:
            return unknown
        self._turn = (self._turn + 1) % len(shards)
        return [shards[self._turn]]

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
from diskless_core.side_by_side import side_by_side, together

LOOK_S = 5.0
"""Between questions to the log where it begins and ends."""

LOOK_LIMIT_S = 5.0
"""After which a log that has not answered for a shard counts as one that fails there."""

AT_ONCE = 2
"""So many questions are under way together, and about so many shards without an answer: a log may have few threads."""

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
                await self.look_at_logs()
                self._coordinators.log_failure = None
            except CoordinatorLogError as error:
                self._coordinators.log_failure = str(error)
            await asyncio.sleep(LOOK_S)

    async def look_at_logs(self) -> None:
        """Export where each shard's log begins and ends, as far as is known.

        One shard that has no answer is not the log's failure: who leads that one notices by itself, and the other
        shards of this node are well. It is asked about again and again until there is an answer.

        Raises:
            CoordinatorLogError: the log did not answer for any shard that was asked about.
        """
        asked = self._to_ask()
        errors = await side_by_side(self._ask, asked, AT_ONCE)
        others = [shard for shard in self._coordinators.followed() if shard not in asked and shard.id in self._ends]
        if others and None not in errors:
            errors.append(await self._ask(others[self._turn % len(others)]))
        for shard in self._coordinators.all():
            if not shard.is_followed:
                self._ends.pop(shard.id, None)
            end = max(self._ends.get(shard.id, 0), shard.next_offset)
            self._metrics.coordinator_log_end_offset.labels(str(shard.id)).set(end)
        failures = [error for error in errors if error is not None]
        if failures and len(failures) == len(errors):
            raise CoordinatorLogError(failures[-1])

    async def _ask(self, shard: CoordinatorShard[Any]) -> str | None:
        """Ask the log about one shard; what went wrong, if anything did."""
        self._ends.pop(shard.id, None)  # if there is no answer, it is asked about until there is one
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                bounds = await self._coordinators.log.bounds(shard.id)
        except (CoordinatorLogError, TimeoutError) as error:
            reason = str(error) or f"it has not answered within {LOOK_LIMIT_S} s"
            _log.warning("the log does not say where it ends", shard=str(shard.id), error=reason)
            return reason
        self._ends[shard.id] = bounds.end
        self._metrics.coordinator_log_start_offset.labels(str(shard.id)).set(bounds.start)
        return None

    def _to_ask(self) -> Sequence[CoordinatorShard[Any]]:
        """All at first; then, of a log that brokers share, one in turn: each question may cost a request there.

        Beside it some of those that had no answer the last time.
        """
        shards = self._coordinators.followed()
        known = [shard for shard in shards if shard.id in self._ends]
        silent = [shard for shard in shards if shard.id not in self._ends]
        if not known or not self._coordinators.log.is_shared:
            return shards
        self._turn += 1
        asked_again = [silent[(self._turn + number) % len(silent)] for number in range(min(AT_ONCE, len(silent)))]
        return [known[self._turn % len(known)], *asked_again]

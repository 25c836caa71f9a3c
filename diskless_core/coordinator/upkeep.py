"""What leaders do for their shards: they name their logs, and keep their feature level at the cluster's."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.feature_level import FEATURE_LEVELS
from diskless_core.coordinator.log_identity import LOG_NAMES
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import Writes
from diskless_core.plugin.retrying import Backoff

RETRY = Backoff(first_ms=200, max_ms=2_000)

_log = structlog.get_logger(__name__)


class Upkeep:
    """Looks after the shards that this node leads, as soon as the cluster has a name.

    A log that has no id gets one. The level of `diskless.version` is raised to the one that the cluster shard has on
    this node. That may be behind what the cluster has decided, and never ahead of it: every broker can read a lower
    level than the one in force.

    Args:
        cluster: the cluster shard.
        shards: all others with a replica on this node.
    """

    def __init__(self, cluster: CoordinatorShard[Any], shards: Sequence[CoordinatorShard[Any]], clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._changed = {shard.id: asyncio.Event() for shard in shards}
        cluster.on_commit(self._notice)

    async def follow(self, shard: CoordinatorShard[Any]) -> None:
        """Look after one shard, whenever this node leads it."""
        changed, attempt = self._changed[shard.id], 0
        while True:
            try:
                await shard.until_leading()
            except CoordinatorError:
                return  # the shard's work on this node is over, and it has said why
            changed.clear()
            try:
                await self._bring_up(shard)
                attempt = 0
            except CoordinatorError as error:
                attempt += 1
                _log.info("a shard is not brought up to date yet", shard=str(shard.id), error=str(error))
                await asyncio.sleep(RETRY.pause_s(attempt, self._clock))
                continue
            await changed.wait()

    async def _bring_up(self, shard: CoordinatorShard[Any]) -> None:
        level = self._cluster.level
        needs_name = self._cluster.log_id is not None and shard.log_id is None
        if needs_name or shard.level < level:
            log_id = self._clock.new_uuid() if needs_name else None
            await shard.submit(lambda command: _bring_up(command, log_id, level))
            _log.info("a shard is up to date", shard=str(shard.id), log_id=str(shard.log_id), level=shard.level)

    def _notice(self, writes: Writes) -> None:
        if FEATURE_LEVELS in writes or LOG_NAMES in writes:
            for changed in self._changed.values():
                changed.set()


def _bring_up(command: Command[Any], log_id: uuid.UUID | None, level: int) -> None:
    if log_id is not None:
        command.name_log(log_id)
    if command.level < level:
        command.raise_level(level)

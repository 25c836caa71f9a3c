"""The leaders' work on a node that keeps the level of `diskless.version` of their shards at the cluster's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.feature_level import FEATURE_LEVELS
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import Writes
from diskless_core.plugin.retrying import Backoff

RETRY = Backoff(first_ms=200, max_ms=2_000)

_log = structlog.get_logger(__name__)


class LevelFollower:
    """Raises shards that this node leads to the level that the cluster shard has on this node.

    That may be behind what the cluster has decided, and never ahead of it: a lower level than the one in force can be
    read by every broker.

    Args:
        cluster: the cluster shard.
        shards: all others with a replica on this node.
    """

    def __init__(self, cluster: CoordinatorShard[Any], shards: Sequence[CoordinatorShard[Any]], clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._raised = {shard.id: asyncio.Event() for shard in shards}
        cluster.on_commit(self._notice)

    async def follow(self, shard: CoordinatorShard[Any]) -> None:
        """Keep one shard at the cluster's level, whenever this node leads it."""
        raised, attempt = self._raised[shard.id], 0
        while True:
            try:
                await shard.until_leading()
            except CoordinatorError:
                return  # the shard's work on this node is over, and it has said why
            raised.clear()
            try:
                await self._bring_up(shard)
                attempt = 0
            except CoordinatorError as error:
                attempt += 1
                _log.info("the level of a shard is not raised yet", shard=str(shard.id), error=str(error))
                await asyncio.sleep(RETRY.pause_s(attempt, self._clock))
                continue
            await raised.wait()

    async def _bring_up(self, shard: CoordinatorShard[Any]) -> None:
        level = self._cluster.level
        if shard.level < level:
            await shard.submit(lambda command: _raise(command, level))
            _log.info("a shard is written at the cluster's feature level", shard=str(shard.id), level=level)

    def _notice(self, writes: Writes) -> None:
        if FEATURE_LEVELS in writes:
            for raised in self._raised.values():
                raised.set()


def _raise(command: Command[Any], level: int) -> None:
    if command.level < level:
        command.raise_level(level)

"""Of which shards a node has a copy: of those that a nomination names it for.

A broker that is nominated for a shard, as leader or follower, follows it. It goes on for a while when it is not named
any more, so that nominations that come and go cost nothing. Of all other shards it only knows who should lead them, by
the nominations.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import structlog

from diskless_core.clock import Clock
from diskless_core.cluster.nominated_leaders import NominatedLeaders
from diskless_core.coordinator.errors import CoordinatorError, CoordinatorLoadingError
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.shard import ShardId

KEPT_SESSIONS = 6
"""For so many sessions of a broker a copy is kept up that it is not nominated for any more."""

CATCH_UP_S = 30.0
"""How long somebody who needs a copy waits for it."""

RETRY = Backoff(first_ms=1_000, max_ms=30_000)
"""While a shard cannot be followed."""

_log = structlog.get_logger(__name__)


class FollowedShards:
    """Has shards followed while this node is nominated for them.

    Args:
        kept_s: how long a copy is kept up after that.
    """

    def __init__(self, node_id: int, nominated: NominatedLeaders, clock: Clock, *, kept_s: float) -> None:
        self._node_id = node_id
        self._kept_s = kept_s
        self._nominated = nominated
        self._clock = clock
        self._holders: Counter[ShardId] = Counter()
        self._wanted_until: dict[ShardId, float] = {}

    def want(self, shard: CoordinatorShard[Any]) -> None:
        """Follow a shard for a while: somebody asks for what only a copy has."""
        self._wanted_until[shard.id] = self._clock.monotonic() + self._kept_s
        if not shard.is_followed:
            self._nominated.wake()

    @asynccontextmanager
    async def having(self, shards: Collection[CoordinatorShard[Any]]) -> AsyncIterator[None]:
        """Have copies of all these shards that have caught up, as long as it lasts.

        Raises:
            CoordinatorLoadingError: one has not caught up in time.
            CoordinatorError: one never will.
        """
        self._holders.update(shard.id for shard in shards)
        self._nominated.wake()
        try:
            try:
                async with asyncio.timeout(CATCH_UP_S):
                    for shard in shards:
                        await shard.until_readable()
            except TimeoutError:
                behind = ", ".join(str(shard.id) for shard in shards if not shard.is_readable)
                raise CoordinatorLoadingError(f"this broker has no copy yet that has caught up: {behind}") from None
            yield
        finally:
            for shard in shards:
                self.want(shard)
            self._holders.subtract(shard.id for shard in shards)
            self._nominated.wake()

    async def start(self, shard: CoordinatorShard[Any]) -> None:
        """Start a shard, with a copy or without, by what this node has read of the cluster shard.

        Errors as `CoordinatorShard.start`.
        """
        if self._is_named(shard):
            await shard.start()
        else:
            shard.start_without_copy()

    async def look_after(self, shard: CoordinatorShard[Any]) -> None:
        """Follow a shard that was started, or no more, as it is nominated; until its work on this node is over."""
        failures = 0
        while shard.failure is None:
            if shard.is_followed:
                if await self._is_let_go(shard) and shard.failure is None:
                    await shard.unfollow()
                continue
            await self._nominated.until(lambda: self._is_wanted(shard))
            if await self._follows(shard):
                failures = 0
                continue
            failures += 1
            await asyncio.sleep(RETRY.pause_s(failures, self._clock))
            if not self._is_wanted(shard):
                await self._has_stayed_away(shard)
                shard.forget_failure()

    async def _follows(self, shard: CoordinatorShard[Any]) -> bool:
        """Follow a shard, unless it is followed already; whether it is now."""
        if shard.is_followed:
            return True
        try:
            await shard.follow()
        except (CoordinatorError, CoordinatorLogError, CoordinatorStoreError) as error:
            _log.error(
                "this broker is nominated for a shard and cannot follow it; it is tried again",
                shard=str(shard.id),
                error=str(error),
            )
        return shard.is_followed

    async def _is_let_go(self, shard: CoordinatorShard[Any]) -> bool:
        await self._nominated.until(lambda: not self._is_held(shard))
        return await self._has_stayed_away(shard) and not shard.leading and not self._is_wanted(shard)

    async def _has_stayed_away(self, shard: CoordinatorShard[Any]) -> bool:
        """Whether this node is not nominated for a while to come."""
        try:
            async with asyncio.timeout(self._kept_s):
                await self._nominated.until(lambda: self._is_held(shard))
        except TimeoutError:
            return True
        return False

    def _is_held(self, shard: CoordinatorShard[Any]) -> bool:
        return self._is_named(shard) or self._holders[shard.id] > 0

    def _is_wanted(self, shard: CoordinatorShard[Any]) -> bool:
        return self._is_held(shard) or self._wanted_until.get(shard.id, 0.0) > self._clock.monotonic()

    def _is_named(self, shard: CoordinatorShard[Any]) -> bool:
        return self._nominated.names(shard.id, self._node_id)

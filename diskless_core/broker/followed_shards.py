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

WANTED_COPIES = 8
"""That are kept up at most only because somebody asked for what a copy has, which any client can do."""

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
        self._wanted_until: dict[ShardId, float] = {}  # the least recently wanted first
        self._copies: set[ShardId] = set()

    def want(self, shard: CoordinatorShard[Any]) -> None:
        """Follow a shard for a while: somebody asks for what only a copy has.

        There are `WANTED_COPIES` of those. Where more are wanted they take turns, and the least recently wanted one is
        let go of first.
        """
        now_s = self._clock.monotonic()
        is_new = self._wanted_until.pop(shard.id, 0.0) <= now_s
        self._wanted_until[shard.id] = now_s + self._kept_s
        if is_new and not shard.is_followed:
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
            self._copies.add(shard.id)
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
                    self._note_gone(shard)
                    await asyncio.sleep(0)  # its place is another one's, if one waits for it
                continue
            await self._nominated.until(lambda: self._has_place(shard))
            self._copies.add(shard.id)
            if await self._follows(shard):
                failures = 0
                continue
            self._note_gone(shard)
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
        try:
            async with asyncio.timeout(self._kept_s):
                await self._nominated.until(lambda: self._is_held(shard) or self._is_one_too_many(shard))
        except TimeoutError:
            is_over = not self._is_wanted(shard) or self._gives_way(shard)
        else:
            is_over = not self._is_held(shard)
        return is_over and not self._is_held(shard) and not shard.leading

    def _note_gone(self, shard: CoordinatorShard[Any]) -> None:
        self._copies.discard(shard.id)
        self._nominated.wake()  # another one may have its place

    def _has_place(self, shard: CoordinatorShard[Any]) -> bool:
        """Whether a copy of a shard can be begun with."""
        return self._is_held(shard) or (self._is_wanted(shard) and len(self._only_wanted()) < WANTED_COPIES)

    def _only_wanted(self) -> list[ShardId]:
        """The copies that are only there because somebody wanted them, the least recently wanted first."""
        return [shard for shard in self._wanted() if shard in self._copies]

    def _wanted(self) -> list[ShardId]:
        now_s = self._clock.monotonic()
        return [
            shard
            for shard, until_s in self._wanted_until.items()
            if until_s > now_s and not self._holders[shard] and not self._nominated.names(shard, self._node_id)
        ]

    def _is_one_too_many(self, shard: CoordinatorShard[Any]) -> bool:
        copies = self._only_wanted()
        return not shard.leading and shard.id in copies[: max(0, len(copies) - WANTED_COPIES)]

    def _gives_way(self, shard: CoordinatorShard[Any]) -> bool:
        """Whether it is the turn of another one, after this one has been there for a while."""
        wanted = self._wanted()
        copies = [one for one in wanted if one in self._copies]
        return len(wanted) > len(copies) >= WANTED_COPIES and copies[0] == shard.id

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

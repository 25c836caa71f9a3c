"""Has a shard forget idempotent producers that have expired, while this node leads it.

Replicas look at no clock: what the leader finds expired becomes a record, some hundred producers at a time, and all
forget them there. Those of a deleted topic go in the same way, so that its deletion costs no more than its partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import structlog

from diskless_core.clock import LEAST_PAUSE_S, Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.tables import Key, Writes
from diskless_core.diskless import operations
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import PARTITIONS, PRODUCERS, TOPICS

ENTRY_PRODUCERS = 500
"""Producers in a command: a millisecond or two of the event loop, here and on each follower."""

LOOK_PRODUCERS = 2_000
"""Windows that are looked at before others have their turn on the event loop."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirationRules:
    """When a producer has been silent for too long, and how often that is looked for, in milliseconds."""

    expiration_ms: int
    check_interval_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> ExpirationRules:
        """The rules of a broker."""
        return cls(
            expiration_ms=config.producer_id_expiration_ms,
            check_interval_ms=config.producer_id_expiration_check_interval_ms,
        )


class ProducerExpiry:
    """One shard's: looks after every interval, and when a topic was deleted at the producers of what is gone.

    So whoever deletes topics all the time does not have millions of living producers looked at all the time.
    """

    def __init__(self, shard: DisklessShard, rules: ExpirationRules, clock: Clock) -> None:
        self._shard = shard
        self._rules = rules
        self._clock = clock
        self._topic_deleted = asyncio.Event()
        shard.on_commit(self._committed)

    def _committed(self, writes: Writes) -> None:
        if None in writes.get(TOPICS, {}).values():
            self._topic_deleted.set()

    async def run(self) -> None:
        """Look now and then; what a node cannot do, or not any more, another one does when it leads."""
        interval_s = self._rules.check_interval_ms / 1000
        next_check = self._clock.monotonic() + interval_s
        while True:
            try:
                async with asyncio.timeout(max(LEAST_PAUSE_S, next_check - self._clock.monotonic())):
                    await self._topic_deleted.wait()
            except TimeoutError:
                pass
            self._topic_deleted.clear()
            is_due = self._clock.monotonic() >= next_check
            if is_due:
                next_check = self._clock.monotonic() + interval_s
            if self._shard.leading:
                try:
                    await self.look(only_gone=not is_due)
                except CoordinatorError as error:
                    _log.info("the expiration of producers is put off", shard=str(self._shard.id), error=str(error))

    async def look(self, *, only_gone: bool = False) -> None:
        """Forget all producers that have expired, or whose partition is gone; or only the latter.

        Raises:
            CoordinatorError: some are left.
        """
        due: list[Key] = []
        for page in self._pages(only_gone=only_gone):
            due += page
            while len(due) >= ENTRY_PRODUCERS:
                await self._expire(due[:ENTRY_PRODUCERS])
                del due[:ENTRY_PRODUCERS]
            await asyncio.sleep(0)
        if due:
            await self._expire(due)

    async def _expire(self, producers: list[Key]) -> None:
        await self._shard.expire_producers(producers, self._rules.expiration_ms)

    def _pages(self, *, only_gone: bool) -> Iterator[list[Key]]:
        """What is due among so many windows, time and again, until all that there are now were looked at."""
        state, due, looked, passed = self._shard.state, list[Key](), 0, self._shard.clock_watch.passed()
        for partition in state.groups(PRODUCERS):
            if only_gone and state.get(PARTITIONS, partition) is not None:
                continue
            for producer_id in list(state.group(PRODUCERS, partition)):
                key = (*partition, producer_id)
                if operations.has_expired(state, key, passed, self._rules.expiration_ms):
                    due.append(key)
                looked += 1
                if looked == LOOK_PRODUCERS:
                    yield due
                    due, looked, passed = [], 0, self._shard.clock_watch.passed()
        yield due

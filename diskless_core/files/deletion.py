"""Deletes dead WAL objects of one shard after their grace period, and forgets those that are surely gone.

It works from the shard's rows alone, so that it goes on where it was after a crash or on another leader. A dead object
never comes alive again: to delete it twice, or by a leader that is none any more, does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.client import DisklessShard
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.state import DEAD_FILES, FILES, DeadFile
from diskless_core.coordinator.tables import Writes
from diskless_core.files.owners import Consent, Owners
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_store import CoordinatorStoreError, ShardStore
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError

PAGE_FILES = 500
"""Objects in one call of the object store at most."""

ANSWERS_KEPT_MS = 600_000
"""A shard remembers what it answered to a CommitFile for at least so long, and since it was last elected: until then
the same one may be sent again, and must not be taken for a new one."""

PAUSE_S = 1.0
RETRY_BASE_S = 1.0
RETRY_MAX_S = 60.0
LOOK_AGAIN_S = 60.0
"""Longest sleep without news: the wall clock, by which objects become due, may jump."""

_BUSY_PART = 10
"""Rounds over many rows that are not due yet take a tenth of the time at most."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionServices:
    """What all deleters of a node share. `on_deleted` is called with the key of each object that is gone."""

    objects: WalObjectStore
    shards: Mapping[int, DisklessShard]
    delete_delay_ms: int
    clock: Clock
    metrics: Metrics
    on_deleted: Callable[[str], None]


class FileDeleter:
    """Deletes what has died in the shard `index` while this node leads it."""

    def __init__(self, index: int, services: DeletionServices) -> None:
        self._shard = services.shards[index]
        self._services = services
        self._owners = Owners(index, services.shards, services.objects)
        self._backlog = services.metrics.wal_objects_dead.labels(str(self._shard.shard.id))
        self._wake = asyncio.Event()
        self._gone: set[str] = set()
        self._term: int | None = None
        self._led_since_ms = 0
        self._failures = 0
        self._shard.shard.on_commit(self._committed)

    def wake(self) -> None:
        """There may be more dead objects than at the last round."""
        self._wake.set()

    def _committed(self, writes: Writes) -> None:
        if any(dead is not None for dead in writes.get(DEAD_FILES, {}).values()):
            self._wake.set()

    async def run(self) -> None:
        """Delete for as long as this runs; errors are retried for ever, less and less often."""
        while True:
            await self._shard.shard.until_leading()
            self._wake.clear()
            try:
                pause_s = await self.round()
                self._failures = 0
            except (CoordinatorError, CoordinatorStoreError, WalObjectStoreError) as error:
                pause_s = self._back_off()
                self._services.metrics.wal_delete_failures.inc()
                _log.warning(
                    "deleting objects failed and is tried again", shard=str(self._shard.shard.id), error=str(error)
                )
            await asyncio.sleep(PAUSE_S)
            if pause_s > PAUSE_S:
                await self._sleep(pause_s - PAUSE_S)

    def _back_off(self) -> float:
        self._failures += 1
        longest = min(RETRY_MAX_S, float(RETRY_BASE_S * (1 << min(self._failures, 10))))
        return longest * (0.5 + self._services.clock.random().random() / 2)

    async def _sleep(self, seconds: float) -> None:
        if self._failures:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def round(self) -> float:
        """Go over all dead objects once, and return in how many seconds the next one is due.

        Raises:
            WalObjectStoreError, CoordinatorError, CoordinatorStoreError: the rest has to wait for another round.
        """
        self._note_term()
        started = self._services.clock.monotonic()
        await self._shard.shard.flush()
        seen, next_due_ms, after = 0, None, ""
        unconfirmed = False
        while page := await self._page(after):
            after = page[-1][0]
            seen += len(page)
            unconfirmed |= not await self._settle(page)
            for key, dead in page:
                due_ms = self._due_ms(key, dead)
                if due_ms > self._services.clock.now_ms():
                    next_due_ms = due_ms if next_due_ms is None else min(next_due_ms, due_ms)
        self._backlog.set(seen)
        if unconfirmed:
            raise WalObjectStoreError("the object store did not delete all that it was asked to")
        busy_s = _BUSY_PART * (self._services.clock.monotonic() - started)
        if next_due_ms is None:
            return max(LOOK_AGAIN_S, busy_s)
        return max(PAUSE_S, busy_s, min(LOOK_AGAIN_S, (next_due_ms - self._services.clock.now_ms()) / 1000))

    def _note_term(self) -> None:
        if self._shard.shard.term != self._term:
            self._term = self._shard.shard.term
            self._led_since_ms = self._services.clock.now_ms()

    async def _page(self, after: str) -> Sequence[tuple[str, DeadFile]]:
        def read(store: ShardStore) -> list[tuple[str, DeadFile]]:
            rows = store.scan(DEAD_FILES.name, (after,), limit=PAGE_FILES + 1)
            found = [(str(row[0]), DEAD_FILES.decode(row)) for row in rows if row[0] != after]
            return found[:PAGE_FILES]

        return await self._shard.shard.with_store(read)

    async def _settle(self, page: Sequence[tuple[str, DeadFile]]) -> bool:
        """Delete and forget what of a page is due. Whether the object store confirmed all that it was asked for."""
        wanted: list[str] = []
        for key, dead in page:
            if key not in self._gone and self._is_due(self._deletable_ms(dead)) and not self._is_forgotten(key):
                match await self._owners.consent(key, dead, self._services.delete_delay_ms, self._now_ms()):
                    case Consent.DELETE:
                        wanted.append(key)
                    case Consent.DELETED_ALREADY:
                        self._gone.add(key)
        confirmed = await self._delete(wanted) if wanted else set()
        await self._forget(
            [key for key, dead in page if key in self._gone and self._is_due(self._forgettable_ms(dead))]
        )
        return confirmed.issuperset(wanted)

    async def _delete(self, keys: Sequence[str]) -> set[str]:
        gone = set(await self._services.objects.delete(keys)).intersection(keys)
        self._services.metrics.wal_objects_deleted.inc(len(gone))
        self._gone |= gone
        for key in gone:
            self._services.on_deleted(key)
        return gone

    async def _forget(self, keys: Sequence[str]) -> None:
        if keys:
            await self._shard.forget_files(keys)
            self._gone.difference_update(keys)

    # --- when ----------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._services.clock.now_ms()

    def _is_due(self, due_ms: int) -> bool:
        return due_ms <= self._now_ms()

    def _due_ms(self, key: str, dead: DeadFile) -> int:
        return self._forgettable_ms(dead) if key in self._gone else self._deletable_ms(dead)

    def _deletable_ms(self, dead: DeadFile) -> int:
        return dead.dead_at + self._services.delete_delay_ms

    def _forgettable_ms(self, dead: DeadFile) -> int:
        return max(dead.committed_at, self._led_since_ms) + ANSWERS_KEPT_MS

    def _is_forgotten(self, key: str) -> bool:
        """Whether the row is one that the store has not removed yet."""
        found = self._shard.shard.state.in_memory(FILES, (key,))
        return found[0] and found[1] is None

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
from diskless_core.coordinator.schema import DEAD_FILES, DeadFile
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
LOOK_AGAIN_MS = 60_000
"""Longest sleep without news: the wall clock, by which objects become due, may jump."""

_BUSY_PART = 10
"""Looking through rows, of which many may have to wait, takes a tenth of the time at most, whatever news comes."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Seconds until the next round: at least, and at most when there is no news."""

    least_s: float
    most_s: float


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
        """Delete while this shard can be led at all; errors are retried for ever, less and less often."""
        while True:
            try:
                await self._shard.shard.until_leading()
            except CoordinatorError:
                return  # the shard's work on this node is over, and it has said why
            self._wake.clear()
            try:
                pause = await self.round()
                self._failures = 0
            except (CoordinatorError, CoordinatorStoreError, WalObjectStoreError) as error:
                pause = self._back_off()
                self._services.metrics.wal_delete_failures.inc()
                _log.warning(
                    "deleting objects failed and is tried again", shard=str(self._shard.shard.id), error=str(error)
                )
            await self._rest(pause)

    def _back_off(self) -> Pause:
        self._failures += 1
        longest = min(RETRY_MAX_S, RETRY_BASE_S * 2 ** min(self._failures, 10))
        seconds = longest * (0.5 + self._services.clock.random().random() / 2)
        return Pause(least_s=seconds, most_s=seconds)

    async def _rest(self, pause: Pause) -> None:
        await asyncio.sleep(pause.least_s)
        try:
            async with asyncio.timeout(pause.most_s - pause.least_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def round(self) -> Pause:
        """Go over all dead objects once.

        Raises:
            WalObjectStoreError, CoordinatorError, CoordinatorStoreError: the rest has to wait for another round.
        """
        self._note_term()
        await self._shard.shard.flush()
        next_due_ms = self._now_ms() + LOOK_AGAIN_MS
        seen, looked_s, after = 0, 0.0, ""
        unconfirmed = False
        while True:
            started = self._services.clock.monotonic()
            page = await self._page(after)
            consents = await self._consents(page)
            looked_s += self._services.clock.monotonic() - started
            if not page:
                break
            unconfirmed |= not await self._settle(page, consents)
            next_due_ms = min([next_due_ms, *self._waiting(page)])
            seen, after = seen + len(page), page[-1][0]
        self._backlog.set(seen)
        if unconfirmed:
            raise WalObjectStoreError("the object store did not delete all that it was asked to")
        least_s = max(PAUSE_S, _BUSY_PART * looked_s)
        return Pause(least_s=least_s, most_s=max(least_s, (next_due_ms - self._now_ms()) / 1000))

    def _note_term(self) -> None:
        if self._shard.shard.term != self._term:
            self._term = self._shard.shard.term
            self._led_since_ms = self._now_ms()
            self._gone.clear()

    async def _page(self, after: str) -> Sequence[tuple[str, DeadFile]]:
        def read(store: ShardStore) -> list[tuple[str, DeadFile]]:
            rows = store.scan(DEAD_FILES.name, (after,), limit=PAGE_FILES + 1)
            found = [(str(row[0]), DEAD_FILES.decode(row)) for row in rows if row[0] != after]
            return found[:PAGE_FILES]

        return await self._shard.shard.with_store(read)

    async def _consents(self, page: Sequence[tuple[str, DeadFile]]) -> Mapping[str, Consent]:
        """What may be done with those of a page whose grace period is over and that are not known to be gone."""
        due = {
            key: dead
            for key, dead in page
            if key not in self._gone and self._is_due(self._deletable_ms(dead)) and not self._is_forgotten(key)
        }
        return await self._owners.consents(due, self._services.delete_delay_ms, self._now_ms())

    async def _settle(self, page: Sequence[tuple[str, DeadFile]], consents: Mapping[str, Consent]) -> bool:
        """Delete and forget what of a page may be. Whether the object store confirmed all that it was asked for."""
        self._gone.update(key for key, consent in consents.items() if consent is Consent.DELETED_ALREADY)
        wanted = [key for key, consent in consents.items() if consent is Consent.DELETE]
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

    def _waiting(self, page: Sequence[tuple[str, DeadFile]]) -> list[int]:
        """When those of a page become due for which it is too early."""
        due_ms = [self._due_ms(key, dead) for key, dead in page]
        return [one for one in due_ms if not self._is_due(one)]

    def _due_ms(self, key: str, dead: DeadFile) -> int:
        return self._forgettable_ms(dead) if key in self._gone else self._deletable_ms(dead)

    def _deletable_ms(self, dead: DeadFile) -> int:
        return dead.dead_at + self._services.delete_delay_ms

    def _forgettable_ms(self, dead: DeadFile) -> int:
        return max(dead.committed_at, self._led_since_ms) + ANSWERS_KEPT_MS

    def _is_forgotten(self, key: str) -> bool:
        """Whether the row is one that the store has not removed yet."""
        found = self._shard.shard.state.in_memory(DEAD_FILES, (key,))
        return found[0] and found[1] is None

"""Sees the dead objects of one shard to their end: handed over, or deleted after the grace period, then forgotten.

(KIP-1164, "WAL file management".) What is due is decided in `ending`; here it is done. Nothing needs remembering, so
another leader goes on where this one was. A dead object never comes alive again: to hand it over or delete it twice, or
by a leader that is none any more, does no harm. What others handed over is deleted when `deletion_proof` has proven it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.tables import Writes
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.file_stages import ENDING_STAGES, EndingFile, Stage, ending_files
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import DEAD_FILES, HORIZON, RECEIVED_FILES, THE_HORIZON
from diskless_core.files.deletion_plan import Moment, Plan, can_be_forgotten, horizon_over, plan
from diskless_core.files.deletion_proof import DeletionProof
from diskless_core.files.hand_overs import BACKOFF, HandOvers
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError

PAGE_FILES = 500
"""Objects in one call of the object store at most."""

PAUSE_S = 1.0
LOOK_AGAIN_S = 60.0
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
    """What all deleters of a node share.

    Attributes:
        shards: those that have a replica on this node.
        coordinators: all of the cluster, wherever they are led, to hand objects over to.
        on_deleted: called with the key of each object that is gone.
    """

    objects: WalObjectStore
    shards: Mapping[int, DisklessShard]
    coordinators: Mapping[int, DisklessCoordinator]
    delete_delay_ms: int
    clock: Clock
    metrics: Metrics
    on_deleted: Callable[[str], None]


class FileDeleter:
    """Works on what has died in the shard `index` while this node leads it."""

    def __init__(self, index: int, services: DeletionServices) -> None:
        self.hand_overs = HandOvers(services.shards[index], services.coordinators, services.clock)
        self._proof = DeletionProof(index, services.coordinators)
        self._index = index
        self._shard = services.shards[index]
        self._services = services
        self._wake = asyncio.Event()
        self._term: int | None = None
        self._led_since_s = 0.0
        self._failures = 0
        self._shard.on_restore(self.wake)
        self._shard.on_commit(self._committed)

    def wake(self) -> None:
        """There may be more dead objects than at the last round."""
        self._wake.set()

    def _committed(self, writes: Writes) -> None:
        if any(row is not None for table in (DEAD_FILES, RECEIVED_FILES) for row in writes.get(table, {}).values()):
            self._wake.set()

    async def run(self) -> None:
        """Work while this shard can be led at all; errors are retried for ever, less and less often."""
        while True:
            try:
                await self._shard.until_leading()
            except CoordinatorError:
                return  # the shard's work on this node is over, and it has said why
            self._wake.clear()
            try:
                pause = await self.round()
                self._failures = 0
            except (CoordinatorError, CoordinatorStoreError, WalObjectStoreError) as error:
                pause = self._back_off()
                self._services.metrics.wal_delete_failures.inc()
                _log.warning("deleting objects failed and is tried again", shard=str(self._shard.id), error=str(error))
            await self._rest(pause)

    async def stop(self) -> None:
        """Let go of what is under way besides the rounds."""
        await self.hand_overs.stop()

    def _back_off(self) -> Pause:
        self._failures += 1
        seconds = BACKOFF.pause_s(self._failures, self._services.clock)
        return Pause(least_s=seconds, most_s=seconds)

    async def _rest(self, pause: Pause) -> None:
        await asyncio.sleep(pause.least_s)
        try:
            async with asyncio.timeout(pause.most_s - pause.least_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def round(self) -> Pause:
        """Go over all dead objects once. What is handed over is on its way when this returns.

        Raises:
            WalObjectStoreError, CoordinatorError, CoordinatorStoreError: the rest has to wait for another round.
        """
        self._note_term()
        await self._shard.flush()
        due_s = self._services.clock.monotonic() + LOOK_AGAIN_S
        stages, looked_s, after = Counter[Stage](), 0.0, ""
        unconfirmed, unanswered = False, set[int]()
        while True:
            started = self._services.clock.monotonic()
            page = await self._shard.with_store(partial(ending_files, after=after, limit=PAGE_FILES))
            looked_s += self._services.clock.monotonic() - started
            if not page:
                break
            moment = self._moment()
            work = plan(page, moment)
            proven = await self._proof.of(work.delete, moment.passed, unanswered)
            unanswered.update(proven.unanswered)
            unconfirmed |= not await self._settle(work, proven.files, moment)
            stages += work.stages
            if work.due_in_ms is not None:
                due_s = min(due_s, self._services.clock.monotonic() + work.due_in_ms / 1000)
            after = page[-1].object_key
        self.hand_overs.end_round()
        for stage in ENDING_STAGES:
            self._services.metrics.wal_objects.labels(str(self._shard.id), stage.value).set(stages[stage])
        if unconfirmed:
            raise WalObjectStoreError("the object store did not delete all that it was asked to")
        if unanswered:
            raise CoordinatorError(f"the coordinators {sorted(unanswered)} do not say whether objects are dead there")
        least_s = max(PAUSE_S, _BUSY_PART * looked_s)
        return Pause(least_s=least_s, most_s=max(least_s, due_s - self._services.clock.monotonic()))

    def _note_term(self) -> None:
        if self._shard.term != self._term:
            self._term = self._shard.term
            self._led_since_s = self._services.clock.monotonic()
            self.hand_overs.begin_term()

    def _moment(self) -> Moment:
        return Moment(
            shard_index=self._index,
            passed=self._shard.clock_watch.passed(),
            delete_delay_ms=self._services.delete_delay_ms,
            led_for_ms=int((self._services.clock.monotonic() - self._led_since_s) * 1000),
            horizon_ms=self._shard.state.committed(HORIZON, THE_HORIZON) or 0,
        )

    async def _settle(self, work: Plan, dead: Sequence[EndingFile], moment: Moment) -> bool:
        """Do what is due, and delete what is proven to be dead. Whether the object store confirmed all of that."""
        for owner, file in work.hand_over:
            self.hand_overs.offer(owner, file)
        for owner, file in work.remind:
            self.hand_overs.remind(owner, file)
        deleted = await self._delete(dead)
        forget = [*work.forget, *(file.object_key for file in deleted if can_be_forgotten(file, moment))]
        if forget:
            horizon_ms = horizon_over(forget)
            if horizon_ms > moment.horizon_ms:
                await self._shard.raise_horizon(horizon_ms)
            await self._shard.forget_files(forget)
        return len(deleted) == len(dead)

    async def _delete(self, files: Sequence[EndingFile]) -> Sequence[EndingFile]:
        """Delete objects, and note those of them that are surely gone; these are returned."""
        if not files:
            return files
        confirmed = set(await self._services.objects.delete([file.object_key for file in files]))
        gone = [file for file in files if file.object_key in confirmed]
        self._services.metrics.wal_objects_deleted.inc(len(gone))
        for file in gone:
            self._services.on_deleted(file.object_key)
        if gone:
            await self._shard.files_deleted([file.object_key for file in gone])
        return gone

"""Takes a shard's snapshots while this node leads it, by size and age of the log since the last, and prunes the log.

A snapshot takes a while, and a process can stand still at any point. So before each step that removes something, the
node proves through the log that it still leads and that the log goes on. Where it does not, it removes nothing: the
next leader takes snapshots of its own. (KIP-1164, "Metadata log size management".)
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import structlog

from diskless_core.clock import Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.meter import SnapshotMark
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.snapshot.format import Manifest, SnapshotError

LOOK_S = 1.0
RETRY = Backoff(first_ms=30_000, max_ms=30_000)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRules:
    """When a snapshot is due: `max_age_ms` since the last one with anything new, or `distance_bytes` of the log.

    A snapshot is the whole state, and its size is the least distance to the next one. So all snapshots but the newest
    come to no more bytes than the log, however large the state grows, and a start reads no more of the log than its
    snapshot has, or `least_bytes`.

    Attributes:
        least_bytes: the distance after a small snapshot.
    """

    least_bytes: int
    max_age_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> SnapshotRules:
        """The rules of a broker."""
        return cls(
            least_bytes=config.metadata_log_max_record_bytes_between_snapshots,
            max_age_ms=config.metadata_log_max_snapshot_interval_ms,
        )

    def distance_bytes(self, snapshot_bytes: int) -> int:
        """How far the log may go beyond a snapshot of so many bytes, by size alone."""
        return max(self.least_bytes, snapshot_bytes)

    def is_due(self, new_bytes: int, age_ms: int, snapshot_bytes: int) -> bool:
        """Whether the next one is due, after so many bytes of the log and so long since one of `snapshot_bytes`."""
        return new_bytes >= self.distance_bytes(snapshot_bytes) or (new_bytes > 0 and age_ms >= self.max_age_ms)


class Snapshotter:
    """One shard's."""

    def __init__(
        self,
        shard: CoordinatorShard[Any],
        log: CoordinatorLog,
        snapshots: Snapshots,
        rules: SnapshotRules,
        clock: Clock,
    ) -> None:
        self._shard = shard
        self._log = log
        self._snapshots = snapshots
        self._rules = rules
        self._clock = clock
        self._term: int | None = None
        self._taken_at: int | None = None
        self._bytes_then = 0
        self._snapshot_bytes = 0

    async def run(self) -> None:
        """Look every now and then while this node leads; errors are retried for ever."""
        while True:
            try:
                await self._shard.until_leading()
            except CoordinatorError:
                return  # the shard's work on this node is over, and it has said why
            try:
                await self.look()
                pause_s = LOOK_S
            except (CoordinatorStoreError, CoordinatorLogError, WalObjectStoreError, SnapshotError) as error:
                self._shard.meter.snapshot_failures.inc()
                _log.warning("a snapshot failed and is put off", shard=str(self._shard.id), error=str(error))
                pause_s = RETRY.pause_s(1, self._clock)
            await asyncio.sleep(pause_s)

    async def look(self) -> None:
        """Take a snapshot if one is due.

        Raises:
            CoordinatorStoreError, CoordinatorLogError, WalObjectStoreError, SnapshotError: it was not taken, or not
                all that it takes the place of was removed.
        """
        if self._shard.log_id is None:
            return  # the leader gives its log an id first, see `Upkeep`
        if self._shard.term != self._term:
            self._term, self._taken_at = self._shard.term, None  # others may have taken some meanwhile
        if self._taken_at is None:
            newest = await self._snapshots.newest(self._shard.id, self._shard.log_id)
            self._taken_at = newest.taken_at if newest is not None else self._clock.now_ms()
            if newest is not None:
                # A follower has applied what that snapshot covers: only the log beyond it makes another one due.
                self._bytes_then = self._shard.applied_bytes_up_to(newest.applied_offset)
                self._note(newest)
        age_ms = self._clock.now_ms() - self._taken_at
        if self._rules.is_due(self._shard.applied_bytes - self._bytes_then, age_ms, self._snapshot_bytes):
            await self.take()

    async def take(self) -> None:
        """Take one now, then remove what it takes the place of, as long as this node proves that it leads.

        Errors as `look`.

        While the store refuses writes, it is one of what the store has, if that is more than the newest one has.
        """
        applied_bytes = self._shard.applied_bytes
        try:
            await self._shard.flush()
        except CoordinatorStoreError:
            newest = self._shard.snapshot
            if newest is not None and newest.applied_offset >= self._shard.stored_offset:
                raise
            applied_bytes -= self._shard.state.unstored_bytes
        manifest = await self._shard.take_snapshot(self._snapshots)
        self._taken_at, self._bytes_then = manifest.taken_at, applied_bytes
        self._note(manifest)
        self._shard.meter.snapshots_taken.inc()
        try:
            await self._remove_superfluous(manifest)
        except CoordinatorError as error:
            _log.info(
                "a snapshot was taken; what is older is the next leader's", shard=str(self._shard.id), reason=str(error)
            )
            return
        _log.info(
            "a snapshot was taken",
            shard=str(self._shard.id),
            applied_offset=manifest.applied_offset,
            size_bytes=manifest.size_bytes,
        )

    async def _remove_superfluous(self, manifest: Manifest) -> None:
        """Remove what a whole snapshot takes the place of.

        Raises:
            SnapshotError: the snapshot is no longer whole.
            CoordinatorError: this node no longer leads, or the log goes on elsewhere.
        """
        if manifest.moved_from is not None:
            # This log goes on, so the one before it has ended: it can never be led again. Which log that was is known
            # from the snapshot; once the log is pruned it says so no more.
            await self._prove_leading()
            await self._snapshots.remove_log(self._shard.id, manifest.moved_from)
        await self._prove_leading()
        await self._snapshots.require_whole(self._shard.id, manifest)
        await self._log.prune(self._shard.id, manifest.applied_offset)
        await self._prove_leading()
        await self._snapshots.remove_older(self._shard.id, manifest)

    async def _prove_leading(self) -> None:
        """Prove through the log that this node leads, so that no later leader or log relies on anything else.

        The proof is an entry that changes nothing. It does not count as something new, or an idle shard would get
        snapshots for ever.
        """
        before = self._shard.idle_bytes
        await self._shard.barrier()
        self._bytes_then += self._shard.idle_bytes - before

    def _note(self, manifest: Manifest) -> None:
        self._snapshot_bytes = manifest.size_bytes
        self._shard.note_snapshot(
            SnapshotMark(manifest.applied_offset, manifest.taken_at, self._bytes_then, manifest.size_bytes)
        )

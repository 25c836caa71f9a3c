"""One node's copy of a shard: the state in memory, the store behind it, and how far into the log they reach.

(KIP-1164, "Local state machine".) It takes what the log says, and knows nothing of who leads.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import structlog

from diskless_core.clock import Clock
from diskless_core.clock_watch import ClockWatch
from diskless_core.coordinator import entries
from diskless_core.coordinator.common_records import replay_common
from diskless_core.coordinator.entries import ACCEPTANCE, Acceptance, Entry, stored_acceptance
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.feature_level import level_of, stored_level, too_new
from diskless_core.coordinator.log_identity import LogName, OtherLogError, log_name_of, stored_name
from diskless_core.coordinator.meter import ShardMeter
from diskless_core.coordinator.readers import Committed
from diskless_core.coordinator.shard_store import Flusher, StoreThread
from diskless_core.coordinator.slices import Pace, Slices
from diskless_core.coordinator.snapshots import Beginning, Reach, Snapshots, SnapshotSource
from diskless_core.coordinator.state_machine import RecordT, StateMachine
from diskless_core.coordinator.tables import Row, State, Table, Transaction, Writes
from diskless_core.coordinator.tail import Tail
from diskless_core.plugin.coordinator_log import LogBatch, LogBounds
from diskless_core.plugin.coordinator_store import CoordinatorStore, ShardStore
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.feature_levels import BUILD_LEVELS, FeatureLevels
from diskless_core.protocol.record_batch import max_timestamp_of
from diskless_core.protocol.record_frames import RecordFormatError
from diskless_core.snapshot.format import Manifest

ROWS_TOLD_AT_ONCE = 1_000
"""Rows that listeners are told of before others have their turn, when a copy begins or ends."""

R = TypeVar("R")

_logger = structlog.get_logger(__name__)


class LogWitness(Protocol):
    """What a replica that opens asks its log, see `log_end`."""

    async def certain_end(self) -> int: ...

    async def has_what_was_read(self, bounds: LogBounds, known: int, acceptance: Acceptance) -> bool: ...


class Replica(Generic[RecordT]):
    """State and store of one shard, brought forward entry by entry.

    Attributes:
        next_offset: everything in the log below it has been applied.
        acceptance: whose entries count from there on.
        tail: the newest entries that counted.
    """

    def __init__(
        self,
        shard_id: ShardId,
        machine: StateMachine[RecordT],
        store: CoordinatorStore,
        snapshots: SnapshotSource,
        meter: ShardMeter,
        clock: Clock,
        clock_watch: ClockWatch,
        *,
        tail_bytes: int = 0,
        levels: FeatureLevels = BUILD_LEVELS,
    ) -> None:
        self.id = shard_id
        self.machine = machine
        self.levels = levels
        self.state = State(entries.tables_of(machine))
        self.next_offset = 0
        self.acceptance = Acceptance()
        self.tail = Tail(tail_bytes)
        self.store = StoreThread(store, shard_id)
        self.flusher = Flusher(self.store, self.state, lambda: self.next_offset, shard_id, meter, clock)
        self._snapshots = snapshots
        self._clock_watch = clock_watch
        self._newest_ms = 0
        self._name: LogName | None = None
        self._is_open = False
        self._specs = [table.spec for table in self.state.tables]
        self._commit_listeners: list[Callable[[Writes], None]] = []
        self._restore_listeners: list[Callable[[], None]] = []
        self._log = _logger.bind(shard=str(shard_id))

    # --- life ----------------------------------------------------------------------------------------------------

    async def open(self, bounds: LogBounds, log: LogWitness, name: LogName | None = None) -> int:
        """Load what the store has, or a snapshot where the log does not go back that far. Return where the log ends.

        A store of the log that this one took the place of counts as empty, and is emptied.

        Args:
            bounds: of the log. Their end may lag.
            log: says where the log really ends. It is asked only where `bounds` would mean that some of it is lost;
                one that ends at 0 was never written, and nothing is written to it.
            name: what the log says it is, if it does.

        Raises:
            CoordinatorError, CoordinatorStoreError: a backend failed, or its content is gone, or another log's.
            CoordinatorLogError: the log cannot be asked now.
        """
        await self.store.open(self.state.tables)
        problem = too_new(await self.store.read(stored_level), self.levels.supported)
        if problem is not None:
            raise CoordinatorError(
                f"the store of {self.id} is too new: {problem}. Nothing was changed: upgrade this broker"
            )
        self._name = name
        await self._leave_former_log()
        self.next_offset = await self.store.read(lambda store: store.applied_offset())
        newest = await self._snapshots.reached(self.id, name) if self.next_offset == 0 else None
        is_beginning = newest is not None and newest.moved_from is not None and newest.applied_offset == 0
        if is_beginning and name is None:
            raise CoordinatorError(
                f"the log of {self.id} has no id, and a snapshot is there with which a log begins that took the place "
                f"of another: if `diskless migrate-log` was interrupted, run it again; else bring that log back"
            )
        if newest is not None:
            known, accepted = newest.applied_offset, newest.acceptance
        else:
            known, accepted = self.next_offset, await self.store.read(stored_acceptance)
        end = await self._end_of(log, bounds, known, accepted)
        if self.next_offset == 0 and end > 0:
            self._log.info("the coordinator store is empty: it is filled from a snapshot and the log", log_end=end)
        continues_another = name is not None and name.moved_from is not None
        if self.next_offset < bounds.start or is_beginning or (self.next_offset == 0 and continues_another):
            self.next_offset = await self._fill_store(bounds)
        self.flusher.stored_offset = self.next_offset
        for table, rows in (await self._resident_rows()).items():
            self.state.load(table, rows)
        self._load_acceptance()
        self._is_open = True
        return end

    async def _end_of(self, log: LogWitness, bounds: LogBounds, known: int, accepted: Acceptance) -> int:
        """Where the log ends, which has to have what was read of it up to the offset `known`.

        To ask a log whose end lags appends to it. So one that was cut grows with each start, and in the end only
        what it has there tells.
        """
        end = bounds.end if known <= bounds.end or bounds.end == 0 else await log.certain_end()
        if known > end:
            problem = f"ends at offset {end}"
        elif not await log.has_what_was_read(bounds, known, accepted):
            problem = f"has other entries from offset {accepted.last_offset} on"
        else:
            return end
        raise CoordinatorError(
            f"the log of {self.id} {problem}, the store or a snapshot knows of commits up to {known}: the log was "
            f"lost or cut, or the snapshots are another cluster's. Nothing was changed: bring the log back, or set "
            f"diskless.wal.object.prefix to one that no other cluster has. To give up for good what it lacks, delete "
            f"the coordinator store and the shard's snapshots in the object store"
        )

    async def newest_snapshot(self) -> Reach | None:
        """How far the shard's newest snapshot reaches; errors as `SnapshotSource.reached`."""
        return await self._snapshots.reached(self.id, self._name or log_name_of(Committed(self.state)))

    async def _leave_former_log(self) -> None:
        """Empty the store if the log took the place of the one that it is of."""
        stored, name = await self.store.read(stored_name), self._name
        if stored is None or name is None or stored.log_id == name.log_id:
            return
        moved_from = name.moved_from
        if moved_from is None:  # its first entry, which would say it, may be pruned
            newest = await self._snapshots.reached(self.id, name)
            moved_from = newest.moved_from if newest is not None else None
        if moved_from != stored.log_id:
            error = OtherLogError.between("the log", name.log_id, "the coordinator store on this node", stored.log_id)
            raise CoordinatorError(
                f"{self.id} cannot be opened: {error}. A store that was away for several moves of the log is "
                f"emptied by `diskless coordinator rebuild`"
            )
        await self.store.read(lambda store: store.clear())
        self._log.warning("the log was moved: the store is emptied and filled from a snapshot", was=str(stored.log_id))

    async def close(self) -> None:
        """Give the store the rest, and release it. A store that is being restored stays as empty as it counts.

        One that could not be opened stays as it is.
        """
        try:
            if self._is_open and self.store.is_open and not self.restoring:
                await self.flusher.flush()
        finally:
            await self.store.close()

    async def tell_all(self) -> None:
        """Tell listeners as by `restore` of all rows that there are: it was opened after `release`."""
        for listener in self._restore_listeners:
            listener()
        await self._tell_in_slices(
            {table: dict(self.state.rows(table)) for table in self.state.tables if table.resident}
        )

    async def release(self) -> None:
        """Close it, and free what it has in memory. It can be opened again, and then begins with what the store has.

        Listeners are told as by `restore`: of all rows that are gone.
        """
        try:
            await self.close()
        finally:
            writes = self.state.replace({table: [] for table in self.state.tables if table.resident})
            self._is_open = False
            self.next_offset, self.acceptance, self._name = 0, Acceptance(), None
            self._newest_ms = 0
            self.tail.reset(0, self.acceptance)
            self.flusher.forget()
            for listener in self._restore_listeners:
                listener()
            await self._tell_in_slices(writes)

    @property
    def level(self) -> int:
        """The level of `diskless.version` that the shard is written at, as far as this node knows."""
        return level_of(Committed(self.state))

    @property
    def log_id(self) -> uuid.UUID | None:
        """The id of the shard's log, as far as this node knows."""
        name = self.log_name
        return name.log_id if name is not None else None

    @property
    def log_name(self) -> LogName | None:
        """Which log the shard is on, as far as this node knows."""
        return log_name_of(Committed(self.state))

    @property
    def restoring(self) -> bool:
        """Whether a snapshot is taking the store's place.

        Memory keeps what it had until that is done: what is read from it is old but whole. The store cannot be asked.
        """
        return self.flusher.is_suspended

    async def restore(self, bounds: LogBounds) -> None:
        """Begin anew from a snapshot: the log does not have what would come next any more.

        Listeners of commits are told of all rows that differ then, listeners of restores before them. After an error
        the replica is still being restored, and this has to be called again.

        Raises:
            CoordinatorError, CoordinatorStoreError: it cannot be done now.
        """
        await self.flusher.suspend()
        next_offset = await self._fill_store(bounds)
        writes = self.state.replace(await self._resident_rows())
        self.next_offset = self.flusher.stored_offset = next_offset
        self._load_acceptance()
        self.flusher.resume()
        for listener in self._restore_listeners:
            listener()
        self._tell(writes)

    async def _fill_store(self, bounds: LogBounds) -> int:
        name = self._name or log_name_of(Committed(self.state))
        next_offset = await self._snapshots.restore(self.id, self._specs, self.store, name)
        if next_offset < bounds.start:
            raise CoordinatorError(
                f"the log of {self.id} begins at offset {bounds.start}, and the newest snapshot ends at {next_offset}: "
                f"what lies between is in neither"
            )
        return next_offset

    async def _resident_rows(self) -> dict[Table[Any], list[Row]]:
        resident = [table for table in self.state.tables if table.resident]
        return {table: await self.store.read(partial(_all_rows, table)) for table in resident}

    def _load_acceptance(self) -> None:
        self.acceptance = self.state.committed(ACCEPTANCE, (0,)) or Acceptance()
        self.tail.reset(self.next_offset, self.acceptance)

    # --- following -----------------------------------------------------------------------------------------------

    def on_commit(self, listener: Callable[[Writes], None]) -> None:
        """Call `listener` with the writes of each entry right after they were applied."""
        self._commit_listeners.append(listener)

    def on_restore(self, listener: Callable[[], None]) -> None:
        """Call `listener` when rows of tables that are not resident have changed without having been told of."""
        self._restore_listeners.append(listener)

    def replayed(self, entry: Entry) -> Slices[Writes]:
        """What the next entry does to the committed state, which nothing else may change meanwhile."""
        tx, pace = Transaction(Committed(self.state)), Pace()
        for data in entry.records:
            if data != entries.NO_OP:
                try:
                    record = self.machine.decode(data)
                except RecordFormatError as error:
                    replay_common(data, error, tx, self.levels.supported)
                else:
                    yield from self.machine.replay_in_slices(record, tx)
            if pace.is_over_after(1):
                yield
        return tx.writes

    def apply(self, writes: Writes, batch: LogBatch, digest: bytes, sequence: int | None = None) -> None:
        """Take the writes of the next entry, which was accepted, all at once.

        Args:
            batch: the entry as it stands in the log.
            digest: of all that counts, this entry included.
            sequence: what the writes were proposed under.
        """
        self.acceptance = self.acceptance.advanced(batch.offset, digest)
        self._commit({**writes, ACCEPTANCE: {(0,): self.acceptance}}, batch, sequence)
        self._tell(writes)

    def claimed(self, batch: LogBatch, digest: bytes) -> None:
        """Take a claim: whatever offset the store reaches from here on, it has to know whose entries count there.

        Arguments as of `apply`.
        """
        self.acceptance = self.acceptance.claimed(batch.offset, digest)
        self._commit({ACCEPTANCE: {(0,): self.acceptance}}, batch)

    def _commit(self, writes: Writes, batch: LogBatch, sequence: int | None = None) -> None:
        self.next_offset = batch.next_offset
        self._newest_ms = self._clock_watch.follow(max_timestamp_of(batch.data), self._newest_ms)
        self.state.commit(writes, sequence, size_bytes=len(batch.data))
        self.flusher.note()
        self.tail.add(batch, self.acceptance)

    def skip(self, next_offset: int) -> None:
        """Take entries that do not count: they were written under a term that is over, or out of sequence."""
        self.next_offset = next_offset
        self.tail.wake()

    async def _tell_in_slices(self, writes: Writes) -> None:
        """Tell listeners of many rows, of few at a time. Nothing may be applied meanwhile."""
        if sum(map(len, writes.values())) <= ROWS_TOLD_AT_ONCE:
            self._tell(writes)
            return
        for table, rows in writes.items():
            items = iter(rows.items())
            while some := dict(islice(items, ROWS_TOLD_AT_ONCE)):
                self._tell({table: some})
                await asyncio.sleep(0)

    def _tell(self, writes: Writes) -> None:
        for listener in self._commit_listeners:
            listener(writes)

    # --- the store -----------------------------------------------------------------------------------------------

    async def with_store(self, work: Callable[[ShardStore], R]) -> R:
        """Run `work` with the store; errors as `CoordinatorShard.with_store`."""
        self.flusher.require_store()
        return await self.store.read(work)

    async def take_snapshot(self, snapshots: Snapshots, beginning: Beginning | None = None) -> Manifest:
        """Take a snapshot of what the store has; arguments and errors as `Snapshots.take`."""
        self.flusher.require_store()
        return await snapshots.take(self.id, self._specs, self.store, beginning)


def _all_rows(table: Table[Any], store: ShardStore) -> list[Row]:
    return store.scan(table.name)

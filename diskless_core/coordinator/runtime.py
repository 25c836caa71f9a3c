"""One shard: the log's reader, the leader's appender and the store, around a state machine.

A command runs as check (against state with everything pending applied) -> records -> one atomic log entry -> read back
at the high watermark -> applied -> answered. Leading is nothing but having read one's own claim back: see `entries`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import ACCEPTANCE, Acceptance, Claim, Entry
from diskless_core.coordinator.errors import (
    CoordinatorError,
    CoordinatorLoadingError,
    NotCoordinatorError,
    OutcomeUnknownError,
)
from diskless_core.coordinator.leadership import Leadership
from diskless_core.coordinator.machine import Command, RecordT, StateMachine
from diskless_core.coordinator.pipeline import Pending, Pipeline
from diskless_core.coordinator.readers import Committed, Prefetched
from diskless_core.coordinator.shard_store import Flusher, StoreThread
from diskless_core.coordinator.snapshot_format import Manifest
from diskless_core.coordinator.snapshots import NoSnapshots, Snapshots, SnapshotSource
from diskless_core.coordinator.tables import Key, Row, State, Table, Transaction, V, Writes
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError, LogBatch, LogOffsetPrunedError
from diskless_core.plugin.coordinator_store import CoordinatorStore, CoordinatorStoreError, ShardStore
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol import messages, record_frames
from diskless_core.protocol.record_batch import RecordData

R = TypeVar("R")
Operation = Callable[[Command[RecordT]], R]
"""A pure function: reads and emits through the command, returns the answer that it will get once committed."""

RETRY_S = 0.2
"""Base of the back-off, with jitter, after the log failed or another node's claim won."""

_NO_OP = RecordData(key=None, value=record_frames.encode_record(messages.CoordinatorNoOpRecord()))

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardServices:
    """What all shards of a node share."""

    node_id: int
    clock: Clock
    log: CoordinatorLog
    store: CoordinatorStore
    snapshots: SnapshotSource = field(default_factory=NoSnapshots)


class Shard(Generic[RecordT]):
    """A coordinator: one log partition, one state machine, one store.

    Attributes:
        applied_bytes: of the log, since this process follows it.
    """

    def __init__(self, shard_id: ShardId, machine: StateMachine[RecordT], services: ShardServices) -> None:
        self.id = shard_id
        self.machine = machine
        self.state = State(entries.tables_of(machine))
        self._services = services
        self._store = StoreThread(services.store, shard_id)
        self._flusher = Flusher(self._store, self.state, lambda: self._next_offset, shard_id)
        self._specs = [table.spec for table in self.state.tables]
        self._next_offset = 0
        self.applied_bytes = 0
        self._acceptance = Acceptance()
        self._leadership = Leadership()
        self._pipeline = Pipeline()
        self._append_wanted = asyncio.Event()
        self._appending = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: list[Callable[[Writes], None]] = []
        self.failure: str | None = None  # why its work on this node is over, if it is
        self._log = _logger.bind(shard=str(shard_id), node=services.node_id)

    # --- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load what the store has, then follow the log from there. Leading begins by itself when the log hints so.

        Raises:
            CoordinatorError, CoordinatorLogError, CoordinatorStoreError: a backend failed, or its content is gone.
        """
        await self._store.open(self.state.tables)
        self._next_offset = await self._store.read(lambda store: store.applied_offset())
        bounds = await self._services.log.bounds(self.id)
        if self._next_offset > bounds.end:
            self._log.warning("the store is ahead of the log and is dropped", store=self._next_offset, log=bounds.end)
            await self._store.read(lambda store: store.clear())
            self._next_offset = 0
        if self._next_offset < bounds.start:
            self._next_offset = await self._services.snapshots.restore(self.id, self._specs, self._store)
        for table in self.state.tables:
            if table.resident:
                self.state.load(table, await self._store.read(partial(_all_rows, table)))
        self._acceptance = self.state.committed(ACCEPTANCE, (0,)) or Acceptance()
        loops = (self._follow_log, self._follow_leadership, self._append_entries, self._flusher.run)
        self._tasks = [asyncio.create_task(self._guard(loop), name=f"{self.id} {loop.__name__}") for loop in loops]

    async def stop(self) -> None:
        """Stop following, give the store the rest. Commands under way fail with a retriable error."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._step_down("the shard stops")
        try:
            if self._store.is_open:
                await self._flusher.flush()
        finally:
            await self._store.close()

    async def _guard(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop; a defect in it ends the shard's work here, for without one of its loops commands would hang."""
        try:
            await loop()
        except Exception as error:
            self.failure = f"{self.id} stands still from log offset {self._next_offset} on: {error!r}"
            self._log.critical("the shard's work on this node is over: restart the broker", exc_info=True)
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
            self._step_down(self.failure)

    async def until_leading(self) -> None:
        """Wait until this node leads the shard.

        Raises:
            CoordinatorError: it never will: its log or its store cannot be used.
        """
        while not self.leading:
            if self.failure is not None:
                raise CoordinatorError(self.failure)
            self._leadership.changed.clear()
            await self._leadership.changed.wait()

    async def until_term_changes(self, term: int | None) -> int | None:
        """Wait until the term that this node leads in is another than `term`, and return it: None while not leading.

        Whoever keeps state beside the shard's tables drops it then: what was lost in between is not known.
        """
        while self._leadership.term == term:
            self._leadership.changed.clear()
            await self._leadership.changed.wait()
        return self._leadership.term

    def on_commit(self, listener: Callable[[Writes], None]) -> None:
        """Call `listener` with the writes of each entry right after they were applied. It must be quick."""
        self._listeners.append(listener)

    @property
    def leading(self) -> bool:
        return self._leadership.term is not None

    @property
    def term(self) -> int | None:
        """The term that this node leads in. It never has the same one twice."""
        return self._leadership.term

    @property
    def leader_hint(self) -> int | None:
        return self._leadership.hint

    @property
    def next_offset(self) -> int:
        """Everything in the log below this offset has been applied."""
        return self._next_offset

    @property
    def pending_commands(self) -> int:
        return len(self._pipeline)

    # --- commands and reads --------------------------------------------------------------------------------------

    async def submit(self, operation: Operation[RecordT, R], prefetch: Sequence[tuple[Table[Any], Key]] = ()) -> R:
        """Run an operation and return its answer when its records, or those that it relied on, have committed.

        Args:
            operation: called once, synchronously; commands take effect in the order in which this happens.
            prefetch: rows of non-resident tables that it wants to read.

        Raises:
            NotCoordinatorError: this node does not lead; nothing happened.
            OutcomeUnknownError: it may or may not have happened, or may yet.
            CoordinatorError: the store failed to prefetch; nothing happened.
        """
        self._require_leadership()
        base: State | Prefetched = self.state
        if prefetch:
            base = Prefetched(self.state, await self._prefetch(prefetch))
            self._require_leadership()
        command = Command(machine=self.machine, tx=Transaction(base), now_ms=self._services.clock.now_ms())
        answer = operation(command)
        if command.records:
            await self._enqueue([self.machine.encode(record) for record in command.records], command.tx.writes)
        elif (last := self._pipeline.last) is not None:
            await asyncio.shield(last.done)
        return answer

    async def _prefetch(self, wanted: Sequence[tuple[Table[Any], Key]]) -> dict[tuple[Table[Any], Key], Any]:
        try:
            return {(table, key): await self._flusher.prefetch(table, key) for table, key in wanted}
        except CoordinatorStoreError as error:
            raise CoordinatorError(f"the store of {self.id} failed: {error}") from error

    async def barrier(self) -> None:
        """Return when this node has proved to lead still, and all that was committed before the call is applied.

        Raises:
            CoordinatorError: as `submit`.
        """
        self._require_leadership()
        queued = self._pipeline.last_queued
        if queued is not None:
            await asyncio.shield(queued.done)
        else:
            await self._enqueue([_NO_OP], {})

    async def lookup(self, table: Table[V], key: Key) -> V | None:
        """The committed value of a row of any table, from memory or the store."""
        return await self._flusher.prefetch(table, key)

    async def flush(self) -> None:
        """Give the store everything that is committed.

        Raises:
            CoordinatorStoreError: it did not take it; it is tried again by itself.
        """
        await self._flusher.flush()

    async def take_snapshot(self, snapshots: Snapshots) -> Manifest:
        """Take a snapshot of what the store has; errors as `Snapshots.take`."""
        return await snapshots.take(self.id, self._specs, self._store)

    async def with_store(self, work: Callable[[ShardStore], R]) -> R:
        """Run `work` with the store, which may lag behind memory: see `State.in_memory`.

        Of rows it may change those that are nowhere in memory and never put there again.
        """
        return await self._store.read(work)

    def _require_leadership(self) -> None:
        if self._leadership.term is None:
            if self._leadership.hint == self._services.node_id:
                raise CoordinatorLoadingError(f"{self.id} is being loaded")
            raise NotCoordinatorError(f"node {self._services.node_id} does not lead {self.id}")

    async def _enqueue(self, records: Sequence[RecordData], writes: Writes) -> None:
        term = self._leadership.term
        if term is None:
            raise NotCoordinatorError(f"node {self._services.node_id} does not lead {self.id}")
        sequence = self._pipeline.next_sequence
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = entries.encode_entry(term, sequence, records, self._services.clock.now_ms())
        self._pipeline.add(Pending(sequence=sequence, writes=writes, entry=entry, done=done))
        self.state.propose(sequence, writes)
        self._append_wanted.set()
        await asyncio.shield(done)

    # --- the log -------------------------------------------------------------------------------------------------

    async def _append_entries(self) -> None:
        while True:
            await self._append_wanted.wait()
            self._append_wanted.clear()
            async with self._appending:
                batches = self._pipeline.hand_over()
                if not batches:
                    continue
                try:
                    await self._services.log.append(self.id, batches)
                except CoordinatorLogError as error:
                    self._step_down(f"the log failed: {error}")

    async def _follow_log(self) -> None:
        while True:
            try:
                async for batches in self._services.log.read(self.id, self._next_offset):
                    for batch in batches:
                        self._take(batch)
                return
            except LogOffsetPrunedError:
                raise
            except CoordinatorLogError as error:
                self._step_down(f"reading the log failed: {error}")
                await self._back_off()

    def _take(self, batch: LogBatch) -> None:
        self.applied_bytes += len(batch.data)
        own = self._pipeline.oldest_handed_over
        if own is not None and self._is_accepted_own(own) and own.is_read_back_as(batch.data):
            self._acceptance = self._acceptance.advanced()
            self._apply(own.writes, batch.next_offset, own.sequence)
            self._pipeline.read_back()
            if not own.done.done():
                own.done.set_result(None)
            return
        entry = entries.decode(batch.data)
        if isinstance(entry, Claim):
            self._take_claim(entry, batch.offset)
        elif self._acceptance.accepts(entry):
            self._acceptance = self._acceptance.advanced()
            self._apply(self._replayed(entry), batch.next_offset)
            return
        self._next_offset = batch.next_offset

    def _is_accepted_own(self, own: Pending) -> bool:
        return self._leadership.term == self._acceptance.term and own.sequence == self._acceptance.next_sequence

    def _replayed(self, entry: Entry) -> Writes:
        tx = Transaction(Committed(self.state))
        for data in entry.records:
            if data != _NO_OP:
                self.machine.replay(self.machine.decode(data), tx)
        return tx.writes

    def _apply(self, writes: Writes, next_offset: int, sequence: int | None = None) -> None:
        self._next_offset = next_offset
        self.state.commit({**writes, ACCEPTANCE: {(0,): self._acceptance}}, sequence)
        self._flusher.note()
        for listener in self._listeners:
            listener(writes)

    # --- leadership ----------------------------------------------------------------------------------------------

    async def _follow_leadership(self) -> None:
        campaign: asyncio.Task[None] | None = None
        try:
            async for hint in self._services.log.leadership(self.id):
                self._leadership.hint = hint
                if campaign is not None:
                    campaign.cancel()
                if hint == self._services.node_id:
                    campaign = asyncio.create_task(self._campaign(), name=f"{self.id} campaign")
                else:
                    self._step_down(f"the log hints that {hint} leads")
        finally:
            if campaign is not None:
                campaign.cancel()

    async def _campaign(self) -> None:
        """Claim, and claim again whenever leadership was lost, for as long as the log hints at this node."""
        while True:
            if self._leadership.term is None and self._leadership.claim is None:
                await self._append_claim()
            while self._leadership.term is not None or self._leadership.claim is not None:
                self._leadership.changed.clear()
                await self._leadership.changed.wait()
            await self._back_off()

    async def _append_claim(self) -> None:
        claim = Claim(node_id=self._services.node_id, claim_id=self._services.clock.new_uuid())
        self._leadership.claim = claim
        async with self._appending:
            try:
                await self._services.log.append(self.id, [entries.encode_claim(claim, self._services.clock.now_ms())])
            except CoordinatorLogError as error:
                self._step_down(f"the claim could not be appended: {error}")

    def _take_claim(self, claim: Claim, offset: int) -> None:
        self._acceptance = self._acceptance.claimed(offset)
        # Whatever offset the store reaches from here on, it has to know whose entries count there.
        self.state.commit({ACCEPTANCE: {(0,): self._acceptance}})
        self._flusher.note()
        if self._leadership.term is not None:
            self._step_down(f"node {claim.node_id} claimed the shard at offset {offset}")
        if self._leadership.claim == claim:
            self._leadership.claim = None
            self._leadership.term = offset
            self._log.info("this node leads the shard", term=offset)
        self._leadership.changed.set()

    def _step_down(self, reason: str) -> None:
        if self._leadership.term is not None:
            self._log.warning("this node no longer leads the shard", reason=reason, pending=len(self._pipeline))
        self._leadership.term = None
        self._leadership.claim = None
        self.state.forget_pending()
        self._pipeline.fail(queued=NotCoordinatorError(reason), handed_over=OutcomeUnknownError(reason))
        self._leadership.changed.set()

    async def _back_off(self) -> None:
        await asyncio.sleep(RETRY_S * (0.5 + self._services.clock.random().random()))


def _all_rows(table: Table[Any], store: ShardStore) -> list[Row]:
    return store.scan(table.name)

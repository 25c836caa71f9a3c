"""One shard on one node: its replica, which the log brings forward, and the leader's side, around a state machine.

A command runs as check (against state with everything pending applied) -> records -> one atomic log entry -> read back
at the high watermark -> applied -> answered (KIP-1164, "How operations are performed").
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog

from diskless_core.clock import Clock
from diskless_core.clock_watch import ClockWatch
from diskless_core.coordinator import entries, which_log
from diskless_core.coordinator.applied_bytes import AppliedBytes
from diskless_core.coordinator.claim_failures import Rests
from diskless_core.coordinator.entries import Claim, DamagedEntryError
from diskless_core.coordinator.errors import (
    CommandTakenBackError,
    CoordinatorError,
    EntryTooLargeError,
    NotCoordinatorError,
)
from diskless_core.coordinator.following import Following, LogDiffersError
from diskless_core.coordinator.leader import Hold, Leader, Standing
from diskless_core.coordinator.leadership import Nominator
from diskless_core.coordinator.log_end import LogEnd
from diskless_core.coordinator.log_identity import LogIdentityError, LogName, OtherLogError
from diskless_core.coordinator.meter import ShardMeter, SnapshotMark
from diskless_core.coordinator.peers import PeerTransport
from diskless_core.coordinator.pipeline import Outcome
from diskless_core.coordinator.readers import Prefetched
from diskless_core.coordinator.replica import Replica
from diskless_core.coordinator.shard_store import REOPEN_AFTER
from diskless_core.coordinator.slices import Pace, Slices
from diskless_core.coordinator.snapshots import Beginning, NoSnapshots, Snapshots, SnapshotSource
from diskless_core.coordinator.state_machine import Command, RecordT, StateMachine
from diskless_core.coordinator.tables import Key, State, Table, Transaction, Writes
from diskless_core.coordinator.tail import TAIL_BYTES, Tail
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError, LogBatch, LogOffsetPrunedError
from diskless_core.plugin.coordinator_store import CoordinatorStore, CoordinatorStoreError, ShardStore, StoreView
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.feature_levels import BUILD_LEVELS, FeatureLevels
from diskless_core.protocol.record_batch import RecordData
from diskless_core.protocol.record_frames import UnknownRecordError
from diskless_core.shards import kind_of
from diskless_core.snapshot.format import Manifest

R = TypeVar("R")
Operation = Callable[[Command[RecordT]], R]
"""A pure function: reads and emits through the command, returns the answer that it will get once committed."""

SlicedOperation = Callable[[Command[RecordT]], Slices[R]]
"""An operation that is long. It reads what was prefetched before its first slice is over."""

SLICE_LOG_BYTES = 16 << 10
"""Of the log, that are taken before the event loop is given back: some milliseconds of replay."""

OWN_ENTRY_SHARE = 16
"""A leader's own entries only have to be applied: so many bytes of them count for one."""

RESTORE_RETRY = Backoff(first_ms=2_000, max_ms=2_000)
"""While the object store does not give a snapshot."""

_logger = structlog.get_logger(__name__)


def _anybody(_: ShardId) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardServices:
    """What all shards of a node share.

    Attributes:
        may_lead: of which shards the operator lets this node be the leader.
        nominator: says who should lead a shard; None: the log does.
        claim_rests: what the claims of this node have come to.
        levels: what this build knows of feature levels.
        may_write: whether the log is open for more than reading. Who only reads has to be one that never leads.
        new_transport: makes one to other nodes that nobody else uses. None where other nodes cannot be asked.
        clock_watch: the node's. None: each shard has one of its own.
    """

    node_id: int
    clock: Clock
    log: CoordinatorLog
    store: CoordinatorStore
    snapshots: SnapshotSource = field(default_factory=NoSnapshots)
    metrics: Metrics = field(default_factory=Metrics)
    may_lead: Callable[[ShardId], bool] = _anybody
    nominator: Nominator | None = None
    claim_rests: Rests = field(default_factory=Rests)
    levels: FeatureLevels = BUILD_LEVELS
    may_write: bool = True
    new_transport: Callable[[], PeerTransport] | None = None
    clock_watch: ClockWatch | None = None


class CoordinatorShard(Generic[RecordT]):
    """A coordinator: one log partition, one state machine, one store.

    Attributes:
        is_readable: whether what this node knows of the shard may be told: its copy has caught up since it began. It
            stays so then. A shard that was not started says so too: nobody asks it.
        idle_bytes: of the log, since this process follows it, that were entries of this node that changed nothing.
        failure: why the shard's work on this node is over, if it is.
        snapshot: the newest one that this node knows of.
        clock_watch: what all that forgets asks how much time has passed since a time in the log.
    """

    def __init__(self, shard_id: ShardId, machine: StateMachine[RecordT], services: ShardServices) -> None:
        self.id = shard_id
        self.machine = machine
        self.is_readable = True
        self._applied = AppliedBytes()
        self.idle_bytes = 0
        self.failure: str | None = None
        self.snapshot: SnapshotMark | None = None
        self.meter = ShardMeter(services.metrics, shard_id)
        self.clock_watch = services.clock_watch or ClockWatch(services.clock)
        self._services = services
        is_shared = services.log.is_shared
        self._replica = Replica(
            shard_id,
            machine,
            services.store,
            services.snapshots,
            self.meter,
            services.clock,
            self.clock_watch,
            tail_bytes=TAIL_BYTES if is_shared else 0,
            levels=services.levels,
        )
        self._leader = Leader(
            shard_id,
            self._replica.state,
            lambda: self._replica.acceptance.at(self._replica.next_offset),
            lambda: self._replica.acceptance,
            services.log,
            services.nominator or services.log,
            services.clock,
            node_id=services.node_id,
            candidate=services.may_lead(shard_id),
            gives_way=is_shared and services.nominator is None,
            rests=services.claim_rests,
        )
        self._replica.flusher.on_room = self._notice_room
        self._leader.on_step_down = self._replica.tail.wake
        self._following = Following(
            shard_id,
            services.node_id,
            self._replica,
            self._leader.leadership,
            services.log,
            services.clock,
            self.meter,
            services.new_transport() if is_shared and services.new_transport is not None else None,
            take=self._take,
            skip=self._skip,
            until_due=self._until_due,
        )
        self._log_end = LogEnd(shard_id, services.log, services.clock, self.clock_watch, may_write=services.may_write)
        self._end_at_start = 0
        self._log_bytes_taken = 0
        self._has_noticed_foreign = False
        self._judging = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_followed: bool | None = None
        self._follow_failure: str | None = None
        self._failure_listeners: list[Callable[[], None]] = []
        self._log = _logger.bind(shard=str(shard_id), node=services.node_id)

    # --- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load what the store has, then follow the log from there. Leading begins by itself when the log hints so.

        Raises:
            CoordinatorError, CoordinatorLogError, CoordinatorStoreError: a backend failed, or its content is gone.
        """
        await self._open()
        self.is_readable = self.next_offset >= self._end_at_start
        self._run_with_copy()

    def start_without_copy(self) -> None:
        """Only know who is nominated to lead, and be no candidate, until `follow`."""
        self._is_followed = self.is_readable = False
        self._leader.hold_back(Hold.NO_COPY, "this node has no copy", expected=True)
        self._run(self._leader.follow_hints)

    async def follow(self) -> None:
        """Go on as `start` would, after `start_without_copy` or `unfollow`. After an error it can be called again.

        Errors as `start`.
        """
        try:
            await self._open()
        except BaseException as error:
            await self._release()
            self._follow_failure = str(error)
            raise
        await self._end_loops()
        self.is_readable = self.next_offset >= self._end_at_start
        await self._replica.tell_all()
        self._run_with_copy()
        self._leader.may_claim(Hold.NO_COPY)
        self._log.info("the shard is followed here from now on", offset=self.next_offset, end=self._end_at_start)

    def forget_failure(self) -> None:
        """What kept `follow` from it does not count any more."""
        self._follow_failure = None

    async def unfollow(self) -> None:
        """Keep the copy up no more, and free its memory. The store is given the rest, and keeps what it has.

        Commands under way fail with a retriable error.
        """
        self._is_followed = self.is_readable = False
        self._leader.hold_back(Hold.NO_COPY, "this node is to have no copy any more", expected=True)
        await self._end_loops()
        await self._release()
        for cause in (Hold.STORE, Hold.RESTORING):
            self._leader.may_claim(cause)
        self._run(self._leader.follow_hints)
        self._log.info("the shard is not followed here any more")

    async def _open(self) -> None:
        bounds, name = await which_log.look(self._services.log, self.id)
        self._end_at_start = await self._replica.open(bounds, self._log_end, name)

    def _run_with_copy(self) -> None:
        self._is_followed, self._follow_failure = True, None
        self._following.begin()
        self._run(self._follow_log, self._leader.follow_hints, self._leader.append_entries, self._replica.flusher.run)

    def _run(self, *loops: Callable[[], Awaitable[None]]) -> None:
        self._tasks = [asyncio.create_task(self._guard(loop), name=f"{self.id} {loop.__name__}") for loop in loops]
        self._leader.leadership.changed.set()

    async def _end_loops(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _release(self) -> None:
        """Close the copy, and forget it, whatever its store says to that."""
        try:
            await self._replica.release()
        except CoordinatorStoreError as error:
            self._log.warning("the store was not closed cleanly: it is behind, and catches up", error=str(error))
        self._leader.forget_claims()
        self._end_at_start = 0

    async def marked_end(self) -> int:
        """Where the log ends: everything that was committed before the call is below.

        Raises:
            CoordinatorLogError: it cannot be said now.
        """
        return await self._log_end.marked_end()

    async def stop(self) -> None:
        """Stop following, give the store the rest. Commands under way fail with a retriable error."""
        await self._end_loops()
        self._leader.step_down("the shard stops", expected=True)
        await self._replica.close()

    async def _guard(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop; a defect in it ends the shard's work here, for without one of its loops commands would hang."""
        try:
            await loop()
        except Exception as error:
            self.failure = self._told(error)
            others = [task for task in self._tasks if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            self._leader.hold_back(Hold.FAILURE, self.failure)
            for listener in self._failure_listeners:
                listener()
            if others:  # there is one loop where there is no copy
                await asyncio.wait(others)
            await self._follow_hints_of_others()

    def _told(self, error: Exception) -> str:
        """Why the shard's work on this node is over; the broker's log is told too."""
        where = f"{self.id} stands still from log offset {self.next_offset} on"
        match error:
            case UnknownRecordError():
                reason, advice = (
                    f"{error}. A later version of Diskless wrote it: upgrade this broker",
                    "upgrade the broker",
                )
            case LogIdentityError():
                reason, advice = str(error), "this is not its log"
            case DamagedEntryError():
                reason = f"{error}. Restart the broker; if it comes here again, bring an intact copy of the log back"
                advice = "its log is damaged"
            case LogDiffersError():
                reason, advice = str(error), "the log has lost entries, or this copy of them is wrong"
            case _:
                self._log.critical("the shard's work on this node is over: restart the broker", exc_info=True)
                return f"{where}: {error!r}"
        self._log.critical(f"the shard's work on this node is over: {advice}", reason=f"{where}: {reason}")
        return f"{where}: {reason}"

    async def _follow_hints_of_others(self) -> None:
        """Be no candidate any more, so that another node is nominated, and know who leads."""
        try:
            await self._leader.follow_hints()
        except Exception:
            self._log.exception("who leads the shard is not known here any more")

    async def until_leading(self) -> None:
        """Wait until this node leads the shard.

        Raises:
            CoordinatorError: it never will: its log or its store cannot be used.
        """
        await self._wait_until(lambda: self.leading)

    async def until_serving(self) -> None:
        """Wait until nothing is in the way: see `obstacle`.

        Raises:
            CoordinatorError: something always will be: its log or its store cannot be used.
        """
        await self._wait_until(lambda: self.obstacle is None)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            held = condition()
            if not held and self.failure is not None:
                raise CoordinatorError(self.failure)
            return held

        await self._leader.leadership.wait_until(holds)

    async def until_term_changes(self, term: int | None) -> int | None:
        """Wait until the term that this node leads in is another than `term`, and return it: None while not leading.

        Whoever keeps state beside the shard's tables drops it then: what was lost in between is not known.
        """
        await self._leader.leadership.wait_until(lambda: self.term != term)
        return self.term

    async def until_caught_up(self) -> None:
        """Wait until this node has applied what was committed when it started, whoever leads.

        Raises:
            CoordinatorError: it never will: its log or its store cannot be used.
        """
        await self._wait_until(lambda: self.backlog is None)

    async def until_readable(self) -> None:
        """Wait until `is_readable`.

        Raises:
            CoordinatorError: it never will be: its log or its store cannot be used.
        """
        await self._wait_until(lambda: self.is_readable)

    async def until_leadership(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds that depends on who leads, by the log's hint and this node's term."""
        await self._leader.leadership.wait_until(condition)

    async def until_led_elsewhere(self, node_id: int) -> None:
        """Wait until the log hints at a leader that it does not hint at now, and that is not `node_id`."""
        hint = self.leader_hint
        await self._leader.leadership.wait_until(lambda: self.leader_hint not in (None, node_id, hint))

    def suspect(self, node_id: int) -> None:
        """A node that may be nominated to lead has most likely ended: its nominator may name another one sooner.

        It is a hint at hints: whoever is nominated has to claim, and the log decides.
        """
        self._services.log.suspect(self.id, node_id)

    def withdraw(self) -> None:
        """Lead no more, and be no candidate any more, because this node is about to stop. The replica is kept up."""
        self._leader.hold_back(Hold.LEAVING, "the broker is about to stop", expected=True)

    def stand_back(self, cause: Hold, reason: str) -> None:
        """Be no candidate until `stand` is called for the same cause."""
        self._leader.hold_back(cause, reason, expected=True)

    def stand(self, cause: Hold) -> None:
        """End what `stand_back` began."""
        self._leader.may_claim(cause)

    def stand_aside(self) -> None:
        """Be no candidate until `stand_again`: this node starts, and waits for an object store. Others may have none to
        wait for. Nothing happens where there are no others."""
        if self._services.log.is_shared:
            self._leader.hold_back(Hold.OBJECTS, "the broker starts, and its object store does not answer")

    def stand_again(self) -> None:
        """End what `stand_aside` began."""
        self._leader.may_claim(Hold.OBJECTS)

    def on_commit(self, listener: Callable[[Writes], None]) -> None:
        """Call `listener` with the writes of each entry right after they were applied. It must be quick.

        When a snapshot took the place of entries, it is told of all rows of resident tables that differ. So it is of
        all that are gone after `unfollow`, and of all that are there after `follow`.
        """
        self._replica.on_commit(listener)

    def on_failure(self, listener: Callable[[], None]) -> None:
        """Call `listener` when `failure` has come to be known; it must be quick."""
        self._failure_listeners.append(listener)

    def on_restore(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a snapshot took the place of entries; it must be quick.

        Whoever keeps what it learnt of tables that are not resident has to drop it.
        """
        self._replica.on_restore(listener)

    # --- how it is -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._replica.state

    @property
    def leading(self) -> bool:
        return self.term is not None

    @property
    def term(self) -> int | None:
        """The term that this node leads in. It never has the same one twice."""
        return self._leader.leadership.term

    @property
    def latest_term(self) -> int:
        """The term of the latest claim that this node has read, whoever leads in it; -1 before the first."""
        return self._replica.acceptance.term

    @property
    def predecessor(self) -> int | None:
        """The node that led before the one that leads now; None where it was the same, or is not known."""
        return self._leader.leadership.predecessor

    @property
    def leader_hint(self) -> int | None:
        """The node that is nominated to lead, and that may."""
        return self._leader.leadership.hint

    @property
    def claimed_by(self) -> int | None:
        """The node whose claim is the latest that this process has read; None before the first."""
        return self._leader.leadership.claimant

    @property
    def is_followed(self) -> bool:
        """Whether this node has a copy of the shard, and keeps it up, or is about to."""
        return self._is_followed is not False

    @property
    def follow_failure(self) -> str | None:
        """Why this node cannot follow the shard, which it tries to; None where it does, or does not try."""
        return self._follow_failure

    @property
    def is_caught_up(self) -> bool:
        """Whether this node has a copy that has all that was committed when it began to follow."""
        return self._is_followed is True and self.backlog is None

    @property
    def obstacle(self) -> str | None:
        """Why this node can neither answer for the shard nor follow whoever does; None when it can.

        A follower has to have applied what was committed when it started, and to know who leads.
        """
        if self.failure is not None:
            return self.failure
        if self.leading:
            return None
        if self._replica.restoring or self.held_back:
            return self.backlog
        if self.leader_hint is None:
            return f"nobody is known to lead {self.id}"
        if self.leader_hint == self._services.node_id:
            return f"{self.id} is not led by this node yet"
        return self.backlog

    @property
    def backlog(self) -> str | None:
        """Why this node has not applied what was committed when it started, or can't apply more; None when it can.

        Nothing is to be applied where the shard is not followed.
        """
        if self.failure is not None:
            return self.failure
        if not self.is_followed:
            return None
        if not self._tasks:
            return f"{self.id} is not started yet"
        if self._replica.restoring:
            return f"{self.id} is being restored from a snapshot"
        if self.held_back:
            return f"the store of {self.id} lacks too much for more of the log to be read: see the broker's log"
        if self.next_offset < self._end_at_start:
            return f"the log of {self.id} is being read"
        return None

    @property
    def cannot_lead(self) -> bool:
        """Whether another node would be the better leader: this one's copy is broken, or is being mended."""
        is_broken = self.failure is not None or self._follow_failure is not None
        return is_broken or self._replica.restoring or self.held_back

    @property
    def claims_fail(self) -> bool:
        """Whether another node would be the better leader because the log does not take this one's claims."""
        return self._leader.claims_fail

    @property
    def next_offset(self) -> int:
        """Everything in the log below this offset has been applied."""
        return self._replica.next_offset

    @property
    def level(self) -> int:
        """The level of `diskless.version` that the shard is written at, as far as this node knows."""
        return self._replica.level

    @property
    def log_id(self) -> uuid.UUID | None:
        """The id of the shard's log, as far as this node knows."""
        return self._replica.log_id

    @property
    def log_name(self) -> LogName | None:
        """Which log the shard is on, and which one that took the place of, as far as this node knows."""
        return self._replica.log_name

    @property
    def pending_commands(self) -> int:
        return len(self._leader.pipeline)

    @property
    def stored_offset(self) -> int:
        """Everything in the log below this offset is in the store."""
        return self._replica.flusher.stored_offset

    @property
    def unflushed_rows(self) -> int:
        """Rows that are applied and not in the store yet."""
        return self.state.unstored_rows

    @property
    def held_back(self) -> bool:
        """Whether the store lacks so much that nothing more is taken until it has caught up."""
        return not self._replica.flusher.has_room

    @property
    def bytes_since_snapshot(self) -> int:
        """Bytes of the log that this process has applied since `snapshot`, or since it follows the log."""
        return self.applied_bytes - (self.snapshot.applied_bytes if self.snapshot is not None else 0)

    @property
    def snapshot_bytes(self) -> int:
        """The size of `snapshot`; 0 without one."""
        return self.snapshot.size_bytes if self.snapshot is not None else 0

    @property
    def applied_bytes(self) -> int:
        """Of the log, since this process follows it."""
        return self._applied.total

    def applied_bytes_up_to(self, offset: int) -> int:
        """How many of them lie below an offset; see `AppliedBytes.up_to`."""
        return self._applied.up_to(offset)

    @property
    def snapshot_taken_at(self) -> int:
        """When `snapshot` was taken, in milliseconds since the epoch; 0 without one."""
        return self.snapshot.taken_at if self.snapshot is not None else 0

    @property
    def tail(self) -> Tail:
        """The newest claims and accepted entries that were taken here."""
        return self._replica.tail

    def require_leading(self) -> int:
        """The term that this node leads in.

        Raises:
            NotCoordinatorError, CoordinatorLoadingError: it does not, or not yet.
        """
        return self._leader.require()

    # --- commands and reads --------------------------------------------------------------------------------------

    async def submit(self, operation: Operation[RecordT, R], prefetch: Sequence[tuple[Table[Any], Key]] = ()) -> R:
        """Run an operation and return its answer when its records, or those that it relied on, have committed.

        Args:
            operation: called once, synchronously; commands take effect in the order in which this happens.
            prefetch: rows of non-resident tables that it wants to read.

        Raises:
            NotCoordinatorError: this node does not lead; nothing happened.
            EntryTooLargeError: the log will never take what it writes; nothing happened.
            CommandTakenBackError: what it was judged upon was refused; nothing happened.
            OutcomeUnknownError: it may or may not have happened, or may yet.
            StoreBehindError: the store lacks too much for new records; nothing happened.
            CoordinatorError: the store failed to prefetch; nothing happened.
            FeatureLevelError: the operation is defective: a record needs a higher level than the one in force.
                Nothing happened.
        """
        return await self.submit_in_slices(lambda command: _in_one_slice(operation, command), prefetch)

    async def submit_in_slices(
        self, operation: SlicedOperation[RecordT, R], prefetch: Sequence[tuple[Table[Any], Key]] = ()
    ) -> R:
        """The same as `submit`, for an operation that is long.

        While it is judged no other command is, and nobody sees what it has done so far: it takes effect when its last
        slice is over. If the term ends before, nothing happened.
        """
        begun = self._services.clock.monotonic()
        self._leader.require()
        base: State | Prefetched = self.state
        flusher = self._replica.flusher
        if prefetch:
            base = Prefetched(self.state, await self._prefetch(prefetch))
        generation = flusher.generation
        too_large: EntryTooLargeError | None = None
        async with self._judging:
            standing = self._leader.standing()
            while prefetch and generation != flusher.generation:  # the command had to wait, and rows left memory
                base = Prefetched(self.state, await self._prefetch(prefetch))
                generation = flusher.generation
                standing = self._leader.standing()
            command = Command(machine=self.machine, tx=Transaction(base), now_ms=self._services.clock.now_ms())
            answer = await self._while_standing(standing, operation(command))
            try:
                done = await self._sent(standing, command)
            except EntryTooLargeError as error:
                too_large = error
            else:
                for effect in command.effects:
                    effect()
        if too_large is not None:  # other commands do not wait for the proof
            await self.barrier()
            self._leader.require_same(standing)
            raise too_large
        if done is not None:
            await (self._outcome(done, standing, command) if command.writes_something else _proven(done))
        self.meter.command_seconds.observe(self._services.clock.monotonic() - begun)
        return answer

    async def _while_standing(self, standing: Standing, slices: Slices[R]) -> R:
        """Work on the speculative state. It does not change within a term: others only commit what it shows."""
        return await _one_by_one(slices, lambda: self._leader.require_same(standing))

    async def _sent(self, standing: Standing, command: Command[RecordT]) -> Outcome | None:
        """Put a judged command's records on their way. What it waits for; None when it relied on nothing pending.

        Raises:
            EntryTooLargeError: the log would refuse them. That is final once this node has proved to lead still.
        """
        if not command.writes_something:
            last = self._leader.pipeline.last
            return last.done if last is not None else None
        self._replica.flusher.require_room()
        records = await self._while_standing(standing, self._encoded(command))
        return self._leader.enqueue(records, command.tx.writes, has_effects=bool(command.effects))

    async def _outcome(self, done: Outcome, standing: Standing, command: Command[RecordT]) -> None:
        """Wait for a command that has been put on its way; errors as `submit`.

        That the log refuses its entry is final only if this node leads still: a state that is over may have made it
        larger than it would be now. After effects beside the state the term ends with the refusal, and proves nothing.
        """
        try:
            await asyncio.shield(done)
        except EntryTooLargeError:
            if not command.effects:
                await self.barrier()
                if self._leader.require() != standing.term:
                    raise NotCoordinatorError(f"the term of {self.id} in which the command began is over") from None
            raise

    def _encoded(self, command: Command[RecordT]) -> Slices[list[RecordData]]:
        """The command's records as they stand in the log.

        Raises:
            FeatureLevelError: one of them needs a higher level than the shard is written at.
        """
        levels, level = self._services.levels, command.level
        keyed = kind_of(self.id).keyed_records
        encoded, pace = list(command.common), Pace()
        for record in command.records:
            data = self.machine.encode(record)
            if level < levels.supported.newest:
                levels.require(data, level, keyed)
            encoded.append(data)
            if pace.is_over_after(1):
                yield
        return encoded

    async def _prefetch(self, wanted: Sequence[tuple[Table[Any], Key]]) -> dict[tuple[Table[Any], Key], Any]:
        with self.store_errors():
            return await self._replica.flusher.prefetch(wanted)

    async def barrier(self) -> None:
        """Return when this node has proved to lead still, and all that was committed before the call is applied.

        Raises:
            CoordinatorError: as `submit`.
        """
        self._leader.require()
        queued = self._leader.pipeline.last_queued
        if queued is not None:
            await _proven(queued.done)
        else:
            await asyncio.shield(self._leader.enqueue([entries.NO_OP], {}))

    async def flush(self) -> None:
        """Give the store everything that is committed.

        Raises:
            CoordinatorStoreError: it did not take it; it is tried again by itself.
        """
        await self._replica.flusher.flush()

    async def take_snapshot(self, snapshots: Snapshots, beginning: Beginning | None = None) -> Manifest:
        """Take a snapshot of what the store has; arguments and errors as `Snapshots.take`."""
        with self._replica.store.lent():
            return await self._replica.take_snapshot(snapshots, beginning)

    def note_snapshot(self, mark: SnapshotMark) -> None:
        """Take note of the newest snapshot that this node knows of."""
        self.snapshot = mark

    async def with_store(self, work: Callable[[ShardStore], R]) -> R:
        """Run `work` with the store, which may lag behind memory: see `State.in_memory`.

        Of rows it may change those that are nowhere in memory and never put there again.

        Raises:
            CoordinatorStoreError: the store failed, or is being filled from a snapshot.
        """
        return await self._replica.with_store(work)

    @contextmanager
    def store_errors(self) -> Iterator[None]:
        """Raise a CoordinatorError where the store fails, for callers that know of no store."""
        try:
            yield
        except CoordinatorStoreError as error:
            raise CoordinatorError(f"the store of {self.id} failed: {error}") from error

    # --- what a kind of shard adds to its status -------------------------------------------------------------------

    def data_bytes(self) -> int | None:
        """Size of all batches that can be read; None in a kind of shard that has none."""
        return None

    def count_objects(self, stored: StoreView, rows: Mapping[str, int]) -> Mapping[str, int] | None:
        """How many WAL objects the shard knows, by stage of life; None in a kind of shard that has none.

        Args:
            stored: what the store has. All of it may be read; it is called on a thread of its own.
            rows: how many rows each table has that is not resident, by its name.
        """
        del stored, rows
        return None

    # --- the log -------------------------------------------------------------------------------------------------

    async def _follow_log(self) -> None:
        while True:
            try:
                await self._following.run()
                return
            except LogOffsetPrunedError as error:
                await self._restore(error)
            except CoordinatorLogError as error:
                self._leader.step_down(f"reading the log failed: {error}")
                await self._leader.back_off()

    async def _until_due(self) -> None:
        """Wait for the time to take the next entry.

        A leader takes what it has let into the log. Any other replica waits until its store takes what it lacks.
        """
        if self.held_back and not self.leading:
            self._leader.hold_back(Hold.STORE, "the store lacks too much for more of the log to be read")
            await self._replica.flusher.until_room()
        if self._log_bytes_taken >= SLICE_LOG_BYTES:
            self._log_bytes_taken = 0
            await asyncio.sleep(0)

    def _notice_room(self) -> None:
        self._leader.may_claim(Hold.STORE)
        self._leader.leadership.changed.set()

    async def _take(self, batch: LogBatch, digest: bytes | None = None) -> bool:
        """See `Take`."""
        was_reading = self.next_offset < self._end_at_start
        chain = entries.chained(self._replica.acceptance.digest, batch)
        if digest is not None and chain != digest:
            return False
        own = self._leader.read_back(batch.data, self._replica.acceptance)
        if own is not None:
            self._log_bytes_taken += len(batch.data) // OWN_ENTRY_SHARE
            self.idle_bytes += 0 if own.writes else len(batch.data)
            self._replica.apply(own.writes, batch, chain, own.sequence)
            self._leader.pipeline.read_back()
            if not own.done.done():
                own.done.set_result(None)
        else:
            self._log_bytes_taken += len(batch.data)
            if not await self._take_foreign(batch, chain, is_read=digest is None):
                if digest is not None:
                    return False
                self._replica.skip(batch.next_offset)
        self._applied.add(batch.offset, batch.next_offset, len(batch.data))
        if was_reading:
            self._notice_end_at_start()
        return True

    def _skip(self, next_offset: int) -> None:
        """Take it that nothing counts below `next_offset` that was not taken."""
        self._replica.skip(next_offset)
        self._notice_end_at_start()

    def _notice_end_at_start(self) -> None:
        if self.next_offset >= self._end_at_start:
            self.is_readable = True
            self._leader.leadership.changed.set()

    async def _take_foreign(self, batch: LogBatch, chain: bytes, *, is_read: bool) -> bool:
        """Take what is no command of this node; False, with nothing done, if it does not count.

        Args:
            is_read: whether it comes from the log. What a leader sends has been compared by its digest.
        """
        entry = await _one_by_one(entries.decode_in_slices(batch.data))
        if isinstance(entry, Claim):
            if self._services.log.is_shared and entry != self._leader.leadership.claim:
                await self._following.check_claim(entry, batch.offset)
            self._replica.claimed(batch, chain)
            self._leader.claimed(entry, batch.offset)
            return True
        if is_read:
            await self._following.check_entry(entry, batch.offset)
        if not self._replica.acceptance.accepts(entry):
            if entry in (entries.FOREIGN, entries.MALFORMED):
                self._notice_foreign(batch.offset, begins_like_ours=entry == entries.MALFORMED)
            return False
        if entry.log_id is not None and self.log_id is not None and entry.log_id != self.log_id:
            raise OtherLogError.between("the log", entry.log_id, "the coordinator store on this node", self.log_id)
        self._replica.apply(await _one_by_one(self._replica.replayed(entry)), batch, chain)
        if self.term == self._replica.acceptance.term:
            # The sequence is taken: what this node has on its way would be ignored, and its callers wait for ever.
            self._leader.step_down("an entry of this term came back that this node had given up")
        return True

    def _notice_foreign(self, offset: int, *, begins_like_ours: bool) -> None:
        if begins_like_ours:
            self._log.error(
                "the log has an entry that is malformed, though its checksum is right: no broker has acknowledged it, "
                "and all of them ignore it",
                offset=offset,
            )
        elif not self._has_noticed_foreign:
            self._has_noticed_foreign = True
            self._log.warning(
                "the log has messages that no coordinator wrote, which all brokers ignore: keep other producers away",
                first_offset=offset,
            )
        self.meter.foreign_batches.inc()

    async def _restore(self, reason: LogOffsetPrunedError) -> None:
        """The log was pruned beyond what is applied here: a snapshot covers it."""
        self._leader.hold_back(Hold.RESTORING, f"the log was pruned: {reason}")
        self._log.warning("this node has fallen behind the start of the log", applied=self.next_offset)
        store_failures = 0
        while True:
            try:
                if store_failures >= REOPEN_AFTER:
                    await self._replica.store.reopen(least_offset=0)
                await self._replica.restore(await self._services.log.bounds(self.id))
                break
            except (CoordinatorError, CoordinatorLogError, CoordinatorStoreError) as error:
                store_failures += isinstance(error, CoordinatorStoreError)
                self._log.error("the shard could not be restored; it is tried again", error=str(error))
                await asyncio.sleep(RESTORE_RETRY.pause_s(1, self._services.clock))
        self._leader.may_claim(Hold.RESTORING)
        self._notice_end_at_start()  # the snapshot may reach it
        self._leader.leadership.changed.set()


def _in_one_slice(operation: Operation[RecordT, R], command: Command[RecordT]) -> Slices[R]:
    yield from ()
    return operation(command)


async def _proven(done: Outcome) -> None:
    """Wait for a command of somebody else, which this one relied on.

    Raises:
        CommandTakenBackError: the log refused it.
        CoordinatorError: as the command itself.
    """
    try:
        await asyncio.shield(done)
    except EntryTooLargeError as error:
        raise CommandTakenBackError(str(error)) from None


async def _one_by_one(slices: Slices[R], before_next: Callable[[], None] = lambda: None) -> R:
    """Do all of it, and let the event loop run between the slices. Work of a single slice is done without a pause.

    Args:
        before_next: called before each slice but the first; what it raises ends the work.
    """
    while True:
        try:
            next(slices)
        except StopIteration as done:
            result: R = done.value
            return result
        await asyncio.sleep(0)
        before_next()

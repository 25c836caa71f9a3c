"""The leading side of a shard on one node: claims while the log hints at it, and commands on their way into the log.

(KIP-1164, "Leadership and deployment", "How operations are performed".) Leading is nothing but having read one's own
claim back: see `entries`. What comes back is noticed by whoever reads the log, and told here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum, auto
from typing import NamedTuple

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator import entries
from diskless_core.coordinator.claim_failures import GIVE_WAY_S, ClaimFailures, Rests
from diskless_core.coordinator.entries import Acceptance, Claim, Position, ReadBack
from diskless_core.coordinator.errors import (
    CommandTakenBackError,
    CoordinatorLoadingError,
    EntryTooLargeError,
    NotCoordinatorError,
    OutcomeUnknownError,
)
from diskless_core.coordinator.leadership import Leadership, Nominator
from diskless_core.coordinator.log_identity import log_name_of
from diskless_core.coordinator.pipeline import Pending, Pipeline
from diskless_core.coordinator.tables import State, Writes
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError, EntryRefusedError
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.record_batch import RecordData

RETRY = Backoff(first_ms=200, max_ms=200)
"""After the log failed."""

DEPOSED = Backoff(first_ms=200, max_ms=30_000)
"""After another node's claim ended a term. It grows each time: nodes that all believe to be nominated would otherwise
spend their time on claims."""

LASTING_TERM_S = 120.0
"""A term that lasted so long makes a node forget how often it was deposed before."""

APPEND_LIMIT_S = 45.0
"""After which an append of a log that does not keep to its own limit counts as one of unknown outcome."""

_logger = structlog.get_logger(__name__)


class LogWentBackError(Exception):
    """The log gave out offsets again that this node has read entries at."""


class Hold(Enum):
    """Why a node is no candidate for now."""

    STORE = auto()
    RESTORING = auto()
    FAILURE = auto()
    LEAVING = auto()
    CLAIMS = auto()
    NAMESAKE = auto()
    UNREACHABLE = auto()
    OBJECTS = auto()
    NO_COPY = auto()
    OPENING = auto()


class Standing(NamedTuple):
    """The term that this node leads in, and how often commands of it were taken back: see `Leader.require_same`."""

    term: int
    refusals: int


class Leader:
    """What it takes to lead one shard.

    Args:
        state: where commands lay their writes while they are on their way.
        position: how far this node has read the log, and whose entries count there.
        acceptance: whose entries count there, and what counted so far.
        nominator: says who should lead the shard.
        candidate: whether this node may lead the shard at all. One that may not never claims, whatever the log hints.
        gives_way: whether it stops to be a candidate for a while when its claims fail. Where the controller nominates,
            it hears of that instead.
        rests: the node's.

    Attributes:
        on_step_down: called when it leads no more.
    """

    def __init__(
        self,
        shard_id: ShardId,
        state: State,
        position: Callable[[], Position],
        acceptance: Callable[[], Acceptance],
        log: CoordinatorLog,
        nominator: Nominator,
        clock: Clock,
        *,
        node_id: int,
        candidate: bool,
        gives_way: bool,
        rests: Rests,
    ) -> None:
        self.id = shard_id
        self.leadership = Leadership()
        self.pipeline = Pipeline()
        self.candidate = candidate
        self.on_step_down: Callable[[], None] = lambda: None
        self._state = state
        self._position = position
        self._acceptance = acceptance
        self._said: ReadBack | None = None
        self._log = log
        self._nominator = nominator
        self._clock = clock
        self._node_id = node_id
        self._append_wanted = asyncio.Event()
        self._appending = asyncio.Lock()
        self._held_by: set[Hold] = set()
        self._standing_changed = asyncio.Event()
        self._generation: int | None = None
        self._is_deposed = False
        self._times_deposed = 0
        self._term_began = 0.0
        self._gives_way = gives_way
        self._claim_failures = ClaimFailures(clock, rests)
        self._logger = _logger.bind(shard=str(shard_id), node=node_id)

    # --- commands ------------------------------------------------------------------------------------------------

    def require(self) -> int:
        """The term that this node leads in.

        Raises:
            NotCoordinatorError, CoordinatorLoadingError: it does not, or not yet.
        """
        if self.leadership.term is None:
            if self.leadership.hint == self._node_id:
                raise CoordinatorLoadingError(f"{self.id} is being loaded")
            raise NotCoordinatorError(f"node {self._node_id} does not lead {self.id}")
        return self.leadership.term

    def require_same(self, standing: Standing) -> None:
        """Raises:
        NotCoordinatorError, CoordinatorLoadingError: this node has not led all the time.
        CommandTakenBackError: commands that were on their way then were taken back.
        """
        if self.require() != standing.term:
            raise NotCoordinatorError(f"the term of {self.id} in which the command began is over")
        if self.pipeline.refusals != standing.refusals:
            raise CommandTakenBackError(f"the log of {self.id} refused what the command was judged upon")

    def standing(self) -> Standing:
        """What a command is judged in; errors as `require`."""
        return Standing(self.require(), self.pipeline.refusals)

    def enqueue(
        self, records: Sequence[RecordData], writes: Writes, *, has_effects: bool = False
    ) -> asyncio.Future[None]:
        """Put an entry on its way. The answer is done when it was read back and accepted, and never to be cancelled.

        It fails as `CoordinatorShard.submit`.

        Args:
            has_effects: whether the command does something beside the state too.

        Raises:
            NotCoordinatorError, CoordinatorLoadingError: as `require`.
            EntryTooLargeError: the log would refuse it.
        """
        term = self.require()
        sequence = self.pipeline.next_sequence
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        name = log_name_of(self._state)
        log_id = name.log_id if name is not None else None
        read_back = self._acceptance().read_back()
        is_news = read_back != self._said  # entries that are under way together say it once
        entry = entries.encode_entry(
            term, sequence, records, self._clock.now_ms(), log_id, read_back if is_news else None
        )
        if len(entry) > self._log.max_entry_bytes:
            raise EntryTooLargeError(
                f"the command's entry of {len(entry)} bytes is larger than the {self._log.max_entry_bytes} bytes that "
                f"the log of {self.id} takes: make the request smaller"
            )
        self._said = read_back
        self.pipeline.add(Pending(sequence=sequence, writes=writes, entry=entry, done=done, has_effects=has_effects))
        self._state.propose(sequence, writes)
        self._append_wanted.set()
        return done

    async def append_entries(self) -> None:
        """Give the log what is queued, all of it in one append, and one append after the other."""
        while True:
            await self._append_wanted.wait()
            self._append_wanted.clear()
            async with self._appending:
                handed_over = self.pipeline.hand_over()
                if not handed_over:
                    continue
                try:
                    await self._append([pending.entry for pending in handed_over])
                except EntryRefusedError as error:
                    self._take_back(handed_over[error.position], error)
                except CoordinatorLogError as error:
                    self.step_down(f"the log failed: {error}")

    async def _append(self, batches: Sequence[bytes]) -> None:
        read_up_to = self._position().offset
        try:
            async with asyncio.timeout(APPEND_LIMIT_S):
                offsets = await self._log.append(self.id, batches)
        except TimeoutError:
            raise CoordinatorLogError(f"the log has not answered for {APPEND_LIMIT_S:.0f} s") from None
        if offsets and offsets[0] < read_up_to:
            raise LogWentBackError(
                f"the log of {self.id} gave out offset {offsets[0]}, and this node has read it up to {read_up_to}: "
                f"what was committed there is lost. Bring the log back, or give up for good what it lacks: stop the "
                f"broker, delete the shard's folder in the coordinator store, and start it"
            )

    def _take_back(self, refused: Pending, error: EntryRefusedError) -> None:
        """Fail a command that the log certainly did not and will not append, and the term goes on.

        Entries before it in the append are on their way, none behind it is.
        """
        given_up = self.pipeline.take_back(
            refused,
            EntryTooLargeError(f"the log of {self.id} refused the command's entry for good: {error}"),
            CommandTakenBackError(f"the log of {self.id} refused what the command was judged upon"),
        )
        if not given_up:
            return  # the term ended meanwhile
        self._state.forget_pending()
        for pending in self.pipeline.handed_over:
            self._state.propose(pending.sequence, pending.writes)
        self._logger.error("the log refused a command's entry for good", size=len(refused.entry), error=str(error))
        if any(pending.has_effects for pending in given_up):
            self.step_down("the log refused a command that has done something beside the state, which begins anew")

    def read_back(self, data: bytes, acceptance: Acceptance) -> Pending | None:
        """The command that a log entry is, if it is the next of this node's and will be accepted."""
        own = self.pipeline.oldest_handed_over
        if own is None or self.leadership.term != acceptance.term or own.sequence != acceptance.next_sequence:
            return None
        return own if own.is_read_back_as(data) else None

    # --- terms ---------------------------------------------------------------------------------------------------

    async def follow_hints(self) -> None:
        """Claim the shard for as long as the log hints at this node, which is a candidate unless it is held back."""
        while not await self._unless_standing_changes(self._listen()):
            pass

    async def _unless_standing_changes(self, listening: Coroutine[None, None, None]) -> bool:
        """Listen until this node stands as a candidate, or does so no more; True when the hints ended instead."""
        self._standing_changed.clear()
        work = asyncio.create_task(listening, name=f"{self.id} hints")
        watch = asyncio.create_task(self._standing_changed.wait(), name=f"{self.id} candidacy")
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, watch):
                task.cancel()
            await asyncio.wait((work, watch))
        if work.cancelled():
            return False
        work.result()
        return True

    async def _listen(self) -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as campaigns:
                    await self._follow_hints(campaigns)
                return
            except* CoordinatorLogError as errors:
                self._take_hint(None)
                self._logger.warning(
                    "the log does not say who should lead; it is asked again", error=str(errors.exceptions[0])
                )
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the log has answered it with an error
                raise asyncio.CancelledError
            await self.back_off()

    async def _follow_hints(self, campaigns: asyncio.TaskGroup) -> None:
        campaign: asyncio.Task[None] | None = None
        try:
            async for hint in self._nominator.leadership(self.id, candidate=self._stands):
                if self._generation is not None and hint.generation < self._generation:
                    continue
                if hint.generation != self._generation:
                    self._generation = hint.generation
                    self._times_deposed = 0
                if campaign is not None:
                    campaign.cancel()
                self._take_hint(hint.node_id)
                if self.leadership.hint == self._node_id:
                    campaign = campaigns.create_task(self._campaign(), name=f"{self.id} campaign")
        finally:
            if campaign is not None:
                campaign.cancel()

    @property
    def claims_fail(self) -> bool:
        """Whether claims failed for so long that another node should be nominated: see `ClaimFailures`."""
        return self._claim_failures.last

    @property
    def _stands(self) -> bool:
        return self.candidate and not self._held_by

    def _take_hint(self, hint: int | None) -> None:
        if hint == self._node_id and not self._stands:
            hint = None
        self.leadership.hint = hint
        if hint != self._node_id:
            reason = "nobody is nominated" if hint is None else f"node {hint} is nominated"
            self.step_down(reason, expected=hint is not None)
            self._claim_failures.interrupted()
        elif self.leadership.claim is not None:
            self.step_down("a claim was interrupted")
        self.leadership.changed.set()

    async def _campaign(self) -> None:
        """Claim, and claim again whenever leadership was lost."""
        while True:
            if self._stands and self.leadership.term is None and self.leadership.claim is None:
                await self._append_claim()
            await self.leadership.wait_until(lambda: self.leadership.term is None and self.leadership.claim is None)
            if self._gives_way and self._claim_failures.go_on:
                self._give_way()
            if self._is_deposed:
                await asyncio.sleep(DEPOSED.pause_s(self._times_deposed, self._clock))
            else:
                await self.back_off()

    def _give_way(self) -> None:
        self._logger.warning("the log does not take this node's claims: it lets another one lead, if there is one")
        self.hold_back(Hold.CLAIMS, "its claims fail")
        asyncio.get_running_loop().call_later(GIVE_WAY_S, self.may_claim, Hold.CLAIMS)

    async def _append_claim(self) -> None:
        claim = Claim(node_id=self._node_id, claim_id=self._clock.new_uuid(), read=self._position())
        self.leadership.claim = claim
        self._claim_failures.began()
        async with self._appending:
            try:
                await self._append([entries.encode_claim(claim, self._clock.now_ms())])
            except CoordinatorLogError as error:
                self.step_down(f"the claim could not be appended: {error}")

    def hold_back(self, cause: Hold, reason: str, *, expected: bool = False) -> None:
        """Do not lead, claim nothing and be no candidate until `may_claim`, so that another node is nominated.

        Args:
            expected: nobody has to be warned.
        """
        if cause in self._held_by:
            return
        self._held_by.add(cause)
        self._standing_changed.set()
        if self.leadership.hint == self._node_id:
            self.leadership.hint = None
        self.step_down(reason, expected=expected)
        self._claim_failures.interrupted()

    def may_claim(self, cause: Hold) -> None:
        """End what `hold_back` began, if nothing else holds this node back."""
        if cause in self._held_by:
            self._held_by.discard(cause)
            self._standing_changed.set()

    def claimed(self, claim: Claim, offset: int) -> None:
        """A claim was read: this node leads if it is its latest one, and leads no more if it is another's."""
        before, self.leadership.claimant = self.leadership.claimant, claim.node_id
        self.leadership.predecessor = before if before != claim.node_id else None
        if self.leadership.term is not None:
            lasted = self._clock.monotonic() - self._term_began >= LASTING_TERM_S
            self._times_deposed = 1 if lasted else self._times_deposed + 1
            self._is_deposed = True
            self.step_down(f"node {claim.node_id} claimed the shard at offset {offset}")
        if self.leadership.claim == claim:
            self._is_deposed = False
            self._claim_failures.succeeded()
            self._term_began = self._clock.monotonic()
            self.leadership.claim = None
            self.leadership.term = offset
            self._logger.info("this node leads the shard", term=offset)
        self.leadership.changed.set()

    def forget_claims(self) -> None:
        """The log is not read any more: who claims the shard is not known."""
        self.leadership.claimant = self.leadership.predecessor = None
        self.leadership.changed.set()

    def step_down(self, reason: str, *, expected: bool = False) -> None:
        """Lead no more: what is pending is dropped, and its callers get an error that they can retry.

        Args:
            expected: nobody has to be warned.
        """
        if self.leadership.term is not None:
            log = self._logger.info if expected else self._logger.warning
            log("this node no longer leads the shard", reason=reason, pending=len(self.pipeline))
        if self.leadership.claim is not None:
            self._claim_failures.failed()
        self.leadership.term = None
        self.leadership.claim = None
        self._state.forget_pending()
        self.pipeline.fail(queued=NotCoordinatorError(reason), handed_over=OutcomeUnknownError(reason))
        self.leadership.changed.set()
        self.on_step_down()

    async def back_off(self) -> None:
        """Wait a little, not as long as others do."""
        await asyncio.sleep(RETRY.pause_s(1, self._clock))

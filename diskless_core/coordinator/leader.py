"""The leading side of a shard on one node: claims while the log hints at it, and commands on their way into the log.

(KIP-1164, "Leadership and deployment", "How operations are performed".) Leading is nothing but having read one's own
claim back: see `entries`. What comes back is noticed by whoever reads the log, and told here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Acceptance, Claim
from diskless_core.coordinator.errors import CoordinatorLoadingError, NotCoordinatorError, OutcomeUnknownError
from diskless_core.coordinator.leadership import Leadership, Nominator
from diskless_core.coordinator.pipeline import Pending, Pipeline
from diskless_core.coordinator.tables import State, Writes
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.record_batch import RecordData

RETRY = Backoff(first_ms=200, max_ms=200)
"""After the log failed or another node's claim won."""

_logger = structlog.get_logger(__name__)


class Leader:
    """What it takes to lead one shard.

    Args:
        state: where commands lay their writes while they are on their way.
        nominator: says who should lead the shard.
        candidate: whether this node may lead the shard at all. One that may not never claims, whatever the log hints.

    Attributes:
        on_step_down: called when it leads no more.
    """

    def __init__(
        self,
        shard_id: ShardId,
        state: State,
        log: CoordinatorLog,
        nominator: Nominator,
        clock: Clock,
        *,
        node_id: int,
        candidate: bool,
    ) -> None:
        self.id = shard_id
        self.leadership = Leadership()
        self.pipeline = Pipeline()
        self.candidate = candidate
        self.on_step_down: Callable[[], None] = lambda: None
        self._state = state
        self._log = log
        self._nominator = nominator
        self._clock = clock
        self._node_id = node_id
        self._append_wanted = asyncio.Event()
        self._appending = asyncio.Lock()
        self._may_claim = asyncio.Event()
        self._may_claim.set()
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

    def enqueue(self, records: Sequence[RecordData], writes: Writes) -> asyncio.Future[None]:
        """Put an entry on its way. The answer is done when it was read back and accepted, and never to be cancelled.

        It fails with NotCoordinatorError or OutcomeUnknownError, as `CoordinatorShard.submit`.

        Raises:
            NotCoordinatorError, CoordinatorLoadingError: as `require`.
        """
        term = self.require()
        sequence = self.pipeline.next_sequence
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = entries.encode_entry(term, sequence, records, self._clock.now_ms())
        self.pipeline.add(Pending(sequence=sequence, writes=writes, entry=entry, done=done))
        self._state.propose(sequence, writes)
        self._append_wanted.set()
        return done

    async def append_entries(self) -> None:
        """Give the log what is queued, all of it in one append, and one append after the other."""
        while True:
            await self._append_wanted.wait()
            self._append_wanted.clear()
            async with self._appending:
                batches = self.pipeline.hand_over()
                if not batches:
                    continue
                try:
                    await self._log.append(self.id, batches)
                except CoordinatorLogError as error:
                    self.step_down(f"the log failed: {error}")

    def read_back(self, data: bytes, acceptance: Acceptance) -> Pending | None:
        """The command that a log entry is, if it is the next of this node's and will be accepted."""
        own = self.pipeline.oldest_handed_over
        if own is None or self.leadership.term != acceptance.term or own.sequence != acceptance.next_sequence:
            return None
        return own if own.is_read_back_as(data) else None

    # --- terms ---------------------------------------------------------------------------------------------------

    async def follow_hints(self) -> None:
        """Claim the shard for as long as the log hints at this node."""
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
            await self.back_off()

    async def _follow_hints(self, campaigns: asyncio.TaskGroup) -> None:
        campaign: asyncio.Task[None] | None = None
        try:
            async for hint in self._nominator.leadership(self.id, candidate=self.candidate):
                if campaign is not None:
                    campaign.cancel()
                self._take_hint(hint.node_id)
                if self.leadership.hint == self._node_id:
                    campaign = campaigns.create_task(self._campaign(), name=f"{self.id} campaign")
        finally:
            if campaign is not None:
                campaign.cancel()

    def _take_hint(self, hint: int | None) -> None:
        if hint == self._node_id and not self.candidate:
            hint = None
        self.leadership.hint = hint
        if hint != self._node_id:
            self.step_down(f"the log hints that {hint} leads")
        elif self.leadership.claim is not None:
            self.step_down("a claim was interrupted")
        self.leadership.changed.set()

    async def _campaign(self) -> None:
        """Claim, and claim again whenever leadership was lost."""
        while True:
            await self._may_claim.wait()
            if self.leadership.term is None and self.leadership.claim is None:
                await self._append_claim()
            await self.leadership.wait_until(lambda: self.leadership.term is None and self.leadership.claim is None)
            await self.back_off()

    async def _append_claim(self) -> None:
        claim = Claim(node_id=self._node_id, claim_id=self._clock.new_uuid())
        self.leadership.claim = claim
        async with self._appending:
            try:
                await self._log.append(self.id, [entries.encode_claim(claim, self._clock.now_ms())])
            except CoordinatorLogError as error:
                self.step_down(f"the claim could not be appended: {error}")

    def hold_back(self, reason: str) -> None:
        """Do not lead, and claim nothing, until `may_claim`."""
        self._may_claim.clear()
        self.step_down(reason)

    def may_claim(self) -> None:
        """End what `hold_back` began."""
        self._may_claim.set()

    def claimed(self, claim: Claim, offset: int) -> None:
        """A claim was read: this node leads if it is its latest one, and leads no more if it is another's."""
        before, self.leadership.claimant = self.leadership.claimant, claim.node_id
        self.leadership.predecessor = before if before != claim.node_id else None
        if self.leadership.term is not None:
            self.step_down(f"node {claim.node_id} claimed the shard at offset {offset}")
        if self.leadership.claim == claim:
            self.leadership.claim = None
            self.leadership.term = offset
            self._logger.info("this node leads the shard", term=offset)
        self.leadership.changed.set()

    def step_down(self, reason: str, *, expected: bool = False) -> None:
        """Lead no more: what is pending is dropped, and its callers get an error that they can retry.

        Args:
            expected: nobody has to be warned.
        """
        if self.leadership.term is not None:
            log = self._logger.info if expected else self._logger.warning
            log("this node no longer leads the shard", reason=reason, pending=len(self.pipeline))
        self.leadership.term = None
        self.leadership.claim = None
        self._state.forget_pending()
        self.pipeline.fail(queued=NotCoordinatorError(reason), handed_over=OutcomeUnknownError(reason))
        self.leadership.changed.set()
        self.on_step_down()

    async def back_off(self) -> None:
        """Wait a little, not as long as others do."""
        await asyncio.sleep(RETRY.pause_s(1, self._clock))

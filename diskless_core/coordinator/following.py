"""How a replica gets what comes next: from the node that leads, or from the log itself.

Whom the hint names as leader, and every replica whose leader does not answer, reads the log. All others ask the leader
for what it has accepted, one request after the other, each of which waits for more. They check the chain of digests,
and take nothing that differs: then they read the log again. (Extension to KIP-1164, "Local state machine".)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from diskless_core.clock import LEAST_PAUSE_S, Clock
from diskless_core.coordinator import entries
from diskless_core.coordinator.calls import PeerCalls, require_answer
from diskless_core.coordinator.entries import Acceptance, Claim, Entry
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.leadership import Leadership
from diskless_core.coordinator.log_end import closing, read_between
from diskless_core.coordinator.meter import ShardMeter
from diskless_core.coordinator.peers import PeerTransport
from diskless_core.coordinator.replica import Replica
from diskless_core.coordinator.tail import NotInTailError
from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    LogBatch,
    LogBounds,
    LogOffsetPrunedError,
)
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DisklessFollowShardRequest, DisklessFollowShardResponse
from diskless_core.protocol.record_batch import CorruptBatchError, read_header

T = TypeVar("T")

WAIT_MS = 2_000
"""How long a leader may keep a request that it has nothing for."""

ANSWER_BYTES = 1 << 20
"""Of entries, that one answer may have."""

IDLE_S = 60.0
"""After a leader has sent nothing for so long, the log is asked whether it has more: the node may lead no longer."""

BOUNDS_S = 5.0
"""How long the log has to say so."""

ASK_AGAIN = Backoff(first_ms=200, max_ms=10_000)
"""After the leader gave no answer, or did not lead."""

REPORTED_FAILURES = 5
"""After so many in a row, which take some seconds, the operator is told."""

_START_ANEW = (
    "Nothing more is taken from it. Stop the broker, delete the shard's folder in the coordinator store, and start it; "
    "if it comes here again, the log is damaged: bring an intact copy of it back"
)

_logger = structlog.get_logger(__name__)


class Take(Protocol):
    """Takes the next entry of the log."""

    async def __call__(self, batch: LogBatch, digest: bytes | None = None) -> bool:
        """Take it, or ignore it as every replica would.

        Args:
            digest: of all that counts, this entry included, where a leader sent it. One that does not count then, or
                that gives another digest, is not taken and not ignored.

        Returns whether it was taken or ignored.
        """
        ...


class LogDiffersError(Exception):
    """The log says something else than what this node has applied."""


@dataclass(slots=True)
class _Prospect:
    """What is known of asking one node in one term.

    Attributes:
        ask_at: by the monotonic clock; not before.
        ask_from: not before the replica has come so far.
        differs: it sent something else than what the log has. It is not asked again.
    """

    leader: int | None = None
    term: int = entries.NO_TERM
    failures: int = 0
    ask_at: float = 0.0
    ask_from: int = 0
    differs: bool = False


class Following:
    """Brings one replica forward.

    Args:
        transport: to other nodes, for this shard alone: answers on a connection come in the order of the requests, and
            these wait. None where nobody else has the log.
        take: does so for the shard, which may have commands of its own that wait for an entry.
        skip: takes it that nothing counts below an offset that was not taken.
        until_due: waits for the time to take the next entry.
    """

    def __init__(
        self,
        shard: ShardId,
        node_id: int,
        replica: Replica[Any],
        leadership: Leadership,
        log: CoordinatorLog,
        clock: Clock,
        meter: ShardMeter,
        transport: PeerTransport | None,
        *,
        take: Take,
        skip: Callable[[int], None],
        until_due: Callable[[], Awaitable[None]],
    ) -> None:
        self._shard = shard
        self._node_id = node_id
        self._replica = replica
        self._leadership = leadership
        self._source = log
        self._clock = clock
        self._meter = meter
        self._calls = PeerCalls(transport, WAIT_MS) if transport is not None else None
        self._take = take
        self._skip = skip
        self._until_due = until_due
        self._prospect = _Prospect()
        self._heard_at = 0.0
        self._compared_term = entries.NO_TERM
        self._compare_at = 0.0
        self._log = _logger.bind(shard=str(shard), node=node_id)

    def begin(self) -> None:
        """The replica was opened: what was known of leaders before counts no more."""
        self._prospect = _Prospect()

    async def run(self) -> None:
        """Take what comes next, until the log is stopped.

        Raises:
            LogOffsetPrunedError: the log has no longer what comes next, and no leader gives it either.
            CoordinatorLogError: the log cannot be read. If this is called again, a leader is asked first.
            LogDiffersError: what was applied is not what the log says.
        """
        while True:
            leader = self._whom_to_ask()
            if leader is not None and self._calls is not None:
                await self._unless(partial(self._is_led_by_another_than, leader), self._follow(leader, self._calls))
            elif await self._unless(self._can_ask, self._read_log(), until=self._ask_at()):
                return

    # --- where from ----------------------------------------------------------------------------------------------

    def _leader(self) -> int | None:
        """The other node that leads, as far as is known: the hint's, or without a hint the latest claimant."""
        leadership = self._leadership
        leader = leadership.hint if leadership.hint is not None else leadership.claimant
        return leader if leader != self._node_id else None

    def _is_led_by_another_than(self, leader: int) -> bool:
        return self._leader() != leader

    def _whom_to_ask(self) -> int | None:
        """The leader, if it is known and it is time to ask it."""
        leader = self._leader()
        if leader is None or self._calls is None:
            return None
        term = self._replica.acceptance.term
        prospect = self._prospect
        if (prospect.leader, prospect.term) != (leader, term):
            prospect = self._prospect = _Prospect(leader, term)
        if prospect.differs or self._replica.next_offset < prospect.ask_from:
            return None
        return leader if self._clock.monotonic() >= prospect.ask_at else None

    def _can_ask(self) -> bool:
        return self._whom_to_ask() is not None

    def _ask_at(self) -> float | None:
        """When, by the monotonic clock, a leader is asked at the latest that is not asked now."""
        prospect = self._prospect
        is_due = self._leader() is None or self._calls is None or prospect.differs
        return prospect.ask_at if not is_due and prospect.ask_at > self._clock.monotonic() else None

    async def _unless(
        self, interrupted: Callable[[], bool], work: Awaitable[T], *, until: float | None = None
    ) -> T | None:
        """Do the work. It is cancelled, and the answer None, when `interrupted` holds or the time has come."""
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(None if until is None else max(LEAST_PAUSE_S, until - self._clock.monotonic()))
        watch = asyncio.create_task(self._leadership.wait_until(interrupted), name=f"{self._shard} leader")
        is_working = True

        def interrupt(_: asyncio.Task[None]) -> None:
            if is_working and not limit.expired():
                limit.reschedule(loop.time())

        watch.add_done_callback(interrupt)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            return None
        finally:
            is_working = False
            watch.cancel()

    # --- the log -------------------------------------------------------------------------------------------------

    async def _read_log(self) -> bool:
        """Take what the log has, until a leader can be asked instead; True when the log was stopped."""
        async with closing(self._source.read(self._shard, self._replica.next_offset)) as stream:
            async for batches in stream:
                self._meter.log_entries.inc(len(batches))
                for batch in batches:
                    await self._until_due()
                    self._require_next(batch)
                    await self._take(batch)
                if self._can_ask():
                    return False
        return True

    # --- the leader ----------------------------------------------------------------------------------------------

    async def _follow(self, leader: int, calls: PeerCalls) -> None:
        """Take what the leader has accepted, for as long as it gives it."""
        self._heard_at = self._clock.monotonic()
        while await self._take_more(leader, calls):
            pass

    async def _take_more(self, leader: int, calls: PeerCalls) -> bool:
        """Ask once; whether to ask again."""
        await self._until_due()
        if await self._log_has_more():
            return False
        try:
            answer = await calls.call(leader, self._request())
            code = require_answer(answer.error_code, answer.error_message)
        except CoordinatorError as error:
            self._put_off(str(error))
            return False
        if code is ErrorCode.NONE:
            return await self._take_answer(leader, answer)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if await self._log_reaches(answer.next_offset):
                self._prospect.ask_from = max(answer.next_offset, self._replica.next_offset + 1)
            else:
                self._put_off(f"it has read up to offset {answer.next_offset}, it says, and the log does not say so")
        elif code is ErrorCode.CORRUPT_MESSAGE:
            await self._settle_difference(leader, str(answer.error_message))
        else:
            self._put_off(answer.error_message or code.name)
        return False

    def _request(self) -> DisklessFollowShardRequest:
        acceptance = self._replica.acceptance
        return DisklessFollowShardRequest(
            shard_topic=self._shard.topic,
            shard_index=self._shard.index,
            next_offset=self._replica.next_offset,
            term=acceptance.term,
            next_sequence=acceptance.next_sequence,
            digest=acceptance.digest,
            max_bytes=ANSWER_BYTES,
            max_wait_ms=WAIT_MS,
        )

    async def _take_answer(self, leader: int, answer: DisklessFollowShardResponse) -> bool:
        for sent in answer.entries:
            await self._until_due()
            batch = LogBatch(sent.offset, sent.next_offset, sent.data)
            is_next = self._replica.next_offset <= batch.offset and batch.next_offset <= answer.next_offset
            if not is_next or not _is_plausible(batch) or not await self._take(batch, sent.digest):
                await self._settle_difference(leader, f"it does not follow at offset {batch.offset}")
                return False
        self._meter.streamed_entries.inc(len(answer.entries))
        if answer.entries:
            self._heard_at = self._clock.monotonic()
        if answer.next_offset > self._replica.next_offset:
            if answer.digest != self._replica.acceptance.digest:
                await self._settle_difference(leader, f"something is missing before offset {answer.next_offset}")
                return False
            if not await self._log_reaches(answer.next_offset):
                self._put_off(f"it has read up to offset {answer.next_offset}, it says, and the log does not say so")
                return False
            self._skip(answer.next_offset)
        if self._prospect.failures:
            self._log.info("the leader sends what it accepts again", leader=leader)
            self._prospect.failures = 0
        return True

    def _put_off(self, reason: str) -> None:
        """Read the log, and ask again later."""
        prospect = self._prospect
        prospect.failures += 1
        prospect.ask_at = self._clock.monotonic() + ASK_AGAIN.pause_s(prospect.failures, self._clock)
        if prospect.failures in (1, REPORTED_FAILURES):
            tell = self._log.info if prospect.failures == 1 else self._log.warning
            tell("the log is read, since the leader does not give it", leader=prospect.leader, reason=reason)

    async def _log_has_more(self) -> bool:
        """Whether the log has what a leader, silent for long, has not sent."""
        if self._clock.monotonic() - self._heard_at < IDLE_S:
            return False
        self._heard_at = self._clock.monotonic()
        try:
            bounds = await self._bounds()
        except CoordinatorLogError:
            return False
        if bounds.end <= self._replica.next_offset:
            return False
        self._prospect.ask_from = bounds.end
        return True

    async def _log_reaches(self, offset: int) -> bool:
        """Whether the log has come as far as a leader says that it has."""
        try:
            return (await self._bounds()).end >= offset
        except CoordinatorLogError:
            return False

    # --- differences ---------------------------------------------------------------------------------------------

    async def _settle_difference(self, leader: int, what: str) -> None:
        """The leader has accepted something else than this replica: the log says who is right.

        While the log does not say it, what comes next is read from the log all the same, and the leader asked later.

        Raises:
            LogDiffersError: the leader is.
        """
        self._meter.differences.inc()
        self._log.error(
            "another broker sends other entries than were applied here: nothing of it is taken, and the log is read",
            leader=leader,
            offset=self._replica.next_offset,
            reason=what,
        )
        try:
            await self._compare_tail()
            await self._compare_since_snapshot()
        except CoordinatorLogError as error:
            self._put_off(f"it sends other entries, and who is right is not known yet: {error}")
        else:
            self._prospect.differs = True
            self._compared_term = self._replica.acceptance.term

    def _require_next(self, batch: LogBatch) -> None:
        """The log goes forward: a batch that was taken comes never again, and none before it.

        Raises:
            LogDiffersError: it does not.
        """
        taken = self._replica.next_offset
        if batch.next_offset <= max(taken, batch.offset):
            raise LogDiffersError(
                f"the log gives a batch of the offsets {batch.offset} to {batch.next_offset - 1} where {taken} is "
                f"next: it repeats or reorders what it has. {_START_ANEW}"
            )

    async def check_entry(self, entry: Entry, offset: int) -> None:
        """Compare what the log has given with what its leader had read back when it wrote an entry of the present term.

        A log that skips an entry, or gives another in its place, would otherwise leave this copy behind, or make it
        another one, and nothing would tell. Where only the content differs, the log is read again, and says who is
        right: the leader may be mistaken, and its entries count all the same.

        Raises:
            LogDiffersError: the log lacks an entry, or had other ones when it was read before.
        """
        accepted, said = self._replica.acceptance, entry.read_back
        if said is None or entry.term != accepted.term:
            return
        if said.next_sequence > accepted.next_sequence:
            raise LogDiffersError(
                f"the log, as it is read here, lacks the entries {accepted.next_sequence} to {said.next_sequence - 1} "
                f"of the term {entry.term}, which its leader had read back before it wrote the one at offset {offset}. "
                f"{_START_ANEW}"
            )
        known = self._replica.tail.digest_at(entry.term, said.next_sequence)
        is_same = known is None or known == said.digest  # None: the tail does not go back so far
        if is_same or self._compared_term == entry.term or self._clock.monotonic() < self._compare_at:
            return
        self._meter.differences.inc()
        self._log.error(
            "the leader has read other entries than were applied here: the log is read again",
            offset=offset,
            term=entry.term,
            sequence=said.next_sequence,
        )
        try:
            await self._compare_tail()
            await self._compare_since_snapshot()
        except CoordinatorLogError as error:
            self._compare_at = self._clock.monotonic() + ASK_AGAIN.max_ms / 1000
            self._log.warning("who is right is not known yet", error=str(error))
        else:
            self._compared_term = entry.term

    async def check_claim(self, claim: Claim, offset: int) -> None:
        """Compare what another node had read when it claimed with what this one has read there, if that is still known.

        Where they differ, the log is read again, and says who is right. The claim counts all the same.

        Raises:
            LogDiffersError: the claimant is: what was committed here is lost.
            CoordinatorLogError: the log cannot be read now.
        """
        read = claim.read
        if read.offset <= offset:
            try:
                if self._replica.tail.acceptance_at(read.offset).at(read.offset) == read:
                    return
            except NotInTailError:
                return
            await self._compare_tail()
            try:
                await self._compare_since_snapshot()
            except CoordinatorLogError as error:
                self._log.warning("only the newest entries were compared with the log", error=str(error))
        self._meter.disputed_claims.inc()
        self._log.error(
            "another broker claims the shard and has read something else than the log has: stop it, and delete the "
            "shard's folder in its coordinator store",
            claimant=claim.node_id,
            claim=offset,
            offset=read.offset,
            term=read.term,
            sequence=read.next_sequence,
        )

    async def _compare_tail(self) -> None:
        """Read again what the tail has.

        Raises:
            LogDiffersError: that leads to something else than what was applied.
            CoordinatorLogError: the log cannot be read now.
        """
        tail, end = self._replica.tail, self._replica.next_offset
        start = max(tail.start, (await self._bounds()).start)
        if start < end:
            self._require_same(
                start, await self._after(tail.acceptance_at(start), start, end), self._replica.acceptance
            )

    async def _compare_since_snapshot(self) -> None:
        """Read again what comes after the newest snapshot, or all that the log has if it was never pruned.

        Errors as `_compare_tail`, and CoordinatorLogError where the snapshots cannot be read.
        """
        end, own = self._replica.next_offset, self._replica.acceptance
        try:
            snapshot = await self._replica.newest_snapshot()
        except CoordinatorError as error:
            raise CoordinatorLogError(str(error)) from error
        at, accepted = (snapshot.applied_offset, snapshot.acceptance) if snapshot is not None else (0, Acceptance())
        if min(at, end) < (await self._bounds()).start:
            return  # it is not known any more, or a snapshot is about to take this copy's place
        if at <= end:
            self._require_same(at, await self._after(accepted, at, end), own)
        else:
            self._require_same(end, accepted, await self._after(own, end, at))

    async def _bounds(self) -> LogBounds:
        try:
            async with asyncio.timeout(BOUNDS_S):
                return await self._source.bounds(self._shard)
        except TimeoutError:
            raise CoordinatorLogError(f"the log has not said for {BOUNDS_S:.0f} s where it begins and ends") from None

    async def _after(self, acceptance: Acceptance, start: int, end: int) -> Acceptance:
        """What counts at `end`, by what the log has from `start` on, where `acceptance` does."""
        try:
            async with aclosing(read_between(self._source, self._shard, start, end)) as batches:
                async for batch in batches:
                    await asyncio.sleep(0)
                    acceptance = acceptance.after(entries.decode_or_ignore(batch.data), batch)
        except LogOffsetPrunedError as error:
            raise CoordinatorLogError(f"the log was pruned while it was read: {error}") from error
        return acceptance

    def _require_same(self, start: int, found: Acceptance, applied: Acceptance) -> None:
        if found != applied:
            raise LogDiffersError(
                f"from offset {start} on the log has other entries than were applied here before offset "
                f"{self._replica.next_offset}: what was committed is lost, or this copy of it is wrong. Stop the "
                f"broker, delete the shard's folder in the coordinator store, and start it"
            )


def _is_plausible(batch: LogBatch) -> bool:
    """Whether an entry takes as many offsets as it may. No digest covers where it ends."""
    try:
        return 1 <= batch.next_offset - batch.offset <= max(1, read_header(batch.data).record_count)
    except CorruptBatchError:
        return False

"""Who should lead: the node whose session holds a shard's advisory lock. It writes who it is, and that it lives.

The lock goes with its session, so a process that ends is replaced at once. A node that is paused keeps its session: it
gives no sign of life any more, and another candidate ends that session after a while. All of this only nominates.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from diskless_core.clock import Clock
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LeadershipHint
from diskless_core.plugin.shard import ShardId
from diskless_postgres.sessions import NotExecutedError, Session
from diskless_postgres.tables import NOTIFY, TERMINATE_HOLDER, TRY_LOCK, UNLOCK, Statements
from diskless_postgres.watcher import NOMINATION

_NOBODY = LeadershipHint(None, generation=0)
_SIGNS_IN_A_SESSION = 4

_log = structlog.get_logger(__name__)


def lock_key(log_id: uuid.UUID, shard: ShardId) -> int:
    """The advisory lock of a shard's nomination: positive, so that it reads the same in `pg_locks`."""
    digest = hashlib.sha256(log_id.bytes + str(shard).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(eq=False, slots=True)
class _Seat:
    """One shard's nomination as this node sees it.

    Attributes:
        holds: the generation that this node was nominated with; None while it holds no lock.
        beat: generation and beat that were read last; `seen_at` is when they were new.
    """

    shard: ShardId
    key: int
    hint: LeadershipHint | None = None
    candidacies: int = 0
    holds: int | None = None
    beat: tuple[int, int] | None = None
    seen_at: float = 0.0
    suspected: tuple[int, int] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, hint: LeadershipHint) -> None:
        if hint != self.hint:
            self.hint = hint
            self.notify()

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Nominations:
    """All nominations of one node, on one session."""

    def __init__(
        self,
        node_id: int,
        log_id: uuid.UUID,
        statements: Statements,
        clock: Clock,
        open_session: Callable[[], Awaitable[Session]],
        *,
        session_timeout_s: float,
    ) -> None:
        self._node_id = node_id
        self._log_id = log_id
        self._statements = statements
        self._clock = clock
        self._open_session = open_session
        self._timeout_s = session_timeout_s
        self._pause_s = session_timeout_s / _SIGNS_IN_A_SESSION
        self._seats: dict[ShardId, _Seat] = {}
        self._session: Session | None = None
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="coordinator log nominations")

    def wake(self) -> None:
        """Something may have changed."""
        self._wanted.set()

    async def stop(self) -> None:
        """Withdraw, and end all streams."""
        self._is_stopped = True
        self._wanted.set()
        if self._task is not None:
            await asyncio.wait([self._task])
            self._task.result()
        for seat in self._seats.values():
            seat.notify()

    async def hints(self, shard: ShardId, *, candidate: bool) -> AsyncGenerator[LeadershipHint, None]:
        """As `CoordinatorLog.leadership`."""
        seat = self._seats.get(shard)
        if seat is None:
            seat = self._seats[shard] = _Seat(shard, lock_key(self._log_id, shard))
        seat.candidacies += candidate
        self._wanted.set()
        told: LeadershipHint | None = None
        try:
            while not self._is_stopped:
                hint, changed = seat.hint, seat.changed
                if hint is not None and hint != told:
                    told = hint
                    yield hint
                else:
                    await changed.wait()
        finally:
            seat.candidacies -= candidate
            self._wanted.set()

    def suspect(self, shard: ShardId, node_id: int) -> None:
        """As `CoordinatorLog.suspect`."""
        seat = self._seats.get(shard)
        if seat is not None and seat.hint is not None and seat.hint.node_id == node_id != self._node_id:
            seat.suspected = seat.beat
            self._wanted.set()

    async def _run(self) -> None:
        while not self._is_stopped:
            self._wanted.clear()
            try:
                await self._step()
            except CoordinatorLogError as error:
                _log.warning("the session of this node's nominations was lost", error=str(error))
                await self._lose_session()
            await self._rest()
        try:
            for seat in self._seats.values():
                seat.candidacies = 0
            if self._session is not None:
                await self._step()
        except CoordinatorLogError as error:
            _log.warning("a nomination could not be given back, and ends with its session", error=str(error))
        await self._lose_session()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._pause_s):
                await self._wanted.wait()
        except TimeoutError:
            return

    async def _lose_session(self) -> None:
        session, self._session = self._session, None
        for seat in self._seats.values():
            if seat.holds is not None:
                seat.tell(LeadershipHint(None, seat.holds))
                seat.holds = None
        if session is not None:
            await session.close()

    async def _step(self) -> None:
        if self._session is None:
            self._session = await self._open_session()
        for seat in list(self._seats.values()):
            await self._look(self._session, seat)

    async def _look(self, session: Session, seat: _Seat) -> None:
        name = str(seat.shard)
        if seat.holds is not None:
            await self._renew(session, seat)
        elif seat.candidacies and await self._is_free(session, seat):
            ((generation,),), _ = await session.do(self._statements.nominate, [name, self._node_id])
            seat.holds, seat.suspected = generation, None
            await self._announce(session)
        rows, _ = await session.do(self._statements.nomination, [name])
        node_id, generation, beat = rows[0] if rows else (None, 0, 0)
        if seat.beat != (generation, beat):
            seat.beat, seat.seen_at = (generation, beat), self._clock.monotonic()
        seat.tell(LeadershipHint(node_id, generation) if rows else _NOBODY)

    async def _renew(self, session: Session, seat: _Seat) -> None:
        """Say that this node lives, or give the lock back."""
        withdraws = not seat.candidacies  # it may change meanwhile: then the next step does the other thing
        statement = self._statements.withdraw if withdraws else self._statements.beat
        _, count = await session.do(statement, [str(seat.shard), seat.holds])
        if withdraws or count == 0:
            seat.holds = None
            await session.do(UNLOCK, [seat.key])
            await self._announce(session)

    async def _is_free(self, session: Session, seat: _Seat) -> bool:
        """Take the lock, from a holder that gives no sign of life if need be."""
        if await self._try_lock(session, seat):
            return True
        is_suspected = seat.suspected is not None and seat.suspected == seat.beat
        is_silent = seat.beat is not None and self._clock.monotonic() - seat.seen_at > self._timeout_s
        if not (is_suspected or is_silent):
            return False
        # it may have given one since this node looked
        rows, _ = await session.do(self._statements.nomination, [str(seat.shard)])
        if rows and (rows[0][1], rows[0][2]) != seat.beat:
            return False
        _log.warning("the nominated node gives no sign of life: its session is ended", shard=str(seat.shard))
        seat.suspected, seat.seen_at = None, self._clock.monotonic()
        try:
            await session.do(TERMINATE_HOLDER, [seat.key])
        except NotExecutedError as error:
            _log.warning("that session cannot be ended by this role", error=str(error))
            return False
        return await self._try_lock(session, seat)

    @staticmethod
    async def _try_lock(session: Session, seat: _Seat) -> bool:
        ((is_taken,),), _ = await session.do(TRY_LOCK, [seat.key])
        return bool(is_taken)

    async def _announce(self, session: Session) -> None:
        await session.do(NOTIFY, [self._statements.channel, NOMINATION])

"""The appends of one shard: what waits goes into one statement, one is under way, and no outcome is guessed.

An append moves the shard's row from the head that this node knows. When nobody knows whether it did, the row's fence is
raised: after that has been committed the statement can never take place any more, and the table tells whether it did.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import structlog

from diskless_core.clock import Clock
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.retrying import Backoff
from diskless_postgres.entries import NO_NONCE, checksums_of, missing
from diskless_postgres.sessions import ConnectError, NotExecutedError, OutcomeUnknownError, Pool
from diskless_postgres.tables import Statements
from diskless_postgres.view import Head, ShardView

MAX_STATEMENT_BYTES = 8 << 20
MAX_STATEMENT_ENTRIES = 2000

_AGAIN = Backoff(first_ms=20, max_ms=1000)
_log = structlog.get_logger(__name__)

_LOCK_NOT_AVAILABLE, _UNIQUE_VIOLATION = "55P03", "23505"


@dataclass(eq=False, slots=True)
class _Append:
    batches: Sequence[bytes]
    ends_at: float
    answer: asyncio.Future[Sequence[int]]
    taken: int = 0
    offsets: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    append: _Append
    batches: Sequence[bytes]


class ShardWriter:
    """Appends to one shard, for one broker.

    Args:
        tell: called after each append, so that others hear of it.
    """

    def __init__(
        self,
        view: ShardView,
        pool: Pool,
        statements: Statements,
        clock: Clock,
        *,
        timeout_s: float,
        tell: Callable[[], None],
    ) -> None:
        self._view = view
        self._pool = pool
        self._statements = statements
        self._clock = clock
        self._timeout_s = timeout_s
        self._waiting: deque[_Append] = deque()
        self._head: Head | None = None
        self._is_unsettled = False
        self._writing: asyncio.Task[None] | None = None
        self._tell = tell

    async def append(self, batches: Sequence[bytes]) -> Sequence[int]:
        """As `CoordinatorLog.append`, for batches that are whole and not too large.

        Raises:
            CoordinatorLogError: some of them may be in the log.
        """
        loop = asyncio.get_running_loop()
        append = _Append(batches, loop.time() + self._timeout_s, loop.create_future())
        self._waiting.append(append)
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write_all(), name=f"{self._view.shard} appends")
        try:
            async with asyncio.timeout_at(append.ends_at):
                return await append.answer
        except TimeoutError:
            sent = "may or may not have taken place" if append.taken else "has only waited and was never sent"
            raise CoordinatorLogError(
                f"PostgreSQL did not confirm an append to {self._view.shard} in {self._timeout_s:g} s: it {sent}"
            ) from None

    async def stop(self) -> None:
        """End what is under way; its outcome is unknown."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
        for append in self._waiting:
            _fail(append, CoordinatorLogError(f"the log of {self._view.shard} is stopped"))
        self._waiting.clear()

    async def _write_all(self) -> None:
        while self._waiting:
            parts = self._take_parts()
            if not parts:
                continue
            try:
                async with asyncio.timeout_at(max(part.append.ends_at for part in parts)):
                    offset = await self._write([batch for part in parts for batch in part.batches])
            except TimeoutError:
                self._give_up(parts, CoordinatorLogError("an append was given up: PostgreSQL did not answer"))
            except CoordinatorLogError as error:
                self._give_up(parts, error)
            except asyncio.CancelledError:
                self._give_up(parts, CoordinatorLogError(f"the log of {self._view.shard} is stopped"))
                raise
            else:
                self._answer(parts, offset)
                self._tell()

    def _take_parts(self) -> list[_Part]:
        """What waits and fits into one statement. Batches of one call stay in order, over several if need be."""
        parts, room, places = list[_Part](), MAX_STATEMENT_BYTES, MAX_STATEMENT_ENTRIES
        while self._waiting:
            append = self._waiting[0]
            if append.answer.done():
                self._waiting.popleft()
                continue
            left = append.batches[append.taken : append.taken + places]
            fitting = sum(1 for size in accumulate(map(len, left)) if size <= room)
            if fitting:
                parts.append(_Part(append, left[:fitting]))
                append.taken += fitting
                places -= fitting
                room -= sum(map(len, left[:fitting]))
            if append.taken < len(append.batches):
                break
            self._waiting.popleft()
        return parts

    async def _write(self, batches: Sequence[bytes]) -> int:
        """Write one statement until it is in the log, and return the first offset."""
        failures = 0
        while True:
            self._view.require_sound()
            try:
                if self._is_unsettled:
                    await self._raise_fence()
                head = self._head or await self._ask()
                nonce = self._clock.new_uuid()
                if await self._swap(head, nonce, batches):
                    return head.end
                self._head = None
                continue
            except OutcomeUnknownError as error:
                self._head, self._is_unsettled = None, True
                trouble: CoordinatorLogError = error
            except NotExecutedError as error:
                self._head = None
                if error.sqlstate != _LOCK_NOT_AVAILABLE:
                    raise
                trouble = error
            except ConnectError as error:
                if not error.retriable:
                    raise
                trouble = error
            failures += 1
            _log.warning("an append is tried again", shard=str(self._view.shard), error=str(trouble))
            await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        await asyncio.sleep(_AGAIN.pause_s(failures, self._clock))

    async def _swap(self, head: Head, nonce: uuid.UUID, batches: Sequence[bytes]) -> bool:
        """Append behind this head. False if it is the head no more: then nothing was appended.

        Raises:
            OutcomeUnknownError: and it could not be found out either.
        """
        shard, end = self._view.shard, head.end + len(batches)
        parameters = {
            "shard": str(shard),
            "end": head.end,
            "last": head.last,
            "fence": head.fence,
            "count": len(batches),
            "nonce": nonce,
            "checksums": checksums_of(shard, head.end, nonce, head.last, batches),
            "data": list(batches),
        }
        known = self._view.head
        try:
            self._is_unsettled = True
            async with self._pool.session() as session:
                _, count = await session.do(self._statements.append, parameters)
            self._is_unsettled = False
        except (NotExecutedError, ConnectError) as error:
            self._is_unsettled = False
            if isinstance(error, NotExecutedError) and error.sqlstate == _UNIQUE_VIOLATION:
                raise CoordinatorLogError(
                    f"{shard} has entries behind its end {head.end}: restore its tables"
                ) from error
            raise
        except OutcomeUnknownError:
            if not await self._is_there(head.end, nonce):
                return False
            self._head = None  # its fence has been raised
            self._view.take(known, Head(max(head.start, known.start), end, nonce, head.fence))
            return True
        if count == 0:
            return False
        if count != len(batches):
            raise CoordinatorLogError(f"{count} of {len(batches)} entries were appended to {shard}")
        self._head = Head(head.start, end, nonce, head.fence)
        self._view.take(known, Head(max(head.start, known.start), end, nonce, head.fence))
        return True

    async def _is_there(self, offset: int, nonce: uuid.UUID) -> bool:
        """Whether an append whose outcome is unknown took place. After that it cannot any more."""
        self._head = None
        failures = 0
        while True:
            try:
                await self._raise_fence()
                rows = await self._pool.rows(self._statements.nonce_at, [str(self._view.shard), offset])
                if rows:
                    return bool(rows[0][0] == nonce)
                head = await self._ask()
            except ConnectError as error:
                if not error.retriable:
                    raise
                failures += 1
                await self._pause(failures)
            except (OutcomeUnknownError, NotExecutedError):
                failures += 1
                await self._pause(failures)
            else:
                if head.start > offset:
                    raise CoordinatorLogError(
                        f"the entry {offset} of {self._view.shard} was pruned: nobody knows whether it was this append"
                    )
                if head.end > offset:
                    raise missing(self._view.shard, offset)
                return False

    async def _raise_fence(self) -> None:
        """Wait for what is under way on the server, and see that nothing sent before can take place."""
        async with self._pool.session() as session:
            await session.do(self._statements.fence, [str(self._view.shard)])
        self._is_unsettled = False

    async def _ask(self) -> Head:
        """The head of the shard, which is created if there is none."""
        known = self._view.head
        head = await self._look(known)
        if head.end == 0:
            async with self._pool.session() as session:
                await session.do(self._statements.create_shard, [str(self._view.shard), NO_NONCE])
            head = await self._look(known)
        self._head = head
        return head

    async def _look(self, known: Head) -> Head:
        name, at = str(self._view.shard), known.end - 1
        (row,) = await self._pool.rows(self._statements.heads, [[name], [at]])
        return self._view.take_answer(known, row)

    def _answer(self, parts: Sequence[_Part], offset: int) -> None:
        for part in parts:
            append = part.append
            append.offsets.extend(range(offset, offset + len(part.batches)))
            offset += len(part.batches)
            if len(append.offsets) == len(append.batches) and not append.answer.done():
                append.answer.set_result(append.offsets)

    def _give_up(self, parts: Sequence[_Part], error: CoordinatorLogError) -> None:
        self._head = None
        for part in parts:
            _fail(part.append, CoordinatorLogError(f"an append to {self._view.shard} failed: {error}"))


def _fail(append: _Append, error: CoordinatorLogError) -> None:
    if not append.answer.done():
        append.answer.set_exception(error)
        append.answer.exception()

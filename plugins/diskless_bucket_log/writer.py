"""The appends of one shard: what waits goes into one object, one put is under way, and answers follow confirmations."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from diskless_bucket_log.decisions import (
    Appended,
    BrokenChainError,
    Confirming,
    Examining,
    OutcomeUnknown,
    Overtaken,
    Position,
    Putting,
    ReadingBack,
    WriteAnswer,
    after_confirming,
    after_examining,
    after_put,
    after_read_back,
    position_after,
)
from diskless_bucket_log.objects import MAX_ENTRY_BYTES, EntryObject, encode_entry, read_entry
from diskless_bucket_log.view import ShardView
from diskless_core.clock import Clock
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.retrying import Backoff

APPEND_TIMEOUT_S = 25.0
"""After which an append is given up; the contract allows 30."""

_AGAIN = Backoff(first_ms=50, max_ms=2000)


@dataclass(eq=False, slots=True)
class _Append:
    """One call.

    Attributes:
        taken: how many of its batches were put into objects.
        offsets: base offsets of the batches that are in the log for good.
    """

    batches: Sequence[bytes]
    ends_at: float
    answer: asyncio.Future[Sequence[int]]
    taken: int = 0
    offsets: list[int] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.answer.done()

    def fail(self, error: CoordinatorLogError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def confirm(self, offset: int) -> None:
        self.offsets.append(offset)
        if len(self.offsets) == len(self.batches) and not self.answer.done():
            self.answer.set_result(self.offsets)


@dataclass(frozen=True, slots=True)
class _Part:
    """Batches of one call that go into the same object."""

    append: _Append
    batches: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class _Unconfirmed:
    entry: EntryObject
    parts: Sequence[_Part]


class ShardWriter:
    """Appends to one shard, for one broker."""

    def __init__(self, view: ShardView, clock: Clock, *, linger_s: float) -> None:
        self._view = view
        self._objects = view.objects
        self._clock = clock
        self._linger_s = linger_s
        self._last_put_at = float("-inf")
        self._waiting: deque[_Append] = deque()
        self._next: Position | None = None
        self._unconfirmed: deque[_Unconfirmed] = deque()
        self._putting: asyncio.Task[None] | None = None
        self._confirming: asyncio.Task[None] | None = None

    async def append(self, batches: Sequence[bytes]) -> Sequence[int]:
        """As `CoordinatorLog.append`, for batches that are whole and not too large.

        Raises:
            CoordinatorLogError: some of them may be in the log, or may get there.
        """
        loop = asyncio.get_running_loop()
        append = _Append(batches, loop.time() + APPEND_TIMEOUT_S, loop.create_future())
        self._waiting.append(append)
        if self._putting is None or self._putting.done():
            self._putting = loop.create_task(self._put_all(), name=f"{self._objects.shard} puts")
        try:
            async with asyncio.timeout_at(append.ends_at):
                return await append.answer
        except TimeoutError:
            raise CoordinatorLogError(
                f"the object store did not confirm an append to {self._objects.shard} in {APPEND_TIMEOUT_S:g} s"
            ) from None

    async def stop(self) -> None:
        """End what is under way; its outcome is unknown."""
        tasks = [task for task in (self._putting, self._confirming) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stopped = CoordinatorLogError(f"the log of {self._objects.shard} is stopped")
        self._fail([part for each in self._unconfirmed for part in each.parts], stopped)
        for append in self._waiting:
            append.fail(stopped)
        self._waiting.clear()
        self._unconfirmed.clear()

    # --- putting -------------------------------------------------------------------------------------------------

    async def _put_all(self) -> None:
        while self._waiting:
            await self._linger()
            parts = self._take_parts()
            if not parts:
                continue
            try:
                async with asyncio.timeout_at(max(part.append.ends_at for part in parts)):
                    await self._put(parts)
            except TimeoutError:
                self._given_up(parts, CoordinatorLogError(f"a put to {self._objects.shard} was given up: no answer"))
            except CoordinatorLogError as error:
                self._given_up(parts, error)
            except asyncio.CancelledError:
                self._given_up(parts, CoordinatorLogError(f"the log of {self._objects.shard} is stopped"))
                raise

    async def _linger(self) -> None:
        pause_s = self._last_put_at + self._linger_s - self._clock.monotonic()
        if pause_s > 0:
            await asyncio.sleep(pause_s)

    def _take_parts(self) -> list[_Part]:
        """What waits and fits into one object. Batches of one call stay in order, over several objects if need be."""
        parts, room = list[_Part](), MAX_ENTRY_BYTES
        while self._waiting:
            append = self._waiting[0]
            if append.is_over:
                self._waiting.popleft()
                continue
            left = append.batches[append.taken :]
            fitting = sum(1 for size in accumulate(map(len, left)) if size <= room)
            if fitting:
                parts.append(_Part(append, left[:fitting]))
                append.taken += fitting
                room -= sum(map(len, left[:fitting]))
            if fitting < len(left):
                break
            self._waiting.popleft()
        return parts

    async def _put(self, parts: Sequence[_Part]) -> None:
        """Put one object at the first number that nobody else takes, and have it confirmed."""
        batches = [batch for part in parts for batch in part.batches]
        while True:
            position = await self._position()
            header, data = encode_entry(
                self._objects.shard,
                position.number,
                position.offset,
                self._objects.new_nonce(),
                position.predecessor,
                batches,
            )
            self._last_put_at = self._clock.monotonic()
            outcome = await self._settle(Putting(header), data)
            self._next = None
            match outcome:
                case Confirming():
                    entry = read_entry(self._objects.names, header.number, data)
                    self._unconfirmed.append(_Unconfirmed(entry, parts))
                    self._next = position_after(header)
                    self._confirm_soon()
                    return
                case Overtaken():
                    await self._view.look()
                case OutcomeUnknown():
                    await self._view.look()
                    raise CoordinatorLogError(f"number {header.number} of {self._objects.shard} was pruned meanwhile")

    async def _settle(self, state: Putting, data: bytes) -> Confirming | Overtaken | OutcomeUnknown:
        """Put until it is known whose object is at the number."""
        at: Putting | ReadingBack | Confirming | Examining = state
        attempts = 0
        while True:
            match at:
                case Putting():
                    if attempts:
                        await asyncio.sleep(_AGAIN.pause_s(attempts, self._clock))
                    attempts += 1
                    at = after_put(at, await self._objects.create(at.header.number, data))
                case ReadingBack(header):
                    found = await self._objects.read(header.number)
                    at = after_read_back(at, found.header if found else None)
                case Confirming():
                    return at
                case Examining():
                    start = await self._objects.require_start()
                    try:
                        return after_examining(at, start.number)
                    except BrokenChainError as error:
                        key = self._objects.names.entry(at.header.number)
                        raise CoordinatorLogError(f"the object {key!r} does not belong there: {error}") from error

    async def _position(self) -> Position:
        if self._next is not None:
            return self._next
        tail = self._view.tail or await self._view.look()
        if tail.number == 0 and await self._objects.create_start() is WriteAnswer.NO_ANSWER:
            await self._objects.require_start()
        return tail

    # --- confirming ----------------------------------------------------------------------------------------------

    def _confirm_soon(self) -> None:
        if self._confirming is None or self._confirming.done():
            self._confirming = asyncio.create_task(self._confirm_all(), name=f"{self._objects.shard} confirmations")

    async def _confirm_all(self) -> None:
        """Read the log start after each put: one reading for all that were put before it."""
        while self._unconfirmed:
            some = list(self._unconfirmed)
            try:
                async with asyncio.timeout_at(max(part.append.ends_at for each in some for part in each.parts)):
                    start = await self._objects.require_start()
                self._view.take_start(start)
                for each in some:
                    outcome = after_confirming(Confirming(each.entry.header), start.number)
                    if not isinstance(outcome, Appended):
                        raise CoordinatorLogError(
                            f"number {each.entry.header.number} of {self._objects.shard} was pruned meanwhile: "
                            f"nobody knows whether it was in the log"
                        )
                    self._view.accept(each.entry)
                    self._unconfirmed.popleft()
                    self._answer(each)
            except (CoordinatorLogError, TimeoutError) as error:
                reason = f"an append to {self._objects.shard} was not confirmed: {error or 'no answer in time'}"
                for each in self._unconfirmed:
                    self._fail(each.parts, CoordinatorLogError(reason))
                self._unconfirmed.clear()
                self._next = None

    @staticmethod
    def _answer(confirmed: _Unconfirmed) -> None:
        offsets = iter(batch.offset for batch in confirmed.entry.batches)
        for part in confirmed.parts:
            for _ in part.batches:
                part.append.confirm(next(offsets))

    def _given_up(self, parts: Sequence[_Part], error: CoordinatorLogError) -> None:
        self._next = None
        self._fail(parts, error)

    @staticmethod
    def _fail(parts: Sequence[_Part], error: CoordinatorLogError) -> None:
        for part in parts:
            part.append.fail(error)

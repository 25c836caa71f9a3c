"""What the fakes of backends have in common: they fail, wait and lose answers when a test tells them to."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

OperationT = TypeVar("OperationT", bound=StrEnum)

MakeError = Callable[[], Exception]


class Hold:
    """Calls that have begun and wait."""

    def __init__(self) -> None:
        self.waiting = 0
        self._arrived = asyncio.Event()
        self._released = asyncio.Event()

    async def reached(self, calls: int = 1) -> None:
        """Return as soon as so many calls wait here at once."""
        while self.waiting < calls:
            self._arrived.clear()
            await self._arrived.wait()

    def release(self) -> None:
        """Let them go on, and all later ones through."""
        self._released.set()

    async def wait(self) -> None:
        """Wait as a call does."""
        self.waiting += 1
        self._arrived.set()
        try:
            await self._released.wait()
        finally:
            self.waiting -= 1


@dataclass(frozen=True, slots=True)
class _Failure:
    error: MakeError
    takes_effect: bool


@dataclass(slots=True)
class _Faults:
    next: deque[_Failure] = field(default_factory=deque)
    lasting: list[_Failure] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    delay_s: float = 0.0

    def take(self) -> _Failure | None:
        if self.next:
            return self.next.popleft()
        return self.lasting[-1] if self.lasting else None


class Misbehaving(Generic[OperationT]):
    """A fake whose operations fail, wait and are counted.

    Args:
        operations: what can be made to misbehave.
        error: makes what a failing call raises where a test doesn't say.

    Attributes:
        calls: how often each operation was asked for, failures included.
    """

    def __init__(self, operations: type[OperationT], error: MakeError) -> None:
        self.calls: Counter[OperationT] = Counter()
        self._error = error
        self._faults = {operation: _Faults() for operation in operations}

    def fail_next(
        self, operation: OperationT, times: int = 1, *, error: MakeError | None = None, takes_effect: bool = False
    ) -> None:
        """Fail the next calls; with `takes_effect` only after they did what they should, as when an answer is lost."""
        self._faults[operation].next.extend([_Failure(error or self._error, takes_effect)] * times)

    @contextmanager
    def failing(self, operation: OperationT, *, error: MakeError | None = None) -> Iterator[None]:
        """Fail every call while the context lasts."""
        lasting = self._faults[operation].lasting
        lasting.append(_Failure(error or self._error, takes_effect=False))
        try:
            yield
        finally:
            lasting.pop()

    def delay(self, operation: OperationT, seconds: float) -> None:
        """Make each call take so long from now on."""
        self._faults[operation].delay_s = seconds

    @contextmanager
    def hold(self, operation: OperationT) -> Iterator[Hold]:
        """Make calls wait, before they have any effect, until the hold is released or the context ends."""
        holds = self._faults[operation].holds
        hold = Hold()
        holds.append(hold)
        try:
            yield hold
        finally:
            holds.remove(hold)
            hold.release()

    @asynccontextmanager
    async def _called(self, operation: OperationT) -> AsyncIterator[None]:
        """What comes before and after the effect of a call."""
        self.calls[operation] += 1
        faults = self._faults[operation]
        failure = faults.take()
        for hold in tuple(faults.holds):
            await hold.wait()
        await asyncio.sleep(faults.delay_s)
        if failure is not None and not failure.takes_effect:
            raise failure.error()
        yield
        if failure is not None:
            raise failure.error()

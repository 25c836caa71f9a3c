"""A WAL object store in memory that fails, waits and loses answers when told to. No thread: any event loop will do."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from diskless_core.clock import Clock
from diskless_core.plugin.wal_object_store import (
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    WalObjectStore,
    WalObjectStoreError,
)


class Operation(StrEnum):
    """What of the store can be made to misbehave."""

    PUT = "put"
    GET = "get"
    LIST = "list"
    DELETE = "delete"


MakeError = Callable[[], WalObjectStoreError]


def slow_down() -> WalObjectStoreError:
    """What S3 says when it is asked too much: retriable."""
    return WalObjectStoreError("503 SlowDown: reduce your request rate")


def access_denied() -> WalObjectStoreError:
    """An error that no retry helps."""
    return WalObjectStoreError("403 AccessDenied", retriable=False)


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


class MemoryWalObjectStore(WalObjectStore):
    """Objects in `objects`, which a test may read and change. Several brokers of one process may share an instance.

    Attributes:
        objects: the bytes of each object by key.
        calls: how often each operation was asked for, failures included.
    """

    def __init__(self, clock: Clock, *, page_objects: int = 1000, requests_are_billed: bool = False) -> None:
        self.requests_are_billed = requests_are_billed
        self.objects: dict[str, bytes] = {}
        self.calls: Counter[Operation] = Counter()
        self._clock = clock
        self._page_objects = page_objects
        self._modified_ms: dict[str, int] = {}
        self._faults = {operation: _Faults() for operation in Operation}

    def fail_next(
        self, operation: Operation, times: int = 1, *, error: MakeError = slow_down, takes_effect: bool = False
    ) -> None:
        """Fail the next calls; with `takes_effect` only after they did what they should, as when an answer is lost."""
        self._faults[operation].next.extend([_Failure(error, takes_effect)] * times)

    @contextmanager
    def failing(self, operation: Operation, *, error: MakeError = slow_down) -> Iterator[None]:
        """Fail every call while the context lasts."""
        lasting = self._faults[operation].lasting
        lasting.append(_Failure(error, takes_effect=False))
        try:
            yield
        finally:
            lasting.pop()

    def delay(self, operation: Operation, seconds: float) -> None:
        """Make each call take so long from now on."""
        self._faults[operation].delay_s = seconds

    @contextmanager
    def hold(self, operation: Operation) -> Iterator[Hold]:
        """Make calls wait, before they have any effect, until the hold is released or the context ends."""
        holds = self._faults[operation].holds
        hold = Hold()
        holds.append(hold)
        try:
            yield hold
        finally:
            holds.remove(hold)
            hold.release()

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do: what was stored is there for the next start, and for others meanwhile."""

    async def put(self, key: str, data: ObjectData) -> None:
        kept = bytes(data)
        async with self._called(Operation.PUT):
            if kept != data:
                raise AssertionError(f"the body of {key!r} was changed while it was written")
            self.objects[key] = kept
            self._modified_ms[key] = self._clock.now_ms()

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        async with self._called(Operation.GET):
            try:
                return self.objects[key][start:end]
            except KeyError:
                raise ObjectNotFoundError(key) from None

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        async with self._called(Operation.LIST):
            keys = iter(sorted(key for key in self.objects if key.startswith(prefix)))
        while some := list(islice(keys, self._page_objects)):
            if page := [self._info(key) for key in some if key in self.objects]:
                yield page
            await asyncio.sleep(0)

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        async with self._called(Operation.DELETE):
            for key in keys:
                self.objects.pop(key, None)
                self._modified_ms.pop(key, None)
            return list(keys)

    def _info(self, key: str) -> ObjectInfo:
        modified_ms = self._modified_ms.setdefault(key, self._clock.now_ms())
        return ObjectInfo(key, len(self.objects[key]), modified_ms)

    @asynccontextmanager
    async def _called(self, operation: Operation) -> AsyncIterator[None]:
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

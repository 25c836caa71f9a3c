"""Memory of answers to Fetch, from the choice of their records until the client has read them.

An answer consists of views of cached objects, so an object that has left the cache stays in memory while an answer
that lends from it is unread. Both are bounded: the answers' own bytes, and the objects that unread answers lend from.

A Fetch may take a quarter of what is free, and one batch at least. So a few connections that do not read make the
answers of the others smaller, and take none away. Where that is not enough, the connections that have read nothing for
the longest time are closed, as a Kafka client expects of an idle one: it connects again and asks for the same records.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from diskless_core.metrics import Metrics

SHARE = 4
"""A Fetch takes at most one part in so many of what is free."""

CHECK_S = 1.0
"""How often the connections with unread answers are looked at while memory is short."""

UNREAD_S = 10.0
"""How long a connection may read nothing while unread answers take more than half of the memory."""

WAITED_FOR_S = 2.0
"""How long it may read nothing while other Fetches wait for the memory."""

PROGRESS_BYTES = 64 << 10
"""A connection that reads less than this within the time above has read nothing."""

_log = structlog.get_logger(__name__)


class Reader(Protocol):
    """A connection whose client reads answers."""

    peer: str

    @property
    def unread_bytes(self) -> int:
        """How much of what was answered the client has not read."""
        ...

    def let_go(self) -> None:
        """End the connection at once, with the answers that it has not read."""
        ...


@dataclass(slots=True)
class _Taken:
    """What one connection takes.

    Attributes:
        being_made: bytes of the answer that is not handed over yet.
        unread: bytes of answers that are handed over and not read.
        lent_from: the buffers that the unread answers lend from, by identity: no other gets it while they are here.
        mark_bytes: `unread` when the connection last made progress.
        mark_s: loop time of that moment; None before the first look.
    """

    being_made: int = 0
    unread: int = 0
    lent_from: dict[int, Any] = field(default_factory=dict)
    mark_bytes: int = 0
    mark_s: float | None = None


class AnswerMemory:
    """Answers to Fetch of all connections of a broker. Runs on the event loop.

    Args:
        limit_bytes: of all answers, one batch excepted; and, separately, of the buffers that unread answers lend from:
            above that, an answer is copied before it is handed over.

    Attributes:
        size_bytes: what all answers take.
        lent_bytes: what the buffers take that unread answers lend from; one that several lend from counts once.
    """

    def __init__(self, limit_bytes: int, metrics: Metrics) -> None:
        self._limit_bytes = limit_bytes
        self._metrics = metrics
        self._taken: dict[Reader, _Taken] = {}
        self._lenders: Counter[int] = Counter()
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.size_bytes = 0
        self.lent_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= self._limit_bytes

    def allowed(self, wanted_bytes: int) -> int:
        """How many bytes an answer may have that wants so many: at least 1, which stands for one batch."""
        return max(1, min(wanted_bytes, (self._limit_bytes - self.size_bytes) // SHARE))

    async def wait(self, limit_s: float) -> bool:
        """Wait until there is memory for one more batch, so many seconds at most. Returns whether there is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self.is_full:
                    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting[waiter] = None
                    self._look_later()
                    try:
                        await waiter
                    finally:
                        self._waiting.pop(waiter, None)
        return not self.is_full

    def make(self, who: Reader, size_bytes: int) -> None:
        """The answer that is being made for a connection takes so many bytes from now on."""
        taken = self._taken.get(who)
        if taken is None:
            if not size_bytes:
                return
            taken = self._taken[who] = _Taken()
        self._count(size_bytes - taken.being_made)
        taken.being_made = size_bytes
        self._settle(who, taken)

    def lend(self, pieces: list[Any]) -> list[Any]:
        """The pieces of an answer as they may be handed over: copied, while unread ones lend from too much already."""
        return [b"".join(pieces)] if self.lent_bytes >= self._limit_bytes else pieces

    def unread(self, who: Reader, pieces: Iterable[Any]) -> None:
        """An answer of these pieces was handed over, and the client has not read all that was."""
        taken = self._taken.setdefault(who, _Taken())
        unread = who.unread_bytes
        self._count(unread - taken.unread)
        taken.mark_bytes += unread - taken.unread
        taken.unread = unread
        for piece in pieces:
            buffer = piece.obj if isinstance(piece, memoryview) else piece
            if id(buffer) not in taken.lent_from:
                taken.lent_from[id(buffer)] = buffer
                self._lenders[id(buffer)] += 1
                if self._lenders[id(buffer)] == 1:
                    self._count_lent(memoryview(buffer).nbytes)
        self._settle(who, taken)

    def read(self, who: Reader) -> None:
        """The client has read all that was handed over."""
        taken = self._taken.get(who)
        if taken is not None:
            self._count(-taken.unread)
            for identity, buffer in taken.lent_from.items():
                self._lenders[identity] -= 1
                if not self._lenders[identity]:
                    del self._lenders[identity]
                    self._count_lent(-memoryview(buffer).nbytes)
            taken.unread = 0
            taken.lent_from, taken.mark_bytes, taken.mark_s = {}, 0, None
            self._settle(who, taken)

    def end(self, who: Reader) -> None:
        """The connection is gone."""
        self.make(who, 0)
        self.read(who)

    def _count(self, size_bytes: int) -> None:
        if size_bytes:
            self.size_bytes += size_bytes
            self._metrics.answer_bytes.inc(size_bytes)

    def _count_lent(self, size_bytes: int) -> None:
        self.lent_bytes += size_bytes
        self._metrics.lent_bytes.inc(size_bytes)

    def _settle(self, who: Reader, taken: _Taken) -> None:
        if not taken.being_made and not taken.unread and not taken.lent_from:
            del self._taken[who]
        if self._waiting and not self.is_full:
            self._wake()
        if self._is_short:
            self._look_later()

    @property
    def _is_short(self) -> bool:
        return bool(self._waiting) or self.size_bytes > self._limit_bytes // 2

    def _wake(self) -> None:
        # All at once, in their order: each looks again before it goes on, and one that was cancelled holds up no other.
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._look)

    def _look(self) -> None:
        """Count what was read meanwhile, and close connections that have read nothing for too long."""
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        for who, taken in list(self._taken.items()):
            if not taken.unread:
                continue
            unread = who.unread_bytes
            self._count(unread - taken.unread)
            taken.unread = unread
            if taken.mark_s is None or unread <= taken.mark_bytes - PROGRESS_BYTES:
                taken.mark_bytes, taken.mark_s = unread, now_s
        patience_s = WAITED_FOR_S if self._waiting else UNREAD_S
        stuck = [
            (taken.mark_s, who)
            for who, taken in self._taken.items()
            if taken.mark_s is not None and taken.mark_s <= now_s - patience_s
        ]
        for _, who in sorted(stuck, key=lambda one: one[0]):
            if self.size_bytes <= self._limit_bytes // 2:
                break
            self._let_go(who)
        if self._waiting and not self.is_full:
            self._wake()
        if self._is_short:
            self._look_later()

    def _let_go(self, who: Reader) -> None:
        taken = self._taken[who]
        _log.warning(
            "a connection was closed: its client does not read its answers, and others need the memory",
            client=who.peer,
            unread_bytes=taken.unread,
        )
        self._metrics.answers_given_up.inc()
        who.let_go()
        self.end(who)

"""Memory for requests that are arriving, or wait for room: bounded, and shared out so that some always arrive whole.

Bytes count as they come, not as they were announced: who announces much and sends little takes little. Above the limit
one connection after the other has its turn to go on reading: now the one with the least to come, so that who sends
little is not kept by those who send much, then the one that has waited longest. While one that is whole waits for room
there are no turns: others would only come to wait with it. So what waits for its own client must not be kept here.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from diskless_core.metrics import Metrics

COUNTED_FROM_BYTES = 64 << 10
"""Smaller requests are not worth the trouble: a connection takes as much in the kernel."""

TURN_S = 2.0
"""How long others wait for one connection's request, when there is no room for theirs."""


class Receiving(Protocol):
    """A connection in the middle of a large request."""

    @property
    def is_held_up(self) -> bool:
        """Whether it is the broker that does not read from it, for another reason than this one."""
        ...

    def go_on(self) -> None:
        """Read on, or begin the request that had to wait."""
        ...

    def give_up(self) -> None:
        """End the connection: the request does not come, and others wait for its memory."""
        ...


class ReceiveMemory:
    """All large requests of a broker that have begun to arrive. Whoever got False from here waits for `go_on`.

    Together they take `limit_bytes` at most, and besides the rest of one of them and a read of each of the others.
    """

    def __init__(self, limit_bytes: int, metrics: Metrics) -> None:
        self._limit_bytes = limit_bytes
        self._metrics = metrics
        self._held: dict[Receiving, int] = {}
        self._missing: dict[Receiving, int] = {}
        self._waiting: dict[Receiving, None] = {}
        self._kept: set[Receiving] = set()
        self._turn: Receiving | None = None
        self._is_turn_of_the_shortest = False
        self._timer: asyncio.TimerHandle | None = None
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= self._limit_bytes

    def may_begin(self, who: Receiving, missing_bytes: int) -> bool:
        """Whether a large request, of which so much is to come, may be given memory now."""
        return not self.is_full or self._has_turn(who, missing_bytes)

    def hold(self, who: Receiving, size_bytes: int, missing_bytes: int) -> bool:
        """What has arrived of a request takes so much memory now. Whether to read on."""
        self._count(size_bytes - self._held.get(who, 0))
        self._held[who] = size_bytes
        return not self.is_full or self._has_turn(who, missing_bytes)

    def keep(self, who: Receiving, size_bytes: int) -> None:
        """The request is whole, takes so much memory, and waits for room, which comes by itself. `end` follows."""
        self._kept.add(who)
        self._waiting.pop(who, None)
        self._missing.pop(who, None)
        self._count(size_bytes - self._held.get(who, 0))
        self._held[who] = size_bytes
        if who is self._turn:
            self._end_turn()
        self._advance()

    def end(self, who: Receiving) -> None:
        """The request has begun, or its connection is gone. Nothing happens to one that was not counted."""
        self._kept.discard(who)
        self._waiting.pop(who, None)
        self._missing.pop(who, None)
        self._count(-self._held.pop(who, 0))
        if who is self._turn:
            self._end_turn()
        self._advance()

    def _count(self, size_bytes: int) -> None:
        if size_bytes:
            self.size_bytes += size_bytes
            self._metrics.arriving_bytes.inc(size_bytes)

    def _has_turn(self, who: Receiving, missing_bytes: int) -> bool:
        self._missing[who] = missing_bytes
        if self._turn is None and not self._kept:
            self._begin_turn(who)
        if who is self._turn:
            return True
        self._waiting[who] = None
        return False

    def _advance(self) -> None:
        if not self._waiting:
            return
        if not self.is_full:
            waiting, self._waiting = self._waiting, {}
            for who in sorted(waiting, key=self._missing.__getitem__):
                who.go_on()
        elif self._turn is None and not self._kept:
            self._is_turn_of_the_shortest = not self._is_turn_of_the_shortest
            shortest = min(self._waiting, key=self._missing.__getitem__)
            who = shortest if self._is_turn_of_the_shortest else next(iter(self._waiting))
            del self._waiting[who]
            self._begin_turn(who)
            who.go_on()

    def _begin_turn(self, who: Receiving) -> None:
        self._turn = who
        self._timer = asyncio.get_running_loop().call_later(TURN_S, self._turn_is_over)

    def _end_turn(self) -> None:
        self._turn = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn_is_over(self) -> None:
        who = self._turn
        if who is None:
            return
        self._end_turn()
        if not self.is_full or not self._waiting or self._kept:
            return
        if not who.is_held_up:
            self._metrics.arrivals_given_up.inc()
            who.give_up()
        self._advance()
        if who.is_held_up:
            self._waiting[who] = None

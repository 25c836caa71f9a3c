"""Brokers whose processes have most likely just ended, as this broker sees it before the cluster says so.

A connection to them broke from their side, and there has been none since. The cluster's word, that they are fenced,
comes half a second later or more; a client that asks in between and is told of a broker that is gone waits for its
next look, which may be a second away. Any broker serves any partition, so it is told of another one at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from diskless_core.background import end
from diskless_core.clock import Clock
from diskless_core.coordinator.peers import PeerUnavailableError
from diskless_core.plugin.retrying import Backoff

LOOKS = Backoff(first_ms=50, max_ms=1_000)
"""From one try to connect to the next."""

STAYS_S = 0.2
"""So long a connection has to last: a process that ends takes connections until its last listener is closed."""


class Connection(Protocol):
    """As far as it is looked at here."""

    @property
    def is_closed(self) -> bool:
        """Whether either side has ended it."""
        ...


Connect = Callable[[int], Awaitable[Connection]]
"""Makes a connection to a broker, or raises `PeerUnavailableError`."""


class LostBrokers:
    """See the module.

    Args:
        limit_s: how long one may count as lost, in seconds: a session, after which the controller knows better.
    """

    def __init__(self, limit_s: float, clock: Clock) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._looking: dict[int, asyncio.Task[None]] = {}
        self._is_stopped = False

    def now(self) -> frozenset[int]:
        """Their node ids."""
        return frozenset(self._looking)

    def broke(self, node_id: int, connect: Connect) -> None:
        """The other broker ended a connection."""
        if node_id not in self._looking and not self._is_stopped:
            looking = asyncio.create_task(self._look(node_id, connect), name=f"a look for broker {node_id}")
            self._looking[node_id] = looking

    async def stop(self) -> None:
        """Look for nobody any more."""
        self._is_stopped = True
        await end(list(self._looking.values()))

    async def _look(self, node_id: int, connect: Connect) -> None:
        failures = 0
        try:
            async with asyncio.timeout(self._limit_s):
                while not await self._stays(node_id, connect):
                    failures += 1
                    await asyncio.sleep(LOOKS.pause_s(failures, self._clock))
        except TimeoutError:
            pass
        finally:
            del self._looking[node_id]

    async def _stays(self, node_id: int, connect: Connect) -> bool:
        try:
            connection = await connect(node_id)
        except PeerUnavailableError:
            return False
        await asyncio.sleep(STAYS_S)
        return not connection.is_closed

"""How the clients of a broker that stops come to another one: they are told before their connections are closed.

That begins when the broker is known to stop, while what it leads is still moved, and before it is fenced.

A client whose connection ends has to find out by itself, and to connect anew, before it goes on: a producer's gap of
half a second and more. One that hears NOT_LEADER_OR_FOLLOWER asks for Metadata by the connection that it has, and goes
on at the broker that is named there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from diskless_core.clock import Clock

NEWS_S = 3.0
"""How long a broker waits at most to read that it is to stop: then others have read it too, and name it no more."""

SPREAD_S = 0.05
"""How much later the others may read that."""

QUIET_S = 0.3
"""A client has moved when it has sent nothing for so long: it tries again within a fraction of that."""

LIMIT_S = 3.0
"""How long clients are waited for at most. One that has not moved by then does so when its connection ends."""

_POLL_S = 0.01

_log = structlog.get_logger(__name__)


class Departure:
    """Whether clients are sent away, and whether they have gone.

    Attributes:
        sends_away: whether who wants to write or read is told to go to another broker.
        is_over: whether clients are waited for no more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s = 0.0
        self._sent_away = 0
        self.sends_away = False
        self.is_over = False

    def sent_away(self) -> None:
        """A client wanted to write or read and was sent away."""
        self._last_s = self._clock.monotonic()
        self._sent_away += 1

    async def see_clients_off(
        self, *, is_leaving: Callable[[], bool], has_clients: Callable[[], bool], clients_wait: Callable[[], bool]
    ) -> None:
        """Send clients to other brokers from now on, and return when they have gone, or have had their time.

        A broker that others still name sends nobody away: they would send them back.

        Args:
            is_leaving: whether this broker knows that no client is sent to it any more.
            has_clients: whether any is connected that could go to another broker.
            clients_wait: whether requests of clients are under way.
        """

        def have_gone() -> bool:
            is_quiet = self._clock.monotonic() - self._last_s >= QUIET_S
            return not has_clients() or (is_quiet and not clients_wait())

        if has_clients() and await self._until(lambda: is_leaving() or not has_clients(), NEWS_S):
            await asyncio.sleep(SPREAD_S)
            self.sends_away = True
            self._last_s = self._clock.monotonic()
            moved = await self._until(have_gone, LIMIT_S)
            _log.info("clients were sent to other brokers", requests=self._sent_away, moved=moved)
        self.is_over = True

    async def _until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        give_up_s = self._clock.monotonic() + limit_s
        while not condition():
            if self._clock.monotonic() >= give_up_s:
                return False
            await asyncio.sleep(_POLL_S)
        return True

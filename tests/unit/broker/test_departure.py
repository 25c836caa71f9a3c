"""How long a broker that stops waits for its clients, by a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from diskless_core.broker import departure
from diskless_core.broker.departure import LIMIT_S, NEWS_S, QUIET_S, Departure
from tests.support.virtual_time import VirtualClock, run

TICK_S = 0.05
"""What polling and the wait for the others' copies may add."""


class Clients:
    """Their side of it: connected or not, with requests under way or not."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.departure = Departure(VirtualClock(self.loop))
        self.is_leaving = True
        self.are_connected = True
        self.wait = False

    async def seen_off_s(self) -> float:
        """How long it takes until they are let go."""
        assert not self.departure.is_over
        began_s = self.loop.time()
        await self.departure.see_clients_off(
            is_leaving=lambda: self.is_leaving,
            has_clients=lambda: self.are_connected,
            clients_wait=lambda: self.wait,
        )
        assert self.departure.is_over
        return self.loop.time() - began_s

    def at(self, seconds: float, do: Callable[[], object]) -> None:
        self.loop.call_later(seconds, do)


def lasts(seconds: float, expected_s: float) -> bool:
    return expected_s <= seconds <= expected_s + departure.SPREAD_S + TICK_S


def test_a_broker_without_clients_waits_for_nobody():
    async def main() -> None:
        clients = Clients()
        clients.are_connected = False
        assert await clients.seen_off_s() == 0
        assert not clients.departure.sends_away

    run(main)


def test_idle_clients_are_waited_for_as_long_as_one_takes_to_come_again():
    async def main() -> None:
        clients = Clients()
        assert lasts(await clients.seen_off_s(), QUIET_S)
        assert clients.departure.sends_away

    run(main)


def test_who_is_sent_away_has_that_time_anew():
    async def main() -> None:
        clients = Clients()
        for tenths in range(1, 11):
            clients.at(tenths / 10, clients.departure.sent_away)
        assert lasts(await clients.seen_off_s(), 1.0 + QUIET_S - departure.SPREAD_S)

    run(main)


def test_a_request_under_way_is_waited_for():
    async def main() -> None:
        clients = Clients()
        clients.wait = True
        clients.at(2.0, lambda: setattr(clients, "wait", False))
        assert lasts(await clients.seen_off_s(), 2.0 - departure.SPREAD_S)

    run(main)


def test_when_all_clients_are_gone_nothing_is_waited_for():
    async def main() -> None:
        clients = Clients()
        clients.at(0.2, lambda: setattr(clients, "are_connected", False))
        assert lasts(await clients.seen_off_s(), 0.2 - departure.SPREAD_S)

    run(main)


def test_a_client_that_does_not_go_is_not_waited_for_for_ever():
    async def main() -> None:
        clients = Clients()
        clients.wait = True
        assert lasts(await clients.seen_off_s(), LIMIT_S)

    run(main)


def test_nobody_is_sent_away_before_the_broker_knows_that_it_is_to_stop():
    async def main() -> None:
        clients = Clients()
        clients.is_leaving = False
        seen: list[bool] = []
        clients.at(0.2, lambda: seen.append(clients.departure.sends_away))
        clients.at(0.3, lambda: setattr(clients, "is_leaving", True))
        assert lasts(await clients.seen_off_s(), 0.3 + QUIET_S)
        assert seen == [False]

    run(main)


def test_a_broker_that_others_still_name_sends_nobody_away_for_they_would_send_them_back():
    async def main() -> None:
        clients = Clients()
        clients.is_leaving = False
        assert lasts(await clients.seen_off_s(), NEWS_S)
        assert not clients.departure.sends_away

    run(main)

"""Memory for requests that are still arriving: bounded, and never so shared out that none of them arrives."""

from __future__ import annotations

import asyncio
import random

import pytest

from diskless_core.broker.receive_memory import TURN_S, ReceiveMemory
from diskless_core.metrics import Metrics
from tests.support.virtual_time import run

LIMIT = 1000
PIECE = 100


class Sender:
    """A connection whose request of `size` bytes comes in pieces, as far as it may and for as long as it wants."""

    def __init__(self, arrivals: ReceiveMemory, size: int, *, sends: int | None = None) -> None:
        self.arrivals = arrivals
        self.size = size
        self.sends = size if sends is None else sends
        self.arrived = 0
        self.is_reading = False
        self.is_held_up = False
        self.is_closed = False

    @property
    def is_whole(self) -> bool:
        return self.arrived == self.size

    def begin(self) -> None:
        self.is_reading = self.arrivals.may_begin(self, self.size)

    def step(self) -> None:
        """Let one piece come."""
        if not self.is_reading or self.is_held_up or self.arrived >= self.sends:
            return
        self.arrived = min(self.arrived + PIECE, self.sends)
        if self.is_whole:
            self.is_reading = False
            self.arrivals.end(self)
        else:
            self.is_reading = self.arrivals.hold(self, self.arrived, self.size - self.arrived)

    def go_on(self) -> None:
        self.is_reading = self.arrived > 0 or self.arrivals.may_begin(self, self.size)

    def give_up(self) -> None:
        self.is_closed, self.is_reading = True, False
        asyncio.get_running_loop().call_soon(self.arrivals.end, self)


def is_settled(senders: list[Sender]) -> bool:
    return all(sender.is_whole or sender.is_closed for sender in senders)


async def drive(senders: list[Sender], seed: int = 0) -> int:
    """Let all go on in random order until each is whole or closed; the most memory that was taken."""
    shuffle = random.Random(seed).shuffle  # the order of this test alone
    most = 0
    for sender in senders:
        sender.begin()
    for _ in range(10_000):
        if is_settled(senders):
            return most
        order = list(senders)
        shuffle(order)
        for sender in order:
            sender.step()
            most = max(most, sender.arrivals.size_bytes)
        await asyncio.sleep(0.01)
    raise AssertionError("the requests do not come to an end")


@pytest.mark.parametrize("seed", range(5))
def test_all_requests_arrive_though_together_they_take_many_times_the_limit(seed: int) -> None:
    async def main() -> None:
        arrivals = ReceiveMemory(LIMIT, Metrics())
        senders = [Sender(arrivals, 1600 + 100 * (number % 5)) for number in range(20)]
        most = await drive(senders, seed)
        assert all(sender.is_whole for sender in senders)
        assert LIMIT <= most <= LIMIT + 2000 + 20 * PIECE
        assert arrivals.size_bytes == 0

    run(main)


def test_without_a_shortage_nobody_waits_and_nobody_is_closed_however_slow() -> None:
    async def main() -> None:
        arrivals = ReceiveMemory(LIMIT, Metrics())
        slow = [Sender(arrivals, 500, sends=400) for _ in range(2)]
        for sender in slow:
            sender.begin()
            for _ in range(4):
                sender.step()
        await asyncio.sleep(100 * TURN_S)
        assert [(sender.is_reading, sender.is_closed) for sender in slow] == [(True, False)] * 2

    run(main)


def test_those_that_stall_are_closed_one_by_one_as_long_as_others_wait_for_their_memory() -> None:
    async def main() -> None:
        arrivals = ReceiveMemory(LIMIT, Metrics())
        stalled = [Sender(arrivals, 2000, sends=400) for _ in range(10)]
        sound = [Sender(arrivals, 500) for _ in range(10)]
        await drive_until_sound(stalled, sound)
        assert all(sender.is_whole for sender in sound)
        assert any(sender.is_closed for sender in stalled)
        assert sum(not sender.is_closed for sender in stalled) >= 2, "more were closed than others needed"

    async def drive_until_sound(stalled: list[Sender], sound: list[Sender]) -> None:
        for sender in [*stalled, *sound]:
            sender.begin()
            for _ in range(10):
                sender.step()
        begun = asyncio.get_running_loop().time()
        while not is_settled(sound):
            assert asyncio.get_running_loop().time() - begun < 10 * TURN_S, "they wait for too long"
            for sender in [*stalled, *sound]:
                sender.step()
            await asyncio.sleep(0.01)

    run(main)


def test_one_that_only_the_broker_keeps_from_sending_loses_its_turn_but_not_its_connection() -> None:
    async def main() -> None:
        arrivals = ReceiveMemory(LIMIT, Metrics())
        muted, other = Sender(arrivals, 2000), Sender(arrivals, 2000)
        for sender in (muted, other):
            sender.begin()
            for _ in range(15):
                sender.step()
        assert muted.is_reading
        assert not other.is_reading
        muted.is_held_up = True
        await asyncio.sleep(TURN_S * 1.5)
        assert other.is_reading
        while not other.is_whole:
            other.step()
        muted.is_held_up = False
        await asyncio.sleep(TURN_S)
        while not muted.is_whole:
            assert muted.is_reading
            muted.step()
        assert not muted.is_closed

    run(main)


def test_a_connection_that_ends_gives_its_memory_and_its_turn_to_the_next() -> None:
    async def main() -> None:
        arrivals = ReceiveMemory(LIMIT, Metrics())
        first, second = Sender(arrivals, 2000), Sender(arrivals, 2000)
        for sender in (first, second):
            sender.begin()
            for _ in range(12):
                sender.step()
        assert not second.is_reading
        arrivals.end(first)
        assert second.is_reading
        arrivals.end(second)
        arrivals.end(second)
        assert arrivals.size_bytes == 0

    run(main)

"""What the memory for answers leaves of a Fetch: fewer records, or later ones, and at least a batch."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from diskless_core.fetch import fetcher
from diskless_core.protocol.errors import ErrorCode
from tests.support.produce_path import ProducePath, batch_of, records_of
from tests.support.virtual_time import run

BATCHES = 5


class Room:
    """Memory of which a test says how much there is."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes
        self.taken_bytes = 0
        self.is_free = asyncio.Event()
        self.is_free.set()

    async def wait(self, limit_s: float) -> bool:
        assert self.taken_bytes == 0, "one that waits holds memory for which others wait"
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.is_free.wait()
        return self.is_free.is_set()

    def allowed(self, wanted_bytes: int) -> int:
        return max(1, min(wanted_bytes, self.free_bytes))

    def take(self, size_bytes: int) -> None:
        self.taken_bytes = size_bytes


async def fill(path: ProducePath) -> None:
    for number in range(BATCHES):
        await path.produce((0, batch_of(b"%d" % number)))


def test_a_fetch_gets_as_many_batches_as_there_is_memory_for_and_one_at_least() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            size = len(batch_of(b"0"))
            for free_bytes, expected in ((0, 1), (2 * size, 2), (1 << 20, BATCHES)):
                room = Room(free_bytes)
                [answer] = await path.fetch((0, 0), room=room)
                assert len(records_of(answer)) == expected
                assert room.taken_bytes == answer.size_bytes == expected * size

    run(main)


def test_a_fetch_that_finds_no_memory_is_answered_when_there_is_some() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            room = Room(0)
            room.is_free.clear()
            fetching = asyncio.create_task(path.fetch((0, 0), room=room, max_wait_ms=60_000))
            await asyncio.sleep(59)
            assert not fetching.done()
            room.is_free.set()
            [answer] = await fetching
            assert records_of(answer) == [(0, b"0")]

    run(main)


def test_a_fetch_that_finds_no_memory_within_its_time_is_answered_without_records() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            room = Room(0)
            room.is_free.clear()
            before_s = path.clock.monotonic()
            [answer] = await path.fetch((0, 0), room=room, max_wait_ms=5_000)
            assert path.clock.monotonic() - before_s == pytest.approx(5)
            assert (answer.error, answer.high_watermark, records_of(answer)) == (ErrorCode.NONE, BATCHES, [])

    run(main)


def test_a_waiting_fetch_of_many_partitions_holds_no_memory_for_what_came_meanwhile(monkeypatch) -> None:
    monkeypatch.setattr(fetcher, "ALL_AT_ONCE", 1)

    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            room = Room(1 << 20)
            wanted = [(partition, 0) for partition in range(3)]
            fetching = asyncio.create_task(path.fetch(*wanted, room=room, min_bytes=1 << 19, max_wait_ms=5_000))
            for number in range(3):
                await asyncio.sleep(0.5)
                await path.produce((1, batch_of(b"%d" % number)))
                await asyncio.sleep(0.1)
                assert room.taken_bytes == 0
            answers = await fetching
            assert [len(records_of(answer)) for answer in answers] == [BATCHES, 3, 0]

    run(main)


def test_a_fetch_that_waits_for_more_bytes_holds_none_meanwhile_and_gets_all_in_the_end() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            room = Room(1 << 20)
            fetching = asyncio.create_task(path.fetch((0, 0), room=room, min_bytes=1 << 19, max_wait_ms=5_000))
            await asyncio.sleep(1)
            assert not fetching.done()
            assert room.taken_bytes == 0
            [answer] = await fetching
            assert len(records_of(answer)) == BATCHES
            assert room.taken_bytes == answer.size_bytes

    run(main)


def test_a_fetch_does_not_wait_for_more_bytes_than_it_may_have() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            before_s = path.clock.monotonic()
            [answer] = await path.fetch((0, 0), room=Room(1), min_bytes=1 << 19, max_wait_ms=60_000)
            assert records_of(answer) == [(0, b"0")]
            assert path.clock.monotonic() - before_s < 1

    run(main)

"""A consumer far behind does not wait for the object store at each step."""

from __future__ import annotations

import asyncio

from diskless_core.fetch.query import FetchedPartition, FetchPartition, FetchQuery
from diskless_core.testing.fakes.objects import Operation
from tests.support.produce_path import ProducePath, batch_of, key_of, records_of
from tests.support.virtual_time import run

OBJECTS = 3


class LateConsumer:
    """Reads partition 0 batch by batch through a cache in which nothing is yet."""

    def __init__(self, path: ProducePath, ahead_bytes: int = 1 << 20) -> None:
        fetch = path.new_fetch(1 << 20, ahead_bytes)
        self.fetcher, self.ahead = fetch.fetcher, fetch._read_ahead

    async def fetch(self, offset: int) -> FetchedPartition:
        wanted = FetchPartition(key=key_of(0), offset=offset, max_bytes=1)
        query = FetchQuery(partitions=[wanted], max_bytes=1 << 20, min_bytes=1, max_wait_ms=0)
        [answer] = await self.fetcher.fetch(query, [])
        return answer


async def fill(path: ProducePath) -> None:
    for number in range(OBJECTS):
        await path.produce((0, batch_of(b"%d" % number)))


def test_the_next_object_is_read_while_the_consumer_has_this_one() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            consumer = LateConsumer(path)
            for offset in range(OBJECTS):
                assert records_of(await consumer.fetch(offset)) == [(offset, b"%d" % offset)]
                await asyncio.sleep(1)
                assert path.objects.calls[Operation.GET] == min(offset + 2, OBJECTS)

    run(main)


def test_a_fetch_that_comes_early_joins_the_read_that_is_under_way() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            consumer = LateConsumer(path)
            await consumer.fetch(0)
            with path.objects.hold(Operation.GET) as hold:
                await hold.reached()
                early = asyncio.create_task(consumer.fetch(1))
                await asyncio.sleep(1)
                hold.release()
                assert records_of(await early) == [(1, b"1")]
            await asyncio.sleep(1)
            assert path.objects.calls[Operation.GET] == OBJECTS

    run(main)


def test_nothing_is_read_ahead_at_the_tail_where_all_is_in_memory() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            await path.fetch((0, 0), max_bytes=1)
            await asyncio.sleep(1)
            assert path.objects.calls[Operation.GET] == 0

    run(main)


def test_what_would_take_too_much_memory_is_not_read_ahead() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            await LateConsumer(path, ahead_bytes=10).fetch(0)
            await asyncio.sleep(1)
            assert path.objects.calls[Operation.GET] == 1

    run(main)


def test_a_failure_ahead_is_told_only_to_the_one_who_gets_there() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            consumer = LateConsumer(path)
            kept = dict(path.objects.objects)
            for key in list(kept)[1:]:
                del path.objects.objects[key]
            assert records_of(await consumer.fetch(0)) == [(0, b"0")]
            await asyncio.sleep(1)
            path.objects.objects.update(kept)
            assert records_of(await consumer.fetch(1)) == [(1, b"1")]

    run(main)


def test_what_is_under_way_ends_with_the_broker() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path)
            consumer = LateConsumer(path)
            await consumer.fetch(0)
            with path.objects.hold(Operation.GET) as hold:
                await hold.reached()
                await consumer.ahead.stop()
                assert not consumer.ahead._under_way
                hold.release()

    run(main)

"""What is read of a log before a shard starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from diskless_core.clock_watch import ClockWatch
from diskless_core.coordinator.entries import encode_probe
from diskless_core.coordinator.log_end import LogEnd
from diskless_core.coordinator.which_log import look, read_entries
from diskless_core.plugin.coordinator_log import CoordinatorLog, LogBatch, LogBounds, LogOffsetPrunedError
from diskless_core.plugin.shard import ShardId
from tests.support.virtual_time import VirtualClock


class SlowLog:
    """Answers the first read when it is told to, and further ones never."""

    def __init__(self) -> None:
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_asked = asyncio.Event()

    async def read(self, shard: ShardId, offset: int) -> AsyncIterator[list[LogBatch]]:
        self.is_asked.set()
        await self.first
        yield [LogBatch(offset=0, next_offset=1, data=encode_probe(0))]
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("turns", range(6))
async def test_a_start_that_is_cancelled_when_the_log_answers_ends(turns: int) -> None:
    """`asyncio.wait_for` would forget the cancellation: a shard would start although nobody waits for it."""
    log = SlowLog()

    async def read() -> list[Any]:
        return [entry async for _, entry in read_entries(cast("CoordinatorLog", log), ShardId("__s", 0), 0, 2)]

    reading = asyncio.create_task(read())
    await log.is_asked.wait()
    log.first.set_result(None)
    for _ in range(turns):
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await reading


class PrunedLog:
    """Its leader prunes it whenever somebody is about to read from one of the first `times` offsets."""

    is_shared = True

    def __init__(self, times: int) -> None:
        self.times = times
        self.start = 0

    async def bounds(self, shard: ShardId) -> LogBounds:
        del shard
        return LogBounds(self.start, 100)

    async def append(self, shard: ShardId, batches: list[bytes]) -> list[int]:
        del shard, batches
        return [self.start]

    async def read(self, shard: ShardId, offset: int) -> AsyncIterator[list[LogBatch]]:
        if offset < self.times:
            self.start = offset + 1
            raise LogOffsetPrunedError(f"{shard} was pruned up to {self.start} meanwhile")
        yield [LogBatch(offset=offset, next_offset=100, data=encode_probe(0))]


@pytest.mark.parametrize("times", [0, 1, 3])
async def test_a_log_that_is_pruned_while_a_shard_starts_is_looked_at_again(times: int) -> None:
    bounds, name = await look(cast("CoordinatorLog", PrunedLog(times)), ShardId("__s", 0))
    assert (bounds, name) == (LogBounds(times, 100), None)


async def test_a_mark_at_the_end_of_a_log_that_is_pruned_before_it_is_read_back_was_there() -> None:
    log = cast("CoordinatorLog", PrunedLog(times=1))
    clock = VirtualClock(asyncio.get_running_loop())
    assert await LogEnd(ShardId("__s", 0), log, clock, ClockWatch(clock)).certain_end() == 0

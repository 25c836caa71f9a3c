"""What is read of a log before a shard starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from diskless_core.coordinator.entries import encode_probe
from diskless_core.coordinator.which_log import read_entries
from diskless_core.plugin.coordinator_log import CoordinatorLog, LogBatch
from diskless_core.plugin.shard import ShardId


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

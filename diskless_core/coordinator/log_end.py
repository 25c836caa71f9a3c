"""Where a shard's log ends for certain, though the log itself may not know yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from diskless_core.clock import Clock
from diskless_core.coordinator import entries
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError
from diskless_core.plugin.shard import ShardId

LIMIT_S = 60.0
"""For an append and a read of one entry."""


async def marked_end(shard: ShardId, log: CoordinatorLog, clock: Clock) -> int:
    """The same as `certain_end`, for a caller that reads the log up to there by itself.

    Raises:
        CoordinatorLogError: it cannot be said now.
    """
    if not log.is_shared:
        return (await log.bounds(shard)).end
    [offset] = await log.append(shard, [entries.encode_probe(clock.now_ms())])
    return offset


async def certain_end(shard: ShardId, log: CoordinatorLog, clock: Clock) -> int:
    """An offset below which everything is that was committed before the call, and that the log has reached.

    The end of a shared log may lag behind. So an entry that every replica ignores is appended and read back: whatever
    was committed before stands before it. A node that does not lead may do so.

    Raises:
        CoordinatorLogError: it cannot be said now.
    """
    if not log.is_shared:
        return (await log.bounds(shard)).end
    try:
        async with asyncio.timeout(LIMIT_S):
            offset = await marked_end(shard, log, clock)
            stream = log.read(shard, offset)
            try:
                await anext(stream)
            finally:
                if isinstance(stream, AsyncGenerator):
                    await stream.aclose()
    except (TimeoutError, StopAsyncIteration):
        raise CoordinatorLogError(f"an entry that shows where the log of {shard} ends was not read back") from None
    return offset

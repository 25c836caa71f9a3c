"""Whether a shard's log still has what was read of it, and where it ends for certain.

An offset proves neither: a log that was cut goes on at the offsets that it lost. What proves it are digests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from diskless_core.clock import Clock
from diskless_core.clock_watch import ClockWatch
from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Acceptance
from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    LogBatch,
    LogBounds,
    LogOffsetPrunedError,
)
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.record_batch import max_timestamp_of

LIMIT_S = 60.0
"""For an append and a read of one entry."""

SILENCE_S = 30.0
"""How long a log may keep a reader waiting for what it has."""


class LogEnd:
    """Asks the log of one shard.

    Args:
        log: of the cluster.
        may_write: whether it is open for more than reading.
    """

    def __init__(
        self, shard: ShardId, log: CoordinatorLog, clock: Clock, clock_watch: ClockWatch, *, may_write: bool = True
    ) -> None:
        self._shard = shard
        self._log = log
        self._clock = clock
        self._clock_watch = clock_watch
        self._may_write = may_write

    async def marked_end(self) -> int:
        """The same as `certain_end`, for a caller that reads the log up to there by itself.

        Raises:
            CoordinatorLogError: it cannot be said now.
        """
        if not self._log.is_shared:
            return (await self._log.bounds(self._shard)).end
        [offset] = await self._log.append(self._shard, [entries.encode_probe(self._clock.now_ms())])
        return offset

    async def certain_end(self) -> int:
        """An offset below which everything is that was committed before the call, and that the log has reached.

        The end of a shared log may lag behind. So an entry that every replica ignores is appended and read back:
        whatever was committed before stands before it. A node that does not lead may do so. The end of a log that was
        opened for reading does not lag.

        Raises:
            CoordinatorLogError: it cannot be said now.
        """
        if not self._log.is_shared or not self._may_write:
            return (await self._log.bounds(self._shard)).end
        try:
            async with asyncio.timeout(LIMIT_S):
                offset = await self.marked_end()
                async with closing(self._log.read(self._shard, offset)) as stream:
                    await anext(stream)
        except LogOffsetPrunedError:
            pass  # so it was there, and whoever pruned it has what was before
        except (TimeoutError, StopAsyncIteration):
            raise CoordinatorLogError(
                f"an entry that shows where the log of {self._shard} ends was not read back"
            ) from None
        return offset

    async def has_what_was_read(self, bounds: LogBounds, known: int, acceptance: Acceptance) -> bool:
        """Whether the log has, below the offset `known`, what led to `acceptance`. It is committed up to there.

        That is so if the latest of it is there, and nothing that follows counts. What was pruned is not looked at.

        Raises:
            CoordinatorLogError: the log cannot be read now.
        """
        last = acceptance.last_offset
        start = max(last, bounds.start)
        is_missing = last >= bounds.start
        if last < 0 or start >= known:
            return True
        try:
            async with aclosing(read_between(self._log, self._shard, start, known)) as batches:
                async for batch in batches:
                    if is_missing:
                        if batch.offset != last or entries.chained(acceptance.before, batch) != acceptance.digest:
                            return False
                        self._clock_watch.saw(max_timestamp_of(batch.data))
                        is_missing = False
                    elif acceptance.after(entries.decode_or_ignore(batch.data), batch) != acceptance:
                        return False
        except LogOffsetPrunedError:
            return True  # whoever pruned it has it in a snapshot
        return not is_missing


async def read_between(log: CoordinatorLog, shard: ShardId, start: int, end: int) -> AsyncGenerator[LogBatch, None]:
    """What a log has from `start` to before `end`, up to where it has been committed.

    Raises:
        LogOffsetPrunedError: `start` is below the log's start.
        CoordinatorLogError: the log cannot be read, or is silent for `SILENCE_S`.
    """
    if start >= end:
        return
    async with closing(log.read(shard, start)) as stream:
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    batches = await anext(stream)
            except (TimeoutError, StopAsyncIteration):
                raise CoordinatorLogError(
                    f"the log of {shard} does not give what it has between the offsets {start} and {end}"
                ) from None
            for batch in batches:
                if batch.offset >= end:
                    return
                yield batch
            if batches[-1].next_offset >= end:
                return


@asynccontextmanager
async def closing(stream: AsyncIterator[Sequence[LogBatch]]) -> AsyncIterator[AsyncIterator[Sequence[LogBatch]]]:
    """A stream of the log, which lets go of what it has when it is left before its end."""
    try:
        yield stream
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()

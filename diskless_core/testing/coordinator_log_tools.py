"""What the contract suite of `coordinator_log`, and tests beside it, make and read logs with."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

from diskless_core.plugin.coordinator_log import CoordinatorLog, LeadershipHint, LogBatch
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.record_batch import RecordData, build
from diskless_core.shards import DISKLESS
from diskless_core.testing.patience import within

LogT = TypeVar("LogT", bound=CoordinatorLog)


class MakeLog(Protocol):
    """Makes instances, not started, that open one and the same log. A log that is not shared ignores `node_id`."""

    def __call__(self, node_id: int = 1) -> CoordinatorLog: ...


HangBackend = Callable[[], AbstractAsyncContextManager[None]]
"""While it lasts, the backend takes what it is sent, or does not, and answers nothing."""

SHARD = DISKLESS.shard(0)
OTHER_SHARD = DISKLESS.shard(1)

TIMEOUT_S = 300.0
"""How long a test waits for what has to happen."""

_BASE_OFFSET_BYTES = 8
_LEADER_EPOCH = slice(12, 16)


def batch_of(*values: bytes) -> bytes:
    """A batch with one record for each value."""
    return build([RecordData(None, value) for value in values], timestamp_ms=0)


def batch_of_size(size_bytes: int) -> bytes:
    """A batch of exactly that size, at least 200 bytes, which compresses badly."""
    noise = hashlib.shake_256().digest(size_bytes)
    for padding in range(8):  # some sizes take two records: a length may take more bytes
        taken = size_bytes
        for _ in range(4):
            batch = batch_of(noise[:taken], bytes(padding))
            if len(batch) == size_bytes:
                return batch
            taken += size_bytes - len(batch)
    raise ValueError(f"there is no batch of {size_bytes} bytes")


def numbered_batches(count: int, *, size_bytes: int = 1024) -> list[bytes]:
    """Batches of one record, all different, each a little above `size_bytes`."""
    return [batch_of(b"%08d" % number + bytes(size_bytes)) for number in range(count)]


def settled_bytes(batch: bytes) -> bytes:
    """What of a batch a log has to keep: all but base offset and partition leader epoch, which it assigns."""
    return batch[_BASE_OFFSET_BYTES : _LEADER_EPOCH.start] + batch[_LEADER_EPOCH.stop :]


def same_content(read: Sequence[LogBatch], appended: Sequence[bytes]) -> bool:
    """Whether the entries are those batches, in that order."""
    return [settled_bytes(entry.data) for entry in read] == [settled_bytes(batch) for batch in appended]


@asynccontextmanager
async def reading(log: CoordinatorLog, shard: ShardId, offset: int) -> AsyncIterator[AsyncIterator[Sequence[LogBatch]]]:
    """A reader that is closed at the end, where it can be."""
    reader = log.read(shard, offset)
    try:
        yield reader
    finally:
        if isinstance(reader, AsyncGenerator):
            await reader.aclose()


async def read_batches(log: CoordinatorLog, shard: ShardId, offset: int, count: int) -> list[LogBatch]:
    """Read `count` entries, or a few more where they come together, with a reader of its own."""
    found: list[LogBatch] = []
    async with within("a reader gets what is committed"), reading(log, shard, offset) as reader:
        while len(found) < count:
            found.extend(await anext(reader))
    return found


async def read_all(log: CoordinatorLog, shard: ShardId) -> list[LogBatch]:
    """Every committed entry, from the start of the log to its high watermark."""
    bounds = await log.bounds(shard)
    found: list[LogBatch] = []
    promise = "a reader gets to the end that bounds names"
    async with within(promise), reading(log, shard, bounds.start) as reader:
        while bounds.end > (found[-1].next_offset if found else bounds.start):
            found.extend(await anext(reader))
    return found


@asynccontextmanager
async def started(log: LogT) -> AsyncIterator[LogT]:
    """Start a log, and stop it at the end."""
    async with within("a start ends"):
        await log.start()
    try:
        yield log
    finally:
        async with within("a stop ends"):
            await log.stop()


async def next_batches(reader: AsyncIterator[Sequence[LogBatch]]) -> Sequence[LogBatch]:
    """What the reader yields next; fails when that takes too long."""
    async with within("a reader wakes when there is more"):
        return await anext(reader)


class HintStream:
    """Listens to who should lead a shard, and remembers the newest hint.

    Attributes:
        newest: the hint with the highest generation that was heard; None before the first one.
    """

    def __init__(self, log: CoordinatorLog, shard: ShardId, *, candidate: bool = True) -> None:
        self.newest: LeadershipHint | None = None
        self._log = log
        self._shard = shard
        self._candidate = candidate
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> HintStream:
        self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def ask_again(self, *, candidate: bool) -> None:
        """Withdraw the node's candidacy, or stand again."""
        await self._close()
        self._candidate = candidate
        self._listen()

    def _listen(self) -> None:
        self._listening = asyncio.create_task(self._follow())

    async def _close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
            if not self._listening.cancelled():
                self._listening.result()

    async def _follow(self) -> None:
        hints = self._log.leadership(self._shard, candidate=self._candidate)
        try:
            async for hint in hints:
                if self.newest is None or hint.generation >= self.newest.generation:
                    self.newest = hint
        finally:
            if isinstance(hints, AsyncGenerator):
                await hints.aclose()

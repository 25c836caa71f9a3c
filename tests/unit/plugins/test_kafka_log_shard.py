"""One shard of `coordinator_log=kafka` without a Kafka: what its reader delivers while the shard is opened anew."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBatch, LogBounds
from diskless_core.plugin.shard import ShardId
from diskless_kafka.log_backend import LogBackend
from diskless_kafka.log_config import KafkaLogSettings
from diskless_kafka.log_reader import Place, ReadMessage
from diskless_kafka.log_shard import LogShard

SHARD = ShardId("__diskless_metadata", 0)
SETTINGS = KafkaLogSettings.model_validate(
    {"bootstrap.servers": "kafka:9092", "allow.unsafe": True, "topic.replication.factor": 1}
)


class Reader:
    """Delivers on the event loop, as the thread of the real one has it do. A test says when a partition is followed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Queue[tuple[Future[None], Callable[[], None]]]()
        self._asking: tuple[Future[None], Callable[[], None]]
        self.shard: LogShard

    def follow(self, place: Place, offset: int, begin: Callable[[], None]) -> Future[None]:
        followed: Future[None] = Future()
        self._asked.put_nowait((followed, begin))
        return followed

    async def until_asked(self) -> None:
        self._asking = await self._asked.get()

    def follows(self) -> None:
        followed, begin = self._asking
        self._loop.call_soon_threadsafe(begin)
        followed.set_result(None)

    def deliver(self, *offsets: int) -> None:
        read = [ReadMessage(offset, offset + 1, None, b"%d" % offset) for offset in offsets]
        self._loop.call_soon_threadsafe(self.shard.deliver, read)


class Topics:
    """A topic that is always there. A test moves its end."""

    def __init__(self) -> None:
        self.end = 0

    def ensure(self, shard: ShardId) -> None:
        pass

    verify = ensure

    def is_there(self, shard: ShardId) -> bool:
        return shard == SHARD

    def bounds(self, shard: ShardId) -> LogBounds:
        return LogBounds(0, self.end)


async def next_offsets(stream: AsyncIterator[Sequence[LogBatch]]) -> list[int]:
    return [entry.offset for entry in await anext(stream)]


async def called(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


async def test_a_shard_that_is_opened_anew_misses_nothing_that_the_reader_delivers_meanwhile() -> None:
    reader, topics = Reader(), Topics()
    backend = SimpleNamespace(
        settings=SETTINGS,
        stopped=asyncio.Event(),
        writes=True,
        topics=topics,
        reader=reader,
        run=called,
        open_producer=None,
        close_producer=None,
    )
    shard = reader.shard = LogShard(SHARD, cast("LogBackend", backend), uuid.UUID(int=1))
    first = asyncio.create_task(next_offsets(shard.stream(0)))
    await reader.until_asked()
    reader.follows()
    reader.deliver(0)
    assert await first == [0]

    shard.fail(CoordinatorLogError("the reader was refused for a moment"))
    topics.end = 1
    following = asyncio.create_task(next_offsets(shard.stream(1)))
    await reader.until_asked()
    reader.deliver(2)  # from where it was, and offset 1 was delivered before the shard was opened again
    await asyncio.sleep(0)
    reader.follows()
    reader.deliver(1, 2)
    assert await following == [1, 2]

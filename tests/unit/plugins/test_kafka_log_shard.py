"""One shard of `coordinator_log=kafka` without a Kafka: what its reader delivers while the shard is opened anew."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBatch, LogBounds
from diskless_core.plugin.shard import ShardId
from diskless_kafka import log_shard
from diskless_kafka.log_backend import LogBackend
from diskless_kafka.log_config import KafkaLogSettings
from diskless_kafka.log_reader import LogReader, Place, ReadMessage
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
        self.unfollowed: list[Place] = []

    def follow(self, place: Place, offset: int, begin: Callable[[], None]) -> Future[None]:
        followed: Future[None] = Future()
        self._asked.put_nowait((followed, begin))
        return followed

    def unfollow(self, place: Place) -> None:
        self.unfollowed.append(place)

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


def shard_of(reader: Reader, topics: Topics) -> LogShard:
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
    return shard


async def test_a_shard_that_is_opened_anew_misses_nothing_that_the_reader_delivers_meanwhile() -> None:
    reader, topics = Reader(), Topics()
    shard = shard_of(reader, topics)
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


async def test_a_shard_that_is_read_no_more_is_consumed_no_more_and_a_new_reader_misses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_shard, "RELEASE_S", 0.01)
    reader, topics = Reader(), Topics()
    shard = shard_of(reader, topics)
    streams = [cast("AsyncGenerator[Sequence[LogBatch]]", shard.stream(0)) for _ in range(2)]
    reading = [asyncio.create_task(next_offsets(stream)) for stream in streams]
    await reader.until_asked()
    reader.follows()
    reader.deliver(0)
    assert await asyncio.gather(*reading) == [[0], [0]]
    await streams[0].aclose()
    await asyncio.sleep(0.05)
    assert not reader.unfollowed
    await streams[1].aclose()
    while not reader.unfollowed:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert reader.unfollowed == [shard.place]
    assert shard._tail is None

    topics.end = 2
    reader.deliver(1)  # the thread read it before it was told
    again = asyncio.create_task(next_offsets(shard.stream(2)))
    await reader.until_asked()
    reader.follows()
    reader.deliver(2)
    assert await again == [2]
    shard.stop(CoordinatorLogError("stopped"))


async def test_a_shard_that_was_released_still_notices_that_committed_entries_were_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_shard, "RELEASE_S", 0.0)
    reader, topics = Reader(), Topics()
    shard = shard_of(reader, topics)
    stream = cast("AsyncGenerator[Sequence[LogBatch]]", shard.stream(0))
    reading = asyncio.create_task(next_offsets(stream))
    await reader.until_asked()
    reader.follows()
    reader.deliver(0)
    assert await reading == [0]
    await stream.aclose()
    while not reader.unfollowed:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    with pytest.raises(CoordinatorLogError, match="are lost"):
        await next_offsets(shard.stream(0))
    shard.stop(CoordinatorLogError("stopped"))


class Consumer:
    """What the thread of a reader asks of librdkafka."""

    def __init__(self) -> None:
        self.assigned: dict[Place, int] = {}

    def incremental_assign(self, partitions: Sequence[Any]) -> None:
        for partition in partitions:
            assert (partition.topic, partition.partition) not in self.assigned
            self.assigned[partition.topic, partition.partition] = partition.offset

    def incremental_unassign(self, partitions: Sequence[Any]) -> None:
        for partition in partitions:
            del self.assigned[partition.topic, partition.partition]

    def poll(self, timeout: float) -> None:
        del timeout

    def close(self) -> None:
        pass


async def test_a_reader_follows_only_what_it_was_asked_for_last() -> None:
    consumer = Consumer()
    reader = LogReader(lambda: cast("Any", consumer), lambda *_: None)
    await asyncio.wrap_future(reader.start())
    place, other = ("topic", 0), ("topic", 1)
    for offset in (3, 4):
        await asyncio.wrap_future(reader.follow(place, offset, lambda: None))
        await asyncio.wrap_future(reader.follow(other, 1, lambda: None))
        assert consumer.assigned == {place: offset, other: 1}
        reader.unfollow(other)
    reader.unfollow(place)
    reader.unfollow(place)
    await asyncio.wrap_future(reader.follow(("topic", 2), 0, lambda: None))
    assert consumer.assigned == {("topic", 2): 0}
    await asyncio.to_thread(reader.stop)

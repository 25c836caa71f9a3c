"""Appends of `coordinator_log=kafka` to a Kafka that refuses what is too large, or is silent; librdkafka is a fake."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message

from diskless_core.plugin import kafka_client
from diskless_core.plugin.coordinator_log import CoordinatorLogError, EntryRefusedError, LogBounds
from diskless_core.plugin.shard import ShardId
from diskless_kafka.log_backend import LogBackend
from diskless_kafka.log_config import KafkaLogSettings
from diskless_kafka.log_producer import DeliveryReport, PartTooLargeError, PooledProducer, in_parts
from diskless_kafka.log_reader import Place, ReadMessage
from diskless_kafka.log_shard import LogShard

SHARD = ShardId("__diskless_metadata", 0)
MAX_MESSAGE_BYTES = 4 << 20


class Kafka:
    """One partition. A record batch that is too large is refused as a whole, and the next one is taken nevertheless.

    Attributes:
        max_message_bytes: the topic's limit.
        times_asked: how often it was asked for that.
        is_silent: it takes nothing until this is False, and then what is queued still.
        produced: set when something was queued.
        clients: all that were ever opened.
    """

    def __init__(self) -> None:
        self.max_message_bytes = MAX_MESSAGE_BYTES
        self.is_silent = False
        self.produced = asyncio.Event()
        self.values = list[bytes]()
        self.clients = list[Client]()
        self.times_asked = 0
        self.fails_to_describe = False
        self.shard: LogShard

    def open_shard(self, append_timeout_ms: int) -> LogShard:
        settings = KafkaLogSettings.model_validate(
            {
                "bootstrap.servers": "kafka:9092",
                "topic.max.message.bytes": MAX_MESSAGE_BYTES,
                "append.timeout.ms": append_timeout_ms,
            }
        )
        backend = SimpleNamespace(
            settings=settings,
            stopped=asyncio.Event(),
            writes=True,
            topics=SimpleNamespace(
                ensure=lambda _: None,
                bounds=lambda _: LogBounds(0, len(self.values)),
                max_message_bytes=self._describe,
            ),
            reader=SimpleNamespace(follow=self._follow),
            run=_called,
            open_producer=self._open,
            close_producer=lambda producer: kafka_client.close_producer(producer.client, 0),
        )
        self.shard = LogShard(SHARD, cast("LogBackend", backend), uuid.UUID(int=1))
        return self.shard

    def take(self, queued: Sequence[tuple[bytes, bytes]]) -> bool:
        """Take the messages of one record batch, each with its key, or refuse all of them."""
        if sum(len(key) + len(value) for key, value in queued) > self.max_message_bytes:
            return False
        for key, value in queued:
            offset = len(self.values)
            self.values.append(value)
            self.shard.deliver([ReadMessage(offset, offset + 1, key, value)])
        return True

    @property
    def queued(self) -> int:
        """How many messages all clients together have in their queues."""
        return sum(len(client.queue) for client in self.clients)

    def _describe(self, _: ShardId) -> int:
        self.times_asked += 1
        if self.fails_to_describe:
            raise CoordinatorLogError("it does not answer")
        return self.max_message_bytes

    def _follow(self, _: Place, offset: int, begin: Callable[[], None]) -> Future[None]:
        assert offset == len(self.values)
        begin()
        followed: Future[None] = Future()
        followed.set_result(None)
        return followed

    async def _open(self, on_error: DeliveryReport) -> PooledProducer:
        self.clients.append(Client(self, on_error))
        return cast("PooledProducer", SimpleNamespace(client=self.clients[-1]))


class Client:
    """Packs what is queued into record batches of at most 1,000,000 bytes, or of one message, as librdkafka does."""

    def __init__(self, kafka: Kafka, on_error: DeliveryReport) -> None:
        self.queue = list[tuple[bytes, bytes]]()
        self._kafka = kafka
        self._on_error = on_error

    def produce(self, _: str, value: bytes, *, key: bytes, partition: int) -> None:
        assert partition == 0
        self.queue.append((key, value))
        self._kafka.produced.set()
        asyncio.get_running_loop().call_soon(self.send)

    def send(self) -> None:
        while self.queue and not self._kafka.is_silent:
            batch = [self.queue.pop(0)]
            while self.queue and sum(len(value) for _, value in (*batch, self.queue[0])) <= 1_000_000:
                batch.append(self.queue.pop(0))
            if not self._kafka.take(batch):
                for key, _ in batch:
                    message = SimpleNamespace(key=lambda key=key: key)
                    self._on_error(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), cast("Message", message))

    def flush(self, _: float) -> int:
        return len(self.queue)

    def purge(self) -> None:
        self.queue.clear()

    def close(self) -> None:
        """A client that was not purged may send still."""


async def _called(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


def entry(name: str, size: int = 100) -> bytes:
    return name.encode().ljust(size, b".")


# --- what is too large -----------------------------------------------------------------------------------------------


async def test_a_large_entry_that_kafka_refuses_fails_alone_behind_others_and_before_others() -> None:
    kafka = Kafka()
    shard = kafka.open_shard(append_timeout_ms=20_000)
    kafka.max_message_bytes = 1 << 20
    with pytest.raises(EntryRefusedError) as refused:
        await shard.append([entry("a"), entry("b"), entry("large", 2 << 20), entry("behind")])
    assert refused.value.position == 2
    assert kafka.values == [entry("a"), entry("b")], "what lies before is there, and nothing behind"
    assert await shard.append([entry("c")]) == [2]
    with pytest.raises(EntryRefusedError, match=r"raise max\.message\.bytes of the topic to 4194304") as refused:
        await shard.append([entry("large", 2 << 20)])
    assert refused.value.position == 0
    assert kafka.values == [entry("a"), entry("b"), entry("c")]


async def test_a_refusal_that_is_uncertain_fails_one_append_and_from_then_on_only_the_entry_that_is_too_large() -> None:
    kafka = Kafka()
    shard = kafka.open_shard(append_timeout_ms=20_000)
    await shard.append([entry("first")])
    kafka.max_message_bytes = 10_000
    under_load = [entry("a"), entry("large", 20_000), entry("b")]
    with pytest.raises(PartTooLargeError):  # one record batch: which entry it was is not known
        await shard.append(under_load)
    assert kafka.values == [entry("first")]
    for times in range(1, 4):
        with pytest.raises(EntryRefusedError) as refused:
            await shard.append(under_load)
        assert refused.value.position == 1
        assert kafka.values == [entry("first"), *[entry("a")] * times]


async def test_entries_that_are_too_large_only_together_are_all_appended_after_one_refusal() -> None:
    kafka = Kafka()
    shard = kafka.open_shard(append_timeout_ms=20_000)
    kafka.max_message_bytes = 10_000
    small = [entry(str(number), 3_000) for number in range(10)]
    with pytest.raises(PartTooLargeError):
        await shard.append(small)
    assert await shard.append(small) == list(range(10))
    assert kafka.values == small
    asked = kafka.times_asked
    await shard.append(small)
    assert kafka.times_asked == asked, "what is known is not asked for again"


async def test_a_limit_that_was_raised_again_is_found_out_by_the_next_large_entry() -> None:
    kafka = Kafka()
    shard = kafka.open_shard(append_timeout_ms=20_000)
    kafka.max_message_bytes = 10_000
    for _ in range(2):
        with pytest.raises(EntryRefusedError):
            await shard.append([entry("large", 20_000)])
    kafka.max_message_bytes = MAX_MESSAGE_BYTES
    assert await shard.append([entry("large", 20_000), entry("b")]) == [0, 1]


async def test_a_limit_that_cannot_be_asked_for_fails_the_append_and_nothing_is_taken_for_refused() -> None:
    kafka = Kafka()
    shard = kafka.open_shard(append_timeout_ms=20_000)
    kafka.max_message_bytes = 10_000
    with pytest.raises(EntryRefusedError):
        await shard.append([entry("large", 20_000)])
    kafka.fails_to_describe = True
    with pytest.raises(CoordinatorLogError) as failed:
        await shard.append([entry("large", 20_000)])
    assert not isinstance(failed.value, EntryRefusedError)
    kafka.fails_to_describe = False
    assert await shard.append([entry("a")]) == [0]


@pytest.mark.parametrize("part_bytes", [-1, 0, 1_000, 2_000, 100_000])
def test_parts_have_all_batches_in_order_and_only_one_that_is_alone_is_larger(part_bytes: int) -> None:
    batches = [entry(str(number), size) for number, size in enumerate([100, 5_000, 300, 300, 936, 937, 100, 3_000])]
    parts = list(in_parts(batches, part_bytes))
    assert [batch for part in parts for batch in part] == batches
    assert all(len(part) == 1 or sum(map(len, part)) < part_bytes for part in parts)
    assert all(part for part in parts)


# --- silence ---------------------------------------------------------------------------------------------------------


async def test_while_kafka_is_silent_no_more_is_queued_than_one_append_and_nothing_of_it_is_sent_later() -> None:
    kafka = Kafka()
    shard = kafka.open_shard(append_timeout_ms=100)
    await shard.append([entry("first")])
    kafka.is_silent = True
    kafka.produced.clear()
    for time in range(5):
        append = asyncio.create_task(shard.append([entry(f"{time}, {number}") for number in range(50)]))
        await asyncio.wait_for(kafka.produced.wait(), 60)
        kafka.produced.clear()
        assert kafka.queued == 50, "of this append, and of none that was given up"
        with pytest.raises(CoordinatorLogError, match="was not read back"):
            await append
        assert kafka.queued == 0
    kafka.is_silent = False
    for client in kafka.clients:
        client.send()
    await shard.append([entry("recovered")])
    assert kafka.values == [entry("first"), entry("recovered")]

"""The three Python client libraries behind one small interface, so that one test is run with each of them."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import KafkaError as AioKafkaError
from kafka.errors import KafkaError

from tests.support.admin_requests import SET, TOPIC, alter
from tests.support.batches import batch_of
from tests.support.requests import append, create_topic
from tests.support.wire import WireClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 300.0
_POLL_S = 0.1

Headers = tuple[tuple[str, bytes | None], ...]


class Sent(NamedTuple):
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


class Got(NamedTuple):
    """A consumed record. The timestamp type is 0 for CreateTime, 1 for LogAppendTime."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: int


class CommitRefusedError(Exception):
    """The group is rebalancing: what was polled last is not consumed by this member."""


class Member(ABC):
    """A consumer that subscribed as a member of a group and commits by hand."""

    @abstractmethod
    def poll(self) -> list[Got]: ...

    @abstractmethod
    def commit(self, offsets: dict[int, int]) -> None:
        """Commit the next offset of each partition.

        Raises:
            CommitRefusedError: another member may get the records.
        """

    @abstractmethod
    def assignment(self) -> set[int]:
        """Partitions that it has."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""

    def consume(self) -> list[Got]:
        """What was polled and also committed."""
        records = self.poll()
        if not records:
            return []
        try:
            self.commit({record.partition: record.offset + 1 for record in records})
        except CommitRefusedError:
            return []
        return records


class Client(ABC):
    """One library. All calls block and fail after `TIMEOUT_S`."""

    sends_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def produce(
        self, topic: str, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False, acks: int = -1
    ) -> list[int]:
        """Produce in one go and wait for all acknowledgements; the offsets, which mean nothing with acks=0."""

    @abstractmethod
    def read(self, topic: str, count: int, partitions: Sequence[int] = (0,)) -> list[Got]:
        """The first records of partitions, consumed by assignment."""

    @abstractmethod
    def join(self, topic: str, group: str) -> Member:
        """Subscribe; a new group begins at the earliest offset."""

    @abstractmethod
    def begin_transactions(self) -> None:
        """Make a transactional producer and initialise it."""

    def consume_as_group(self, topic: str, group: str, count: int) -> list[Got]:
        """Consume and commit records as the only member of a group, then leave it."""
        member = self.join(topic, group)
        try:
            return collect(member.consume, count)
        finally:
            member.close()


def collect(poll: Callable[[], list[Got]], count: int) -> list[Got]:
    """Poll until there are `count` records."""
    records: list[Got] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
        records += poll()
    return records


class Confluent(Client):
    """confluent-kafka, that is librdkafka."""

    def produce(
        self, topic: str, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False, acks: int = -1
    ) -> list[int]:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "acks": acks,
                "linger.ms": 5,
                "message.max.bytes": 10_000_000,
                "log_level": 2,
            }
        )
        offsets: dict[int, int] = {}

        def delivered_as(index: int) -> Callable[[Any, Any], None]:
            def delivered(error: Any, message: Any) -> None:
                if error is not None:
                    raise confluent_kafka.KafkaException(error)
                offsets[index] = message.offset()

            return delivered

        for index, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=delivered_as(index),
                timestamp=record.timestamp_ms or 0,
                headers=list(record.headers),
            )
        assert producer.flush(TIMEOUT_S) == 0
        return [offsets[index] for index in range(len(records))]

    def read(self, topic: str, count: int, partitions: Sequence[int] = (0,)) -> list[Got]:
        consumer = self._consumer("reads-by-assignment")
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in partitions])
        try:
            return collect(lambda: _confluent_poll(consumer), count)
        finally:
            consumer.close()

    def join(self, topic: str, group: str) -> Member:
        consumer = self._consumer(group)
        consumer.subscribe([topic])
        return _ConfluentMember(consumer, topic)

    def begin_transactions(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "transactional.id": "t"})
        producer.init_transactions(TIMEOUT_S)

    def _consumer(self, group: str) -> Any:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
            }
        )


def _confluent_poll(consumer: Any) -> list[Got]:
    messages = consumer.consume(500, _POLL_S)
    for message in messages:
        if message.error() is not None:
            raise confluent_kafka.KafkaException(message.error())
    return [
        Got(
            message.partition(),
            message.offset(),
            message.value(),
            message.key(),
            tuple(message.headers() or ()),
            message.timestamp()[1],
            message.timestamp()[0] - confluent_kafka.TIMESTAMP_CREATE_TIME,
        )
        for message in messages
    ]


class _ConfluentMember(Member):
    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def poll(self) -> list[Got]:
        return _confluent_poll(self._consumer)

    def commit(self, offsets: dict[int, int]) -> None:
        wanted = [confluent_kafka.TopicPartition(self._topic, *entry) for entry in offsets.items()]
        try:
            results = self._consumer.commit(offsets=wanted, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            raise CommitRefusedError(str(error)) from error
        if any(result.error is not None for result in results):
            raise CommitRefusedError(str(results))

    def assignment(self) -> set[int]:
        return {entry.partition for entry in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class KafkaPython(Client):
    """kafka-python."""

    sends_null_headers = False

    def produce(
        self, topic: str, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False, acks: int = -1
    ) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks=acks,
            linger_ms=5,
            max_request_size=10_000_000,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [future.get(TIMEOUT_S).offset for future in futures]
        finally:
            producer.close(TIMEOUT_S)

    def read(self, topic: str, count: int, partitions: Sequence[int] = (0,)) -> list[Got]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False)
        wanted = [kafka.TopicPartition(topic, partition) for partition in partitions]
        consumer.assign(wanted)
        consumer.seek_to_beginning(*wanted)
        try:
            return collect(lambda: _kafka_python_poll(consumer), count)
        finally:
            consumer.close()

    def join(self, topic: str, group: str) -> Member:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
        )
        consumer.subscribe([topic])
        # A member that learns of its topic's partitions only after it joined has to join again, and kafka-python 3.0
        # loses the assignment when a poll's time is over just then. This waits for the metadata.
        consumer.topics()
        return _KafkaPythonMember(consumer, topic)

    def begin_transactions(self) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id="t")
        try:
            producer.init_transactions()
        finally:
            producer.close(timeout=1)


def _kafka_python_poll(consumer: Any) -> list[Got]:
    return list(_stock_records(consumer.poll(_POLL_S * 1000)))


def _stock_records(polled: dict[Any, list[Any]]) -> Iterator[Got]:
    """kafka-python and aiokafka describe records alike."""
    for records in polled.values():
        for record in records:
            yield Got(
                record.partition,
                record.offset,
                record.value,
                record.key,
                tuple(record.headers),
                record.timestamp,
                record.timestamp_type,
            )


class _KafkaPythonMember(Member):
    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def poll(self) -> list[Got]:
        return _kafka_python_poll(self._consumer)

    def commit(self, offsets: dict[int, int]) -> None:
        wanted = {
            kafka.TopicPartition(self._topic, partition): kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        try:
            self._consumer.commit(wanted, timeout_ms=TIMEOUT_S * 1000)
        except KafkaError as error:
            raise CommitRefusedError(repr(error)) from error

    def assignment(self) -> set[int]:
        return {entry.partition for entry in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class AioKafka(Client):
    """aiokafka; each call runs an event loop of its own."""

    def produce(
        self, topic: str, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False, acks: int = -1
    ) -> list[int]:
        async def run() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                acks=acks,
                linger_ms=5,
                max_request_size=10_000_000,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        record.partition,
                        record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                results = await asyncio.gather(*futures)
            finally:
                await producer.stop()
            return [-1 if result is None else result.offset for result in results]

        return _run(run())

    def read(self, topic: str, count: int, partitions: Sequence[int] = (0,)) -> list[Got]:
        async def run() -> list[Got]:
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False)
            wanted = [aiokafka.TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(wanted)
            await consumer.start()
            try:
                await consumer.seek_to_beginning(*wanted)
                records: list[Got] = []
                while len(records) < count:
                    records += _stock_records(await consumer.getmany(timeout_ms=int(_POLL_S * 1000)))
                return records
            finally:
                await consumer.stop()

        return _run(run())

    def join(self, topic: str, group: str) -> Member:
        return _AioKafkaMember(self.bootstrap, topic, group)

    def begin_transactions(self) -> None:
        async def run() -> None:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id="t")
            try:
                await producer.start()
            finally:
                await producer.stop()

        _run(run())


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT_S))


class _AioKafkaMember(Member):
    """Its event loop runs in a thread, as the library's heartbeats want it."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._topic = topic
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._consumer: Any = None
        self._call(self._start(bootstrap, group))

    async def _start(self, bootstrap: str, group: str) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
        )
        await self._consumer.start()

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    def poll(self) -> list[Got]:
        return list(_stock_records(self._call(self._consumer.getmany(timeout_ms=int(_POLL_S * 1000)))))

    def commit(self, offsets: dict[int, int]) -> None:
        wanted = {aiokafka.TopicPartition(self._topic, partition): offset for partition, offset in offsets.items()}
        try:
            self._call(self._consumer.commit(wanted))
        except (AioKafkaError, ValueError) as error:
            raise CommitRefusedError(repr(error)) from error

    def assignment(self) -> set[int]:
        return {entry.partition for entry in self._consumer.assignment()}

    def close(self) -> None:
        with suppress(AioKafkaError):
            self._call(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


CLIENTS: dict[str, type[Client]] = {"confluent-kafka": Confluent, "kafka-python": KafkaPython, "aiokafka": AioKafka}


def compressed_again(wire: WireClient, topic: str) -> list[bytes]:
    """Create a topic, produce batches of text that the broker compresses with each codec in turn, return the values."""
    create_topic(wire, topic)
    found = []
    for place, wanted in enumerate(("uncompressed", *CODECS[1:])):
        assert alter(wire, TOPIC, topic, ("compression.type", SET, wanted)) == (0, None)
        values = [b"%d of %s %s" % (number, wanted.encode(), b"that repeats itself " * 9) for number in range(500)]
        append(wire, topic, batch_of(*values, compression=place - 1 if place else len(CODECS) - 1))
        found += values
    return found

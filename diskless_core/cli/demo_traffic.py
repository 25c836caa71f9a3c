"""The demo's clients, stock librdkafka, and the tally that judges what they read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from diskless_core.clock import Clock
from diskless_core.plugin.kafka_client import END_OF_PARTITION

TOPIC = "orders"
PARTITIONS = 6
KEYS = 1_000
STALL_S = 30.0
"""Clients give up after this long without any progress."""

_CHUNK = 5_000


Progress = Callable[[int], None]
"""Gets how many records there are so far."""


class TrafficError(Exception):
    """A client did not get what it should."""


@dataclass(slots=True)
class Tally:
    """What a reader saw, judged: every key's records number 0, 1, 2 and so on, in this order and once."""

    records: int = 0
    out_of_order: int = 0
    duplicates: int = 0
    next_of_key: dict[bytes, int] = field(default_factory=dict)
    partitions: Counter[int] = field(default_factory=Counter)

    def add(self, key: bytes, number: int, partition: int) -> None:
        """Take one record, the `number`th of its key."""
        expected = self.next_of_key.get(key, 0)
        self.records += 1
        self.partitions[partition] += 1
        if number < expected:
            self.duplicates += 1
        elif number > expected:
            self.out_of_order += 1
        self.next_of_key[key] = max(expected, number + 1)

    def problems(self, expected_records: int) -> list[str]:
        """What is wrong with it; empty when everything is there once and in order."""
        found = []
        if self.records != expected_records:
            found.append(f"{self.records:,} records were read, {expected_records:,} were acknowledged")
        if self.duplicates:
            found.append(f"{self.duplicates:,} records came twice")
        if self.out_of_order:
            found.append(f"{self.out_of_order:,} records came before an earlier one of their key")
        return found


def create_topic(bootstrap: str) -> None:
    """Create the demo's topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])[TOPIC].result(timeout=STALL_S)


def produce(bootstrap: str, records: int, clock: Clock, progress: Progress) -> int:
    """Write `records` keyed records idempotently with zstd, and return how many were acknowledged.

    Raises:
        TrafficError: some were refused, or not acknowledged in time.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 20,
            "queue.buffering.max.messages": _CHUNK * 4,
        }
    )
    acknowledged = 0
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            refused.append(error)

    for index, (key, value) in enumerate(_records(records)):
        while len(producer) >= _CHUNK * 3:
            producer.poll(0.1)
        producer.produce(TOPIC, key=key, value=value, on_delivery=delivered)
        if index % 500 == 0:
            producer.poll(0)
            progress(acknowledged)
    left, deadline = len(producer), clock.monotonic() + STALL_S
    while left and clock.monotonic() < deadline:
        before, left = left, producer.flush(1)
        if left < before:
            deadline = clock.monotonic() + STALL_S
        progress(acknowledged)
    if refused or acknowledged != records:
        raise TrafficError(f"{records - acknowledged:,} of {records:,} records were not acknowledged: {refused[:1]}")
    return acknowledged


def consume(bootstrap: str, group: str, clock: Clock, progress: Progress) -> Tally:
    """Read the topic from its beginning to its end as the only member of a new group, and commit the offsets.

    Raises:
        TrafficError: the end was not reached.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    tally, ended = Tally(), set[int]()
    try:
        consumer.subscribe([TOPIC])
        deadline = clock.monotonic() + STALL_S
        while len(ended) < PARTITIONS:
            messages = consumer.consume(_CHUNK, timeout=0.2)
            if messages:
                deadline = clock.monotonic() + STALL_S
            elif clock.monotonic() > deadline:
                raise TrafficError(f"no more records came after {tally.records:,}, and the end was not reached")
            _take(messages, tally, ended)
            progress(tally.records)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return tally


def committed_offsets(bootstrap: str, group: str) -> int:
    """The sum of the offsets that a group has committed: how many records it is past."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return sum(max(entry.offset, 0) for entry in consumer.committed(wanted, timeout=STALL_S))
    finally:
        consumer.close()


def _records(count: int) -> Iterator[tuple[bytes, bytes]]:
    for index in range(count):
        number, customer = divmod(index, KEYS)
        payload = hashlib.sha256(index.to_bytes(8, "big")).hexdigest()
        yield b"customer-%04d" % customer, b"%08d %s" % (number, payload.encode())


def _take(messages: list[Message], tally: Tally, ended: set[int]) -> None:
    for message in messages:
        error, partition = message.error(), message.partition()
        if error is not None and error.code() == END_OF_PARTITION and partition is not None:
            ended.add(partition)
        elif error is not None:
            raise KafkaException(error)
        else:
            key, value = message.key(), message.value()
            if key is None or value is None or partition is None:
                raise TrafficError("a record came without its key or value")
            ended.discard(partition)
            tally.add(_bytes(key), int(value[:8]), partition)


def _bytes(key: bytes | str) -> bytes:
    return key.encode() if isinstance(key, str) else key

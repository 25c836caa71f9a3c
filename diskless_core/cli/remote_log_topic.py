"""Reads the topic `__remote_log_metadata` of a Kafka cluster from its beginning to its present end. It blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple, cast

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from diskless_core.plugin import kafka_client
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_core.remote_log.records import TOPIC

CONNECT_TIMEOUT_MS = 30_000
"""How long a cluster may take to answer at all."""

_POLL_S = 1.0
_POLLS_IN_VAIN = 60
_BATCH = 1_000


class RemoteLogTopicError(Exception):
    """The topic cannot be read; the message says why."""


class TopicRecord(NamedTuple):
    """One record, where it is and what it holds."""

    partition: int
    offset: int
    value: bytes


class _Bounds(NamedTuple):
    start: int
    end: int


def read_records(bootstrap: str) -> Iterator[TopicRecord]:
    """All records that the topic has when this is called, those of a partition in order.

    Raises:
        RemoteLogTopicError: the cluster does not answer, or has no such topic.
    """
    options = {"bootstrap.servers": bootstrap, "client.id": "diskless"}
    try:
        with _admin(options) as admin:
            bounds = _bounds(admin, bootstrap)
        with closing(kafka_client.open_consumer({**options, "enable.partition.eof": True})) as consumer:
            yield from _up_to(consumer, bounds, bootstrap)
    except KafkaClientError as error:
        raise RemoteLogTopicError(f"{bootstrap} does not let {TOPIC} be read: {error}") from error


@contextmanager
def _admin(options: dict[str, str]) -> Iterator[AdminClient]:
    admin = kafka_client.open_admin(options, CONNECT_TIMEOUT_MS / 1000)
    try:
        yield admin
    finally:
        kafka_client.close_admin(admin)


def _bounds(admin: AdminClient, bootstrap: str) -> dict[int, _Bounds]:
    """Where the partitions begin and end that have any records."""
    topic = kafka_client.describe_topic(admin, TOPIC)
    if topic is None:
        raise RemoteLogTopicError(f"{bootstrap} has no topic {TOPIC}: have its brokers tiered storage?")
    numbers = [partition.id for partition in topic.partitions]
    starts = kafka_client.list_offsets(admin, TOPIC, numbers, OffsetSpec.earliest())
    ends = kafka_client.list_offsets(admin, TOPIC, numbers, OffsetSpec.latest())
    bounds = {number: _Bounds(starts[number].offset, ends[number].offset) for number in numbers}
    return {number: found for number, found in bounds.items() if found.start < found.end}


def _up_to(consumer: Consumer, bounds: dict[int, _Bounds], bootstrap: str) -> Iterator[TopicRecord]:
    consumer.assign([TopicPartition(TOPIC, number, start) for number, (start, _) in bounds.items()])
    unread = {number: end for number, (_, end) in bounds.items()}
    in_vain = 0
    while unread:
        first = consumer.poll(_POLL_S)
        if first is None:
            in_vain += 1
            if in_vain == _POLLS_IN_VAIN:
                raise RemoteLogTopicError(f"{bootstrap} gives nothing more of {TOPIC}, which has more: see its log")
            continue
        in_vain = 0
        for message in (first, *consumer.consume(_BATCH, 0)):
            number, next_offset, record = _read(message)
            if record is not None and record.offset < bounds[number].end:
                yield record
            if next_offset >= unread.get(number, next_offset + 1):
                del unread[number]


def _read(message: Message) -> tuple[int, int, TopicRecord | None]:
    """A partition, up to where it was read, and the record."""
    number, offset = cast("int", message.partition()), cast("int", message.offset())
    error = message.error()
    if error is None:
        return number, offset + 1, TopicRecord(number, offset, message.value() or b"")
    if error.code() == kafka_client.END_OF_PARTITION:
        return number, offset, None
    problem = kafka_client.failure(error)
    if problem.retriable and not problem.has_lost_records:
        return number, 0, None
    raise problem

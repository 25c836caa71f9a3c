"""The reader of the metadata topic, with a consumer that plays a Kafka in trouble."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_core.remote_log.records import encode
from diskless_core.testing.remote_log_metadata_tools import segment
from diskless_kafka.metadata_reader import CLUSTER_ID_HEADER, MetadataReader
from diskless_kafka.metadata_topic import Bounds
from diskless_kafka.segment_states import TopicRecord

TOPIC = "segments"
TIMEOUT_S = 300.0
EVENT = segment(1, 0, 9)


class PlayedConsumer:
    """Answers polls with the lists of messages that are put into `answers`; an exception is raised."""

    def __init__(self) -> None:
        self.answers: queue.Queue[Any] = queue.Queue()
        self.rest: list[Message] = []
        self.positions: dict[int, int] = {}
        self.watermarks: list[Any] = []
        self.closed = threading.Event()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.positions = {one.partition: one.offset for one in partitions}

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.positions |= {one.partition: one.offset for one in partitions}

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            del self.positions[one.partition]

    def poll(self, timeout: float) -> Message | None:
        try:
            answer = self.answers.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(answer, Exception):
            raise answer
        first, *self.rest = answer
        return first

    def consume(self, count: int, timeout: float) -> list[Message]:
        rest, self.rest = self.rest, []
        return rest

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        answer = self.watermarks.pop(0) if self.watermarks else (2, 7)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed.set()


class Delivered:
    def __init__(self) -> None:
        self.all: queue.Queue[Any] = queue.Queue()

    def deliver(self, records: Sequence[TopicRecord]) -> None:
        self.all.put(list(records))

    def restart(self, bounds: Mapping[int, Bounds]) -> None:
        self.all.put(dict(bounds))

    def failed(self, error: Exception) -> None:
        self.all.put(error)

    def next(self) -> Any:
        return self.all.get(timeout=TIMEOUT_S)


def record(
    offset: int, value: bytes | None, headers: Sequence[tuple[str, bytes]] | None = None, partition: int = 1
) -> Message:
    return Message(topic=TOPIC, partition=partition, offset=offset, value=value, headers=headers and list(headers))


def problem(code: int, partition: int = -1) -> Message:
    return Message(topic=TOPIC, partition=partition, error=KafkaError(code))


@pytest.fixture
def consumer() -> PlayedConsumer:
    return PlayedConsumer()


@pytest.fixture
def delivered(consumer: PlayedConsumer) -> Iterator[Delivered]:
    made = Delivered()
    reader = MetadataReader(lambda: consumer, TOPIC, {0: 5, 1: 0}, made, threading.Event())  # type: ignore[arg-type,return-value]
    reader.start().result(TIMEOUT_S)
    yield made
    reader.stop()
    assert consumer.closed.is_set()


def test_records_come_with_who_has_written_them(consumer: PlayedConsumer, delivered: Delivered) -> None:
    consumer.answers.put([record(0, encode(EVENT), [(CLUSTER_ID_HEADER, b"us")]), record(1, encode(EVENT))])
    assert delivered.next() == [TopicRecord(1, 0, EVENT, "us"), TopicRecord(1, 1, EVENT, None)]
    assert consumer.positions == {0: 5, 1: 0}


def test_what_is_no_event_moves_the_position_and_nothing_else(consumer: PlayedConsumer, delivered: Delivered) -> None:
    consumer.answers.put([record(0, None), record(1, b"?"), record(2, encode(EVENT)[:-1])])
    assert delivered.next() == [TopicRecord(1, offset, None) for offset in range(3)]


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_after_an_error_of_kafka_it_reads_on(consumer: PlayedConsumer, delivered: Delivered, code: int) -> None:
    consumer.answers.put([problem(code), record(0, encode(EVENT))])
    assert delivered.next() == [TopicRecord(1, 0, EVENT)]


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION])
def test_a_partition_that_has_lost_its_records_is_read_from_the_start(
    consumer: PlayedConsumer, delivered: Delivered, code: int
) -> None:
    consumer.watermarks.append(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    consumer.answers.put([record(0, encode(EVENT)), problem(code, 0)])
    assert delivered.next() == [TopicRecord(1, 0, EVENT)]
    assert delivered.next() == {0: Bounds(2, 7)}
    consumer.answers.put([record(1, encode(EVENT))])
    delivered.next()
    assert consumer.positions == {0: 2, 1: 0}


def test_a_defect_ends_it_and_is_told(
    consumer: PlayedConsumer, delivered: Delivered, caplog: pytest.LogCaptureFixture
) -> None:
    defect = ZeroDivisionError("defect")
    consumer.answers.put(defect)
    assert delivered.next() is defect


def test_a_reader_without_a_consumer_says_why() -> None:
    refused = KafkaClientError("no such option", code=-186, retriable=False)

    def refuse() -> Any:
        raise refused

    reader = MetadataReader(refuse, TOPIC, {0: 0}, Delivered(), threading.Event())
    assert reader.start().exception(TIMEOUT_S) is refused
    reader.stop()


def test_it_ends_with_its_owner_although_nobody_stops_it(consumer: PlayedConsumer) -> None:
    closing = threading.Event()
    MetadataReader(lambda: consumer, TOPIC, {0: 0}, Delivered(), closing).start()  # type: ignore[arg-type,return-value]
    closing.set()
    assert consumer.closed.wait(TIMEOUT_S)

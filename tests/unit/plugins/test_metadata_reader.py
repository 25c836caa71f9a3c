"""The reader of the metadata topic, with a consumer that plays a Kafka in trouble."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaConnectionError, LogTruncationError, OffsetOutOfRangeError

from diskless_core.remote_log.records import encode
from diskless_core.testing.remote_log_metadata_tools import segment
from diskless_kafka.metadata_reader import CLUSTER_ID_HEADER, MetadataReader
from diskless_kafka.metadata_topic import Bounds
from diskless_kafka.segment_states import TopicRecord

TOPIC = "segments"
TIMEOUT_S = 300.0
EVENT = segment(1, 0, 9)


class PlayedConsumer:
    """Answers polls with what is put into `answers`; an exception is raised."""

    def __init__(self) -> None:
        self.answers: queue.Queue[Any] = queue.Queue()
        self.positions: dict[TopicPartition, int] = {}
        self.closed = False

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.positions = dict.fromkeys(partitions, -1)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def poll(self, timeout_ms: int) -> Any:
        try:
            answer = self.answers.get(timeout=timeout_ms / 1000)
        except queue.Empty:
            return {}
        if isinstance(answer, Exception):
            raise answer
        return answer

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 2)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 7)

    def close(self, timeout_ms: int) -> None:
        self.closed = True


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


def record(offset: int, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()) -> Any:
    return SimpleNamespace(partition=1, offset=offset, value=value, headers=list(headers))


@pytest.fixture
def consumer() -> PlayedConsumer:
    return PlayedConsumer()


@pytest.fixture
def delivered(consumer: PlayedConsumer) -> Iterator[Delivered]:
    made = Delivered()
    reader = MetadataReader(consumer, TOPIC, {0: 5, 1: 0}, made)
    reader.start()
    yield made
    reader.stop()
    assert consumer.closed


def test_records_come_with_who_has_written_them(consumer: PlayedConsumer, delivered: Delivered) -> None:
    consumer.answers.put(
        {TopicPartition(TOPIC, 1): [record(0, encode(EVENT), [(CLUSTER_ID_HEADER, b"us")]), record(1, encode(EVENT))]}
    )
    assert delivered.next() == [TopicRecord(1, 0, EVENT, "us"), TopicRecord(1, 1, EVENT, None)]
    assert consumer.positions == {TopicPartition(TOPIC, 0): 5, TopicPartition(TOPIC, 1): 0}


def test_what_is_no_event_moves_the_position_and_nothing_else(consumer: PlayedConsumer, delivered: Delivered) -> None:
    consumer.answers.put({TopicPartition(TOPIC, 1): [record(0, None), record(1, b"?"), record(2, encode(EVENT)[:-1])]})
    assert delivered.next() == [TopicRecord(1, offset, None) for offset in range(3)]


def test_after_an_error_of_kafka_it_reads_on(consumer: PlayedConsumer, delivered: Delivered) -> None:
    consumer.answers.put(KafkaConnectionError("gone"))
    consumer.answers.put({TopicPartition(TOPIC, 1): [record(0, encode(EVENT))]})
    assert delivered.next() == [TopicRecord(1, 0, EVENT)]


@pytest.mark.parametrize("error", [OffsetOutOfRangeError, LogTruncationError])
def test_a_partition_that_has_lost_its_records_is_read_from_the_start(
    consumer: PlayedConsumer, delivered: Delivered, error: Any
) -> None:
    consumer.answers.put(error({TopicPartition(TOPIC, 0): None}))
    assert delivered.next() == {0: Bounds(2, 7)}
    consumer.answers.put({TopicPartition(TOPIC, 1): [record(0, encode(EVENT))]})
    delivered.next()
    assert consumer.positions == {TopicPartition(TOPIC, 0): 2, TopicPartition(TOPIC, 1): 0}


def test_a_defect_ends_it_and_is_told(
    consumer: PlayedConsumer, delivered: Delivered, caplog: pytest.LogCaptureFixture
) -> None:
    defect = ZeroDivisionError("defect")
    consumer.answers.put(defect)
    assert delivered.next() is defect

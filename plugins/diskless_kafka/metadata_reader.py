"""The thread that reads the metadata topic, from first to last and for ever, and hands on what it reads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kafka import TopicPartition
from kafka.errors import KafkaError, LogTruncationError, OffsetOutOfRangeError

from diskless_core.remote_log import records
from diskless_kafka.metadata_topic import Bounds
from diskless_kafka.segment_states import TopicRecord

CLUSTER_ID_HEADER = "diskless.cluster.id"
"""Header with the Diskless cluster that wrote a record. Apache Kafka neither writes headers here nor looks at them."""

_POLL_MS = 100
_RETRY_S = 0.5
_CLOSE_MS = 5_000

logger = logging.getLogger(__name__)


class Delivery(Protocol):
    """Takes what a reader reads, on the reader's thread, which goes on when a method returns."""

    def deliver(self, records: Sequence[TopicRecord]) -> None:
        """Take records, in order within each partition."""
        ...

    def restart(self, bounds: Mapping[int, Bounds]) -> None:
        """Forget what came of these partitions: they are read anew, from the start of these bounds."""
        ...

    def failed(self, error: Exception) -> None:
        """The reader has ended by a defect."""
        ...


class MetadataReader:
    """Reads all partitions of the metadata topic.

    Args:
        consumer: a kafka-python consumer, which is the reader's from now on.
        positions: at which offset to begin with each partition.
    """

    def __init__(self, consumer: Any, topic: str, positions: Mapping[int, int], delivery: Delivery) -> None:
        self._consumer = consumer
        self._topic = topic
        self._positions = {TopicPartition(topic, number): offset for number, offset in positions.items()}
        self._delivery = delivery
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{topic}-reader", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more, and close the consumer. Blocks, until the delivery under way is done."""
        self._stopping.set()
        self._thread.join()
        self._consumer.close(timeout_ms=_CLOSE_MS)

    def _run(self) -> None:
        try:
            self._consumer.assign(list(self._positions))
            for partition, offset in self._positions.items():
                self._consumer.seek(partition, offset)
            while not self._stopping.is_set():
                self._read()
        except Exception as error:
            logger.exception("The reader of %s has ended", self._topic)
            self._delivery.failed(error)

    def _read(self) -> None:
        try:
            try:
                polled = self._consumer.poll(_POLL_MS)
            except OffsetOutOfRangeError as error:
                self._begin_again(list(error.args[0]))
                return
            except LogTruncationError as error:
                self._begin_again(list(error.divergent_offsets))
                return
        except KafkaError as error:
            logger.warning("Cannot read %s, trying again: %s", self._topic, error)
            self._stopping.wait(_RETRY_S)
            return
        if polled:
            self._delivery.deliver([self._decoded(record) for found in polled.values() for record in found])

    def _begin_again(self, partitions: Sequence[TopicPartition]) -> None:
        starts = self._consumer.beginning_offsets(partitions)
        ends = self._consumer.end_offsets(partitions)
        logger.error(
            "The records read last are not in %s any more, as if it had been made anew: partitions %s are read from "
            "the start",
            self._topic,
            sorted(partition.partition for partition in partitions),
        )
        self._delivery.restart({found.partition: Bounds(starts[found], ends[found]) for found in partitions})
        for found in partitions:
            self._consumer.seek(found, starts[found])

    def _decoded(self, record: Any) -> TopicRecord:
        try:
            event = records.decode(record.value or b"")
        except records.CorruptRecordError as error:
            logger.error("%s-%d has at offset %d %s: skipped", self._topic, record.partition, record.offset, error)
            event = None
        written_by = dict(record.headers).get(CLUSTER_ID_HEADER)
        cluster_id = None if written_by is None else written_by.decode(errors="replace")
        return TopicRecord(record.partition, record.offset, event, cluster_id)

"""The thread that reads the metadata topic, from first to last and for ever, and hands on what it reads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Protocol, cast

from confluent_kafka import OFFSET_INVALID, Consumer, Message, TopicPartition

from diskless_core.plugin import kafka_client
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_core.remote_log import records
from diskless_kafka.metadata_topic import Bounds
from diskless_kafka.segment_states import TopicRecord

CLUSTER_ID_HEADER = "diskless.cluster.id"
"""Header with the Diskless cluster that wrote a record. Apache Kafka neither writes headers here nor looks at them."""

_POLL_S = 0.1
_BATCH = 1_000
_ANSWER_S = 5.0

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
    """Reads all partitions of the metadata topic, on a thread of its own, which owns the consumer.

    Args:
        open_consumer: makes a consumer as `kafka_client.open_consumer` does.
        positions: at which offset to begin with each partition.
        is_closing: ends the reader, as `stop` does.
    """

    def __init__(
        self,
        open_consumer: Callable[[], Consumer],
        topic: str,
        positions: Mapping[int, int],
        delivery: Delivery,
        is_closing: threading.Event,
    ) -> None:
        self._open_consumer = open_consumer
        self._topic = topic
        self._positions = dict(positions)
        self._delivery = delivery
        self._is_closing = is_closing
        self._stopping = threading.Event()
        self._lost: set[int] = set()
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=f"{topic}-reader", daemon=True)

    def start(self) -> Future[None]:
        """Begin to read. The future is done when the consumer is there, or has the reason why there is none."""
        self._thread.start()
        return self._opened

    def stop(self) -> None:
        """Read no more. Blocks until the delivery under way is done and the consumer is closed. Idempotent."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        if not self._opened.set_running_or_notify_cancel():
            return
        try:
            consumer = self._open_consumer()
        except BaseException as error:
            self._opened.set_exception(error)
            return
        with closing(consumer):
            self._opened.set_result(None)
            try:
                consumer.assign([self._place(number, offset) for number, offset in self._positions.items()])
                while not (self._stopping.is_set() or self._is_closing.is_set()):
                    self._read(consumer)
            except Exception as error:
                logger.exception("The reader of %s has ended", self._topic)
                self._delivery.failed(error)

    def _read(self, consumer: Consumer) -> None:
        if self._lost:
            self._begin_again(consumer)
        first = consumer.poll(_POLL_S)
        if first is None:
            return
        read: list[TopicRecord] = []
        for message in (first, *consumer.consume(_BATCH, 0)):
            error = message.error()
            if error is None:
                read.append(self._decoded(message))
                continue
            problem = kafka_client.failure(error)
            if problem.has_lost_records:
                self._lost.add(cast("int", message.partition()))
            else:
                logger.warning("Cannot read %s, trying again: %s", self._topic, problem)
        if read:
            self._delivery.deliver(read)

    def _begin_again(self, consumer: Consumer) -> None:
        """Let the partitions that have lost their records be read from the start, once it is known where that is."""
        places = [self._place(number) for number in self._lost]
        try:
            with kafka_client.errors():
                bounds = {
                    place.partition: Bounds(*consumer.get_watermark_offsets(place, timeout=_ANSWER_S))
                    for place in places
                }
        except KafkaClientError as error:
            logger.warning("Cannot say where %s begins, trying again: %s", self._topic, error)
            return
        logger.error(
            "The records read last are not in %s any more, as if it had been made anew: partitions %s are read from "
            "the start",
            self._topic,
            sorted(self._lost),
        )
        self._delivery.restart(bounds)
        consumer.incremental_unassign(places)
        consumer.incremental_assign([self._place(number, bounds[number].start) for number in self._lost])
        self._lost.clear()

    def _place(self, number: int, offset: int = OFFSET_INVALID) -> TopicPartition:
        return TopicPartition(self._topic, number, offset)

    def _decoded(self, message: Message) -> TopicRecord:
        number, offset = cast("int", message.partition()), cast("int", message.offset())
        try:
            event = records.decode(message.value() or b"")
        except records.CorruptRecordError as error:
            logger.error("%s-%d has at offset %d %s: skipped", self._topic, number, offset, error)
            event = None
        written_by = dict(message.headers() or ()).get(CLUSTER_ID_HEADER)
        cluster_id = written_by.decode(errors="replace") if isinstance(written_by, bytes) else None
        return TopicRecord(number, offset, event, cluster_id)

"""What lies before the entries in memory: read from Kafka for one reader, as fast as this one takes it. Blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, TopicPartition

from diskless_core.plugin import kafka_client
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogOffsetPrunedError
from diskless_kafka.log_reader import Place, ReadMessage, as_read

_POLL_S = 0.2
_BATCH = 500


class LogHistory:
    """Reads a partition from an offset on. One thread at a time may use it."""

    def __init__(self, open_consumer: Callable[[], Consumer], place: Place, offset: int) -> None:
        self._open_consumer = open_consumer
        self._place = place
        self._offset = offset
        self._consumer: Consumer | None = None
        self._closed = False
        self._using = threading.Lock()

    def read(self) -> Sequence[ReadMessage]:
        """What comes next; nothing, if nothing has come yet.

        Raises:
            LogOffsetPrunedError: it is gone.
            CoordinatorLogError: it cannot be read.
        """
        with self._using:
            if self._closed:
                return ()
            if self._consumer is None:
                self._consumer = self._open()
            first = self._consumer.poll(_POLL_S)
            if first is None:
                return ()
            found = list[ReadMessage]()
            for message in (first, *self._consumer.consume(_BATCH, 0)):
                error = message.error()
                if error is None or error.code() == kafka_client.END_OF_PARTITION:
                    found.append(as_read(message, error))
                elif message.topic() is not None:
                    if not found:
                        self._fail(kafka_client.failure(error))
                    self._disconnect()  # what came after the error is taken from it: the next one begins here
                    break
            if found:
                self._offset = found[-1].next_offset
            return found

    def close(self) -> None:
        """Disconnect. Idempotent."""
        with self._using:
            self._closed = True
            self._disconnect()

    def _disconnect(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open(self) -> Consumer:
        try:
            consumer = self._open_consumer()
        except (kafka_client.KafkaClientError, OSError) as error:
            raise CoordinatorLogError(f"{_name(self._place)} cannot be read: {error}") from error
        consumer.assign([TopicPartition(*self._place, self._offset)])
        return consumer

    def _fail(self, problem: kafka_client.KafkaClientError) -> None:
        if problem.has_lost_records:
            raise LogOffsetPrunedError(
                f"{_name(self._place)} does not have what lies behind offset {self._offset}: {problem}"
            )
        raise CoordinatorLogError(f"{_name(self._place)} cannot be read: {problem}")


def _name(place: Place) -> str:
    return "-".join(map(str, place))

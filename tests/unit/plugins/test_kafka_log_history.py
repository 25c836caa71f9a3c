"""Reading what lies before the tail of `coordinator_log=kafka`, without a Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, TopicPartition

from diskless_kafka.log_history import LogHistory

PLACE = ("__diskless_metadata", 0)


class Message:
    """What a consumer hands over: a message, or an error of the partition."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset = offset
        self._error = error

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return PLACE[0]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b"%d" % self._offset


class FailsOnce:
    """Consumers of a partition of 5 messages. The first one has an error, which passes, before one of them."""

    def __init__(self, before: int) -> None:
        self._before: int | None = before
        self.opened = 0

    def open(self) -> Consumer:
        self.opened += 1
        return cast("Consumer", self)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        [partition] = partitions
        self._queued = [Message(offset) for offset in range(partition.offset, 5)]
        if self._before is not None:
            self._queued.insert(self._before, Message(-1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
            self._before = None

    def poll(self, timeout_s: float) -> Any:
        return self._queued.pop(0) if self._queued else None

    def consume(self, count: int, timeout_s: float) -> Sequence[Any]:
        found, self._queued = self._queued[:count], self._queued[count:]
        return found

    def close(self) -> None:
        pass


def test_messages_that_come_after_an_error_are_read_again_and_none_is_skipped() -> None:
    consumers = FailsOnce(before=2)
    history = LogHistory(consumers.open, PLACE, 0)
    found = [message.offset for _ in range(3) for message in history.read()]
    assert found == [0, 1, 2, 3, 4]
    assert consumers.opened == 2
    history.close()

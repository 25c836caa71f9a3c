"""The thread that reads what is appended to any shard, by any node, and hands it to the event loop in batches.

It has one consumer for all shards. What a consumer gets is below the high watermark.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from diskless_core.plugin import kafka_client
from diskless_core.plugin.kafka_client import KafkaClientError

_POLL_S = 0.05
_BATCH = 2_000

Place = tuple[str, int]
"""A topic, and the number of a partition."""

logger = logging.getLogger(__name__)


class ReadMessage(NamedTuple):
    """A message, or, where `value` is None, the news that nothing is to be read below `next_offset`."""

    offset: int
    next_offset: int
    key: bytes | None
    value: bytes | None


Delivery = Callable[[Mapping[Place, Sequence[ReadMessage]], Mapping[Place, KafkaClientError]], None]
"""Takes what was read and what failed, on the event loop."""


class LogReader:
    """Follows the ends of partitions.

    Args:
        open_consumer: makes a consumer as `kafka_client.open_consumer` does, with `enable.partition.eof`.
        deliver: called on the event loop.
    """

    def __init__(self, open_consumer: Callable[[], Consumer], deliver: Delivery) -> None:
        self._open_consumer = open_consumer
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._taken = threading.Semaphore(1)
        self._stopping = threading.Event()
        self._opened: Future[None] = Future()
        self._wanted: SimpleQueue[tuple[Place, int | None, Future[None]]] = SimpleQueue()
        self._asking = threading.Lock()
        self._followed: set[Place] = set()
        self._thread = threading.Thread(target=self._run, name="coordinator-log-reader", daemon=True)

    def start(self) -> Future[None]:
        """Begin. The future is done when the consumer is there, or has the reason why there is none."""
        self._thread.start()
        return self._opened

    def stop(self) -> None:
        """Read no more. Blocks until the consumer is closed. Idempotent."""
        with self._asking:  # what was asked for by now is answered
            self._stopping.set()
        self._thread.join()

    def follow(self, place: Place, offset: int, begin: Callable[[], None]) -> Future[None]:
        """Read a partition from an offset on, instead of whatever was read of it before.

        Args:
            begin: called on the event loop between the last delivery of what was read before and the first of what is
                read from `offset` on; not at all, if the partition cannot be followed.
        """
        followed: Future[None] = Future()
        # before the thread knows of it, which may deliver at once
        followed.add_done_callback(lambda done: self._begin(done, begin))
        with self._asking:
            if self._stopping.is_set():
                followed.set_exception(_closed())
            else:
                self._wanted.put((place, offset, followed))
        return followed

    def unfollow(self, place: Place) -> None:
        """Read no more of a partition, which may be followed again. What was read already may still be delivered."""
        with self._asking:
            if not self._stopping.is_set():
                self._wanted.put((place, None, Future()))

    def _begin(self, followed: Future[None], begin: Callable[[], None]) -> None:
        if not followed.cancelled() and followed.exception() is None:
            with suppress(RuntimeError):  # the loop may have ended
                self._loop.call_soon_threadsafe(begin)

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
            while not self._stopping.is_set():
                self._assign_wanted(consumer)
                first = consumer.poll(_POLL_S)
                if first is not None:
                    self._hand_over([first, *consumer.consume(_BATCH, 0)])
        with suppress(Empty):
            while True:
                *_, followed = self._wanted.get_nowait()
                if followed.set_running_or_notify_cancel():
                    followed.set_exception(_closed())

    def _assign_wanted(self, consumer: Consumer) -> None:
        with suppress(Empty):
            while True:
                place, offset, followed = self._wanted.get_nowait()
                if not followed.set_running_or_notify_cancel():
                    continue
                try:
                    with kafka_client.errors():
                        if place in self._followed:
                            consumer.incremental_unassign([TopicPartition(*place)])
                            self._followed.remove(place)
                        if offset is not None:
                            consumer.incremental_assign([TopicPartition(*place, offset)])
                            self._followed.add(place)
                except KafkaClientError as error:
                    followed.set_exception(error)
                else:
                    followed.set_result(None)

    def _hand_over(self, messages: Sequence[Message]) -> None:
        """Give the loop what was read. It gets no more before it has taken what came before."""
        read = defaultdict[Place, list[ReadMessage]](list)
        failed = dict[Place, KafkaClientError]()
        for message in messages:
            error = message.error()
            place = cast("str", message.topic()), cast("int", message.partition())
            if error is None or error.code() == kafka_client.END_OF_PARTITION:
                read[place].append(as_read(message, error))
            elif message.topic() is not None:
                failed[place] = kafka_client.failure(error)
            else:  # of a connection, which comes back
                logger.debug("The coordinator log is not read at the moment: %s", kafka_client.error_text(error))
        while not self._taken.acquire(timeout=_POLL_S):
            if self._stopping.is_set():
                return
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, read, failed)

    def _take(self, read: Mapping[Place, Sequence[ReadMessage]], failed: Mapping[Place, KafkaClientError]) -> None:
        try:
            self._deliver(read, failed)
        finally:
            self._taken.release()


def as_read(message: Message, error: KafkaError | None) -> ReadMessage:
    """A message, or the end of a partition."""
    offset = cast("int", message.offset())
    if error is not None:
        return ReadMessage(offset, offset, None, None)
    return ReadMessage(offset, offset + 1, message.key(), message.value() or b"")


def _closed() -> KafkaClientError:
    return KafkaClientError("the reader is stopped", code=kafka_client.CLOSED, retriable=False)

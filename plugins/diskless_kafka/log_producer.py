"""Appending to the coordinator log: what was produced counts once the node's own reader has read it.

A delivery report says nothing about an append that failed: a message that timed out may land later. So reports only
tell early that something went wrong. Each shard has a producer of its own, which a failed append ends: what it still
had queued never lands, and other shards do not notice.

librdkafka packs messages that are queued together into record batches. A Kafka refuses a batch that is too large as a
whole, and may still take the batches that follow it. So only a message that was produced alone is certainly refused:
large ones are, and what follows a part of an append is produced once that part was read back.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from confluent_kafka import KafkaError, Message

from diskless_core.plugin import kafka_client
from diskless_core.plugin.coordinator_log import CoordinatorLogError, EntryRefusedError
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_kafka.log_reader import Place

_INSTANCE_BYTES = 16
_NUMBER_BYTES = 8
_FRAME_BYTES = 64
"""More than a message takes in a record batch beside its value."""
_PART_BYTES = 1_000_000
"""How much is produced at once at the most: as much as librdkafka would pack into one record batch."""
_POLL_S = 0.02
_SPARE_AGAIN_ROUNDS = 100
"""How often the producers are served until a spare one is tried again that could not be opened."""

_log = structlog.get_logger(__name__)

DeliveryReport = Callable[[KafkaError | None, Message], None]


class PartTooLargeError(CoordinatorLogError):
    """Kafka refused some of several batches for their size, and it is not known which ones are too large."""


class PooledProducer:
    """A producer of one shard, or a spare one of none yet.

    Attributes:
        on_error: called on the pool's thread with what was not, or not knowingly, written.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.on_error: DeliveryReport = _ignore
        # what was written is known when it is read
        told = {"on_delivery": lambda *report: self.on_error(*report), "delivery.report.only.error": True}
        self.client = kafka_client.open_producer({**options, **told})


class ProducerPool:
    """The thread that serves the producers of all shards: it lets go of what was delivered, and hears of errors.

    It has a spare one. librdkafka takes half a second until a new producer has the id that makes it idempotent, and a
    shard that needs one has just lost its leader.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._producers: list[PooledProducer] = []
        self._spare: PooledProducer | None = None
        self._serving = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="coordinator-log-producers", daemon=True)

    def start(self) -> None:
        """Open the spare one, and serve all. Blocks; errors as `kafka_client.open_producer`."""
        self._spare = PooledProducer(self._options)
        self._thread.start()

    def stop(self) -> None:
        """Close all producers; what they have not written fails. Blocks. Idempotent."""
        with self._serving:
            self._stopping.set()
            remaining = [*self._producers, *([self._spare] if self._spare is not None else [])]
            self._producers, self._spare = [], None
        if self._thread.is_alive():
            self._thread.join()
        for producer in remaining:
            kafka_client.close_producer(producer.client, 0)

    def take(self, on_error: DeliveryReport) -> PooledProducer:
        """A producer for one shard. Blocks; errors as `kafka_client.open_producer`."""
        with self._serving:
            if self._stopping.is_set():
                raise KafkaClientError("the producers are closed", code=kafka_client.CLOSED, retriable=False)
            producer, self._spare = self._spare or PooledProducer(self._options), None
            producer.on_error = on_error
            self._producers.append(producer)
        return producer

    def close(self, producer: PooledProducer) -> None:
        """Close a producer; what it has not sent is never sent. Blocks. Idempotent."""
        with self._serving:
            if producer not in self._producers:
                return
            self._producers.remove(producer)
        kafka_client.close_producer(producer.client, 0)

    def _run(self) -> None:
        rounds_to_wait = 0
        while not self._stopping.wait(_POLL_S):
            rounds_to_wait -= 1
            with self._serving:
                if self._spare is None and rounds_to_wait <= 0 and not self._stopping.is_set():
                    try:
                        self._spare = PooledProducer(self._options)
                    except (KafkaClientError, OSError) as error:  # a file of the settings cannot be read
                        rounds_to_wait = _SPARE_AGAIN_ROUNDS
                        _log.warning("the coordinator log has no spare producer; it is tried again", error=str(error))
                for producer in (*self._producers, self._spare):
                    if producer is not None:
                        producer.client.poll(0)


def is_entry_key(key: bytes | None) -> bool:
    """Whether a message's key is like those that coordinator logs give to theirs: it is an entry then."""
    return key is not None and len(key) == _INSTANCE_BYTES + _NUMBER_BYTES


def _ignore(error: KafkaError | None, message: Message) -> None:
    """A spare producer has produced nothing."""


@dataclass(slots=True, eq=False)
class _Append:
    """A part of a call: which offsets its messages have been read back at so far.

    Attributes:
        numbers: those of its messages.
        position: of its first batch among those of the call.
    """

    numbers: range
    position: int
    done: asyncio.Future[list[int]]
    offsets: list[int] = field(default_factory=list)


class ShardProducer:
    """Appends to one partition. All methods run on the event loop.

    Args:
        instance: tells the messages of this log instance from all others.
        open_producer: makes one which calls a function with what it did not deliver.
        close_producer: closes one in the background, and drops what it has not sent.
    """

    def __init__(
        self,
        place: Place,
        instance: uuid.UUID,
        open_producer: Callable[[DeliveryReport], Awaitable[PooledProducer]],
        close_producer: Callable[[PooledProducer], None],
    ) -> None:
        self._topic, self._partition = place
        self._instance = instance.bytes
        self._open_producer = open_producer
        self._close_producer = close_producer
        self._loop = asyncio.get_running_loop()
        self._opening = asyncio.Lock()
        self._producer: PooledProducer | None = None
        self._next_number = 0
        self._waiting: dict[int, _Append] = {}

    async def append(self, batches: Sequence[bytes], max_entry_bytes: int) -> list[int]:
        """Produce one message for each batch, and return their offsets once all were read back, however long it takes.

        Args:
            max_entry_bytes: the largest batch that the topic is thought to take.

        Raises:
            EntryRefusedError: Kafka has refused a batch for its size. Those before it were appended, and none behind it
                was produced.
            PartTooLargeError: Kafka has refused something for its size, and what is not certain.
            CoordinatorLogError: some batch was not, or not knowingly, appended.
        """
        producer = await self._open()
        offsets = list[int]()
        for part in in_parts(batches, min(max_entry_bytes, _PART_BYTES)):
            if self._producer is not producer:
                raise CoordinatorLogError(f"{self} failed between two parts of an append")
            offsets += await self._produce(producer, part, len(offsets)).done
        return offsets

    def read_back(self, offset: int, key: bytes | None) -> None:
        """Take note of a message that was read, if it is of this instance."""
        if not self._waiting or key is None or not key.startswith(self._instance):
            return
        number = int.from_bytes(key[len(self._instance) :], "big")
        append = self._waiting.pop(number, None)
        if append is None:
            return
        append.offsets.append(offset)
        if len(append.offsets) == len(append.numbers) and not append.done.done():
            append.done.set_result(append.offsets)

    def fail(self, error: CoordinatorLogError) -> None:
        """Appends under way fail, and what is still queued of them is never sent."""
        waiting, self._waiting = self._waiting, {}
        for append in waiting.values():
            if not append.done.done():
                append.done.set_exception(error)
        producer, self._producer = self._producer, None
        if producer is not None:
            self._close_producer(producer)

    async def _open(self) -> PooledProducer:
        async with self._opening:
            if self._producer is None:
                try:
                    self._producer = await self._open_producer(self._delivered)
                except (KafkaClientError, OSError) as error:
                    raise CoordinatorLogError(f"{self} has no producer: {error}") from error
            return self._producer

    def _produce(self, producer: PooledProducer, batches: Sequence[bytes], position: int) -> _Append:
        first = self._next_number
        self._next_number += len(batches)
        numbers = range(first, self._next_number)
        append = _Append(numbers, position, self._loop.create_future())
        append.done.add_done_callback(_note_outcome)
        self._waiting.update(dict.fromkeys(numbers, append))
        try:
            with kafka_client.errors():
                for number, batch in zip(numbers, batches, strict=True):
                    key = self._instance + number.to_bytes(_NUMBER_BYTES, "big")
                    producer.client.produce(self._topic, batch, key=key, partition=self._partition)
        except KafkaClientError as error:
            problem = CoordinatorLogError(f"{self} takes no append: {error}")
            self.fail(problem)
            raise problem from error
        return append

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        """On the thread of the pool: a message was not, or not knowingly, written."""
        if error is not None:
            with suppress(RuntimeError):  # the loop may have ended
                self._loop.call_soon_threadsafe(self._refused, kafka_client.failure(error), message.key() or b"")

    def _refused(self, error: KafkaClientError, key: bytes) -> None:
        append = self._waiting.get(int.from_bytes(key[len(self._instance) :], "big"))
        if append is None:
            return
        text = f"{self} does not take an append: {error}"
        if error.code == KafkaError.MSG_SIZE_TOO_LARGE and not append.done.done():
            is_certain = len(append.numbers) == 1
            append.done.set_exception(
                EntryRefusedError(text, position=append.position) if is_certain else PartTooLargeError(text)
            )
        self.fail(CoordinatorLogError(text))

    def __str__(self) -> str:
        return f"{self._topic}-{self._partition}"


def in_parts(batches: Sequence[bytes], part_bytes: int) -> Iterator[Sequence[bytes]]:
    """Divide batches, in order, into parts that fit into so many bytes as messages; one that does not fit is alone."""
    first, size_bytes = 0, 0
    for position, batch in enumerate(batches):
        message_bytes = len(batch) + _FRAME_BYTES
        if position > first and size_bytes + message_bytes > part_bytes:
            yield batches[first:position]
            first, size_bytes = position, 0
        size_bytes += message_bytes
    if first < len(batches):
        yield batches[first:]


def _note_outcome(done: asyncio.Future[list[int]]) -> None:
    """Its caller may have been cancelled."""
    if not done.cancelled():
        done.exception()

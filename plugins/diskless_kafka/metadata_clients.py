"""The clients of the metadata topic, for a program on an event loop.

Two threads own them: one the admin client and the producer, one the consumer. A thread opens its clients, serves their
callbacks, and closes them at its end, which comes after `close` began, whatever becomes of the tasks that wait for it.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec
from pydantic import SecretStr
from tenacity import AsyncRetrying

from diskless_core.plugin import kafka_client
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_kafka import metadata_topic
from diskless_kafka.config import RemoteLogMetadataSettings
from diskless_kafka.metadata_reader import CLUSTER_ID_HEADER, Delivery, MetadataReader
from diskless_kafka.metadata_topic import Bounds, TopicMismatchError

_POLL_S = 0.1
_CLOSE_S = 5.0
_CLOSED = "the clients of the metadata topic are closed"


class MetadataClients:
    """An admin client, a producer and a reader of the metadata topic.

    All methods run on one event loop, and raise RemoteLogMetadataError, with what Apache Kafka said.
    """

    def __init__(self, context: PluginContext, settings: RemoteLogMetadataSettings) -> None:
        self._settings = settings
        self._node_id = context.node_id
        self._closing = threading.Event()
        self._closed: asyncio.Future[None] | None = None
        self._thread: threading.Thread | None = None
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None
        self._needs_producer = False
        self._reader: MetadataReader | None = None

    async def open(self) -> uuid.UUID:
        """Connect, and see that the topic is there and as it has to be. Returns the topic's id.

        An error is retriable where no broker was reached, or one is not ready, and not where something is refused.
        """
        self._closed = asyncio.get_running_loop().create_future()
        opened: Future[uuid.UUID] = Future()
        self._thread = threading.Thread(target=self._serve, args=(opened,), name=self._settings.topic_name, daemon=True)
        self._thread.start()
        try:
            return await asyncio.wrap_future(opened)
        except KafkaClientError as error:
            raise _no_answer(error) from error
        except (TopicMismatchError, OSError) as error:
            raise RemoteLogMetadataError(str(error), retriable=False) from error

    async def bounds(self) -> Mapping[int, Bounds]:
        """Where the partitions of the topic begin and end now."""
        numbers = range(self._settings.topic_num_partitions)
        starts, ends = await asyncio.gather(
            self._offsets(numbers, OffsetSpec.earliest()), self._offsets(numbers, OffsetSpec.latest())
        )
        return {number: Bounds(starts[number], ends[number]) for number in numbers}

    async def end(self, partition: int) -> int:
        """The offset behind the last record of a partition."""
        return (await self._offsets([partition], OffsetSpec.latest()))[partition]

    async def start_reading(self, positions: Mapping[int, int], delivery: Delivery) -> None:
        """Read the topic from these offsets on."""
        self._check_open()
        options = self._options("consumer", self._settings.consumer_options)
        open_consumer = partial(kafka_client.open_consumer, options)
        self._reader = MetadataReader(open_consumer, self._settings.topic_name, positions, delivery, self._closing)
        try:
            await asyncio.wrap_future(self._reader.start())
        except KafkaClientError as error:
            raise _no_answer(error) from error
        except OSError as error:
            raise RemoteLogMetadataError(str(error), retriable=False) from error

    async def stop_reading(self) -> None:
        """Read no more. The loop has to run on meanwhile, for what the reader has to deliver. Idempotent."""
        if self._reader is not None:
            await asyncio.to_thread(self._reader.stop)

    async def write(self, partition: int, value: bytes, cluster_id: str) -> int:
        """Append a record, and return its offset once it has all the replicas that it needs."""
        self._check_open()
        producer = self._producer
        if producer is None:
            raise RemoteLogMetadataError("the producer has failed for good: another is being made")
        loop = asyncio.get_running_loop()
        written: asyncio.Future[int] = loop.create_future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            with suppress(RuntimeError):  # the loop may have ended
                loop.call_soon_threadsafe(_settle, written, error, message.offset())

        try:
            with kafka_client.errors():
                producer.produce(
                    self._settings.topic_name,
                    value,
                    partition=partition,
                    headers=[(CLUSTER_ID_HEADER, cluster_id.encode())],
                    on_delivery=delivered,
                )
                return await written
        except KafkaClientError as error:
            if error.is_fatal and self._producer is producer:
                self._producer, self._needs_producer = None, True
            raise _no_answer(error) from error

    async def close(self) -> None:
        """Disconnect. Writes under way succeed or fail. Idempotent."""
        self._closing.set()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        await self.stop_reading()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _serve(self, opened: Future[uuid.UUID]) -> None:
        """The life of the admin client and of producers, on their thread."""
        if not opened.set_running_or_notify_cancel():
            return
        with ExitStack() as clients:
            try:
                admin = self._open_admin()
                clients.callback(kafka_client.close_admin, admin)
                topic_id = metadata_topic.ensure_topic(admin, self._settings, self._closing)
                producer = self._open_producer()
                clients.callback(lambda: kafka_client.close_producer(producer, _CLOSE_S))
            except BaseException as error:
                opened.set_exception(error)
                return
            self._admin, self._producer = admin, producer
            opened.set_result(topic_id)
            while not self._closing.is_set():
                producer.poll(_POLL_S)
                admin.poll(0)
                if self._needs_producer:
                    self._needs_producer = False
                    broken, producer = producer, self._open_producer()
                    kafka_client.close_producer(broken, 0)
                    self._producer = producer

    def _open_admin(self) -> AdminClient:
        options = self._options("admin", self._settings.admin_options)
        timeout_s = self._settings.initialization_attempt_timeout_ms / 1000
        return kafka_client.open_admin(options, timeout_s, self._closing)

    def _open_producer(self) -> Producer:
        return kafka_client.open_producer(self._options("producer", self._settings.producer_options))

    async def _offsets(self, numbers: Iterable[int], position: OffsetSpec) -> dict[int, int]:
        partitions = [TopicPartition(self._settings.topic_name, number) for number in numbers]
        try:
            return await AsyncRetrying(**kafka_client.LEADERS_CHANGE)(self._listed, partitions, position)
        except KafkaClientError as error:
            raise _no_answer(error) from error

    async def _listed(self, partitions: Iterable[TopicPartition], position: OffsetSpec) -> dict[int, int]:
        admin, closed = self._admin, self._closed
        if admin is None or closed is None or closed.done():
            raise RemoteLogMetadataError(_CLOSED)
        asked = admin.list_offsets(dict.fromkeys(partitions, position))
        answers: asyncio.Future[list[ListOffsetsResultInfo]] = asyncio.gather(*map(asyncio.wrap_future, asked.values()))
        answers.add_done_callback(_note_outcome)
        # an answer that nobody waits for any more may come, or never
        await asyncio.wait((answers, closed), return_when=asyncio.FIRST_COMPLETED)
        if not answers.done():
            raise RemoteLogMetadataError(_CLOSED)
        with kafka_client.errors():
            found = answers.result()
        return {one.partition: answer.offset for one, answer in zip(asked, found, strict=True)}

    def _options(self, kind: str, further: SecretStr) -> dict[str, Any]:
        client_id = f"__remote_log_metadata_client_{self._node_id}_{kind}"
        return {**self._settings.client_options(further), "client.id": client_id}

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise RemoteLogMetadataError(_CLOSED)


def _settle(written: asyncio.Future[int], error: KafkaError | None, offset: int | None) -> None:
    if written.done():
        return
    if error is not None:
        written.set_exception(KafkaException(error))
    elif offset is not None:
        written.set_result(offset)


def _note_outcome(answers: asyncio.Future[Any]) -> None:
    if not answers.cancelled():
        answers.exception()


def _no_answer(error: KafkaClientError) -> RemoteLogMetadataError:
    return RemoteLogMetadataError(f"the Apache Kafka of the remote segments: {error}", retriable=error.retriable)

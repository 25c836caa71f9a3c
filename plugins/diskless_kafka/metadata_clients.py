"""The clients of the metadata topic, for a program on an event loop: what blocks is done on threads."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from kafka.errors import KafkaError
from pydantic import SecretStr

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_kafka import clients, metadata_topic
from diskless_kafka.config import RemoteLogMetadataSettings
from diskless_kafka.metadata_reader import CLUSTER_ID_HEADER, Delivery, MetadataReader
from diskless_kafka.metadata_topic import Bounds, TopicMismatchError

T = TypeVar("T")

_THREADS = 4
_BOOTSTRAP_MS = 5_000
_CLOSE_S = 5.0


class MetadataClients:
    """An admin client, a producer and a reader of the metadata topic.

    All methods raise RemoteLogMetadataError, with what Apache Kafka said.
    """

    def __init__(self, context: PluginContext, settings: RemoteLogMetadataSettings) -> None:
        self._settings = settings
        self._node_id = context.node_id
        self._pool = ThreadPoolExecutor(_THREADS, settings.topic_name)
        self._admin: Any = None
        self._producer: Any = None
        self._reader: MetadataReader | None = None

    async def open(self) -> uuid.UUID:
        """Connect, and see that the topic is there and as it has to be. Returns the topic's id.

        An error is retriable where no broker was reached, or one is not ready, and not where something is refused.
        """
        try:
            return await self._asked(self._connect)
        except (TopicMismatchError, OSError, ValueError) as error:
            raise RemoteLogMetadataError(str(error), retriable=False) from error

    async def bounds(self) -> Mapping[int, Bounds]:
        """Where the partitions of the topic begin and end now."""
        return await self._asked(partial(metadata_topic.bounds, self._admin, self._settings))

    async def end(self, partition: int) -> int:
        """The offset behind the last record of a partition."""
        return await self._asked(partial(metadata_topic.end, self._admin, self._settings, partition))

    async def start_reading(self, positions: Mapping[int, int], delivery: Delivery) -> None:
        """Read the topic from these offsets on."""
        options = self._options("consumer", self._settings.consumer_options)
        consumer = await self._asked(partial(clients.open_consumer, options))
        self._reader = MetadataReader(consumer, self._settings.topic_name, positions, delivery)
        self._reader.start()

    async def stop_reading(self) -> None:
        """Read no more. The loop has to run on meanwhile, for what the reader has to deliver. Idempotent."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await asyncio.to_thread(reader.stop)

    async def write(self, partition: int, value: bytes, cluster_id: str) -> int:
        """Append a record, and return its offset once it has all the replicas that it needs."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[int] = loop.create_future()

        def done(offset: int | None, error: BaseException | None) -> None:
            if written.done():
                return
            if error is not None:
                written.set_exception(error)
            elif offset is not None:
                written.set_result(offset)

        def send() -> None:
            sent = self._producer.send(
                self._settings.topic_name,
                value=value,
                partition=partition,
                headers=[(CLUSTER_ID_HEADER, cluster_id.encode())],
            )
            sent.add_callback(lambda metadata: loop.call_soon_threadsafe(done, metadata.offset, None))
            sent.add_errback(lambda error: loop.call_soon_threadsafe(done, None, error))

        await self._asked(send)
        try:
            return await written
        except KafkaError as error:
            raise _no_answer(error) from error

    async def close(self) -> None:
        """Disconnect. Writes under way succeed or fail. Idempotent."""
        await asyncio.to_thread(self._close)

    def _connect(self) -> uuid.UUID:
        settings = self._settings
        self._admin = clients.open_admin(self._options("admin", settings.admin_options))
        topic_id = metadata_topic.ensure_topic(self._admin, settings)
        self._producer = clients.open_producer(self._options("producer", settings.producer_options))
        return topic_id

    def _close(self) -> None:
        self._pool.shutdown()
        if self._producer is not None:
            clients.close_producer(self._producer, _CLOSE_S)
        if self._admin is not None:
            self._admin.close()
        self._producer = self._admin = None

    def _options(self, kind: str, further: SecretStr) -> dict[str, Any]:
        client_id = f"__remote_log_metadata_client_{self._node_id}_{kind}"
        return {
            "bootstrap_timeout_ms": _BOOTSTRAP_MS,
            **self._settings.client_options(further),
            "client_id": client_id,
        }

    async def _asked(self, call: Callable[[], T]) -> T:
        try:
            return await self._on_thread(call)
        except KafkaError as error:
            raise _no_answer(error) from error

    async def _on_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def _no_answer(error: KafkaError) -> RemoteLogMetadataError:
    return RemoteLogMetadataError(f"the Apache Kafka of the remote segments: {error}", retriable=error.retriable)

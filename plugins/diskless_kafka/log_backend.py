"""What all shards of the coordinator log share: the clients of its Apache Kafka, and the threads that they block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from diskless_core.plugin import kafka_client
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LeadershipHint
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_core.plugin.shard import ShardId
from diskless_kafka.log_config import KafkaLogSettings
from diskless_kafka.log_history import LogHistory
from diskless_kafka.log_producer import DeliveryReport, PooledProducer, ProducerPool
from diskless_kafka.log_reader import Delivery, LogReader, Place, ReadMessage
from diskless_kafka.log_topics import LogTopics, topic_name
from diskless_kafka.nominations import Nomination, OnCommit
from diskless_kafka.topic_ids import TopicIds

_THREADS = 4
_HISTORY_THREADS = 4
_HEARTBEAT_MS = 500


class LogBackend:
    """Runs on the event loop.

    Attributes:
        stopped: once it is set, readers end.
        writes: whether there may be producers and nominations; without, nothing is created either.
    """

    def __init__(self, node_id: int, settings: KafkaLogSettings, ids: TopicIds, *, writes: bool) -> None:
        self.settings = settings
        self.stopped = asyncio.Event()
        self.writes = writes
        self.topics: LogTopics
        self.reader: LogReader
        self._node_id = node_id
        self._ids = ids
        self._closing = threading.Event()
        self._producers = ProducerPool(self._producer_options())
        self._threads = ThreadPoolExecutor(_THREADS, "coordinator-log")
        self._history_threads = ThreadPoolExecutor(_HISTORY_THREADS, "coordinator-log-history")
        self._admin: AdminClient | None = None
        self._reader: LogReader | None = None
        self._histories: set[LogHistory] = set()

    async def open(self, deliver: Delivery) -> None:
        """Connect, and check the topics that are there.

        Raises:
            CoordinatorLogError: no broker was reached in time, or something is not as it has to be.
        """
        try:
            self._admin = await self.run(self._open_admin)
            self.topics = LogTopics(self._admin, self.settings, self._ids, self._closing, creates=self.writes)
            await self.run(self._ids.load)
            await self.run(self.topics.check_all)
            self._reader = self.reader = LogReader(self._open_consumer, deliver)
            await asyncio.wrap_future(self._reader.start())
            if self.writes:
                await self.run(self._producers.start)
        except (KafkaClientError, OSError) as error:
            servers = ",".join(self.settings.bootstrap_servers)
            raise CoordinatorLogError(f"the Apache Kafka of the coordinator log, {servers}: {error}") from error

    async def close(self) -> None:
        """Disconnect. Idempotent."""
        self.stopped.set()
        self._closing.set()
        await asyncio.to_thread(self._close)

    def run(self, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call what blocks, on a thread.

        Raises:
            CoordinatorLogError: the log was stopped meanwhile.
        """
        return self._on(self._threads, call, *arguments)

    def read_history(self, history: LogHistory) -> asyncio.Future[Sequence[ReadMessage]]:
        """Read on, on one of the threads for that."""
        return self._on(self._history_threads, history.read)

    def history(self, place: Place, offset: int) -> LogHistory:
        """What lies before the tail of a partition, for one reader."""
        history = LogHistory(self._open_consumer, place, offset)
        self._histories.add(history)
        return history

    def give_up(self, history: LogHistory) -> None:
        """Close it in the background."""
        if not self._closing.is_set():
            self._histories.discard(history)
            self._on(self._history_threads, history.close)

    def open_producer(self, on_error: DeliveryReport) -> asyncio.Future[PooledProducer]:
        """A producer for one shard, which tells of what it could not deliver."""
        return self.run(self._producers.take, on_error)

    def close_producer(self, producer: PooledProducer) -> None:
        """Close it in the background. What it has not sent is never sent."""
        if not self._closing.is_set():
            self.run(self._producers.close, producer)

    def nomination(self, shard: ShardId, node_id: int, tell: Callable[[LeadershipHint], None]) -> Nomination:
        """The part of this node in nominating the leader of a shard, not started."""
        place = topic_name(shard, self.settings.topic_prefix), shard.index
        return Nomination(
            lambda: self.topics.ensure(shard), lambda told: self._open_member(place, told), place, node_id, tell
        )

    def _on(self, threads: ThreadPoolExecutor, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        try:
            return asyncio.get_running_loop().run_in_executor(threads, call, *arguments)
        except RuntimeError as error:
            raise CoordinatorLogError("the coordinator log is stopped") from error

    def _open_member(self, place: Place, on_commit: OnCommit) -> Consumer:
        """A member of the group that nominates for a shard. Blocks."""
        settings = self.settings
        options = settings.options(
            self._node_id,
            settings.consumer_options,
            session_timeout_ms=settings.session_timeout_ms,
            # by its heartbeat a member hears that another one has left
            heartbeat_interval_ms=min(_HEARTBEAT_MS, settings.session_timeout_ms // 4),
            # partitions that are added have to be known to whichever member divides them
            topic_metadata_refresh_interval_ms=5_000,
        )
        return kafka_client.open_member({**options, "on_commit": on_commit}, "-".join(map(str, place)))

    def _open_admin(self) -> AdminClient:
        settings = self.settings
        options = settings.options(self._node_id, settings.admin_options, socket_timeout_ms=10_000)
        return kafka_client.open_admin(options, settings.initialization_timeout_ms / 1000, self._closing)

    def _producer_options(self) -> dict[str, Any]:
        settings = self.settings
        return settings.options(
            self._node_id,
            settings.producer_options,
            message_max_bytes=settings.topic_max_message_bytes,
            delivery_timeout_ms=settings.append_timeout_ms,
            queue_buffering_max_messages=1_000_000,
            retry_backoff_ms=20,
        )

    def _open_consumer(self) -> Consumer:
        settings = self.settings
        return kafka_client.open_consumer(
            settings.options(
                self._node_id,
                settings.consumer_options,
                enable_partition_eof=True,
                fetch_wait_max_ms=100,
                fetch_error_backoff_ms=50,
            )
        )

    def _close(self) -> None:
        self._producers.stop()
        if self._reader is not None:
            self._reader.stop()
        self._history_threads.shutdown()
        for history in self._histories:
            history.close()
        self._threads.shutdown()
        if self._admin is not None:
            kafka_client.close_admin(self._admin)
            self._admin = None

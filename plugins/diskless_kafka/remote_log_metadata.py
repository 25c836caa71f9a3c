"""Metadata of remote segments in the topic `__remote_log_metadata` of an Apache Kafka, as its own brokers keep it.

(KIP-405, "RemoteLogMetadataManager implemented with an internal topic".) Each node reads all of the topic. A change is
checked, written, and done when it was read back. Other clusters may use the same topic: a header says which Diskless
cluster wrote a record, so that each deletes the segments of its own partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_log_metadata import (
    RemoteLogMetadata,
    RemoteLogMetadataError,
    RemoteLogMetadataServices,
)
from diskless_core.plugin.retrying import Backoff
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from diskless_kafka.config import RemoteLogMetadataSettings
from diskless_kafka.metadata_session import MetadataSession

MAX_PAUSE_MS = 10_000
"""How long at most is waited, before jitter, until the Apache Kafka is tried again."""

_NOT_STARTED = "the metadata of remote segments is not started, or stopped"

logger = logging.getLogger(__name__)


class KafkaRemoteLogMetadata(RemoteLogMetadata):
    """The metadata topic as seen by one node.

    `start` does not wait for an Apache Kafka that is away: until it is there, every call is a retriable error.
    """

    def __init__(self, context: PluginContext, settings: RemoteLogMetadataSettings) -> None:
        self._context = context
        self._settings = settings
        self._session: MetadataSession | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._why_not = _NOT_STARTED

    async def start(self, services: RemoteLogMetadataServices) -> None:
        try:
            self._session = await self._connected(services)
        except RemoteLogMetadataError as error:
            if not error.retriable:
                raise
            self._note_absence(error)
            self._connecting = asyncio.create_task(self._connect_later(services))

    async def stop(self) -> None:
        if self._connecting is not None:
            connecting, self._connecting = self._connecting, None
            connecting.cancel()
            with suppress(asyncio.CancelledError):
                await connecting
        self._why_not = _NOT_STARTED
        if self._session is not None:
            session, self._session = self._session, None
            await session.stop()

    async def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._running().note(metadata)

    async def update(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        await self._running().note(update)

    async def update_partition(self, update: RemotePartitionDeleteMetadata) -> None:
        await self._running().note(update)

    async def find(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return self._running().log(partition).find(leader_epoch, offset)

    async def highest_offset(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        return self._running().log(partition).highest_offset(leader_epoch)

    async def list(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        return self._running().log(partition).segments(leader_epoch)

    async def deleting_partitions(self) -> Sequence[RemotePartitionDeleteMetadata]:
        return self._running().deletions()

    def _running(self) -> MetadataSession:
        if self._session is None:
            raise RemoteLogMetadataError(self._why_not)
        return self._session

    async def _connect_later(self, services: RemoteLogMetadataServices) -> None:
        backoff = Backoff(first_ms=self._settings.initialization_retry_interval_ms, max_ms=MAX_PAUSE_MS)
        failures = 1
        while self._session is None:
            await asyncio.sleep(backoff.pause_s(failures, self._context.clock))
            try:
                self._session = await self._connected(services)
            except Exception as error:
                failures += 1
                self._note_absence(error)
        logger.info("The segments in %s are known now", self._settings.topic_name)

    async def _connected(self, services: RemoteLogMetadataServices) -> MetadataSession:
        session = MetadataSession(self._context, self._settings, services.cluster_id)
        try:
            await session.start()
        except RemoteLogMetadataError as error:
            await session.stop()
            where = ",".join(self._settings.bootstrap_servers)
            raise RemoteLogMetadataError(
                f"cannot use {self._settings.topic_name} of the Apache Kafka at {where}: {error}",
                retriable=error.retriable,
            ) from error
        except BaseException:
            await session.stop()
            raise
        return session

    def _note_absence(self, error: Exception) -> None:
        self._why_not = f"{error}; it is tried again"
        is_defect = not isinstance(error, RemoteLogMetadataError)
        logger.warning("Remote segments are not known yet: %s", self._why_not, exc_info=is_defect)

"""Metadata of remote segments in the topic `__remote_log_metadata` of an Apache Kafka, as its own brokers keep it.

(KIP-405, "RemoteLogMetadataManager implemented with an internal topic".) Each node reads all of the topic. A change is
checked, written, and done when it was read back. Other clusters may use the same topic: a header says which Diskless
cluster wrote a record, so that each deletes the segments of its own partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_log_metadata import (
    RemoteLogMetadata,
    RemoteLogMetadataError,
    RemoteLogMetadataServices,
)
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from diskless_kafka.config import RemoteLogMetadataSettings
from diskless_kafka.metadata_session import MetadataSession


class KafkaRemoteLogMetadata(RemoteLogMetadata):
    """The metadata topic as seen by one node."""

    def __init__(self, context: PluginContext, settings: RemoteLogMetadataSettings) -> None:
        self._context = context
        self._settings = settings
        self._session: MetadataSession | None = None

    async def start(self, services: RemoteLogMetadataServices) -> None:
        session = self._session = MetadataSession(self._context, self._settings, services.cluster_id)
        try:
            await session.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
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
            raise RemoteLogMetadataError("the metadata of remote segments is not started, or stopped")
        return self._session

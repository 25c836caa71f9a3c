"""Metadata of remote segments in the log of the Diskless coordinators, each those of its own partitions."""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_log_metadata import (
    RemoteLogLedger,
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
from diskless_tiering.config import CoordinatorMetadataSettings


class CoordinatorMetadata(RemoteLogMetadata):
    """All of it in the ledger that the broker gives; nothing is kept here."""

    def __init__(self, context: PluginContext, settings: CoordinatorMetadataSettings) -> None:
        """Make it; it needs nothing of its context."""
        del context, settings
        self._started_with: RemoteLogLedger | None = None

    async def start(self, services: RemoteLogMetadataServices) -> None:
        self._started_with = services.ledger

    async def stop(self) -> None:
        self._started_with = None

    async def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._ledger.append(metadata)

    async def update(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        await self._ledger.append(update)

    async def update_partition(self, update: RemotePartitionDeleteMetadata) -> None:
        await self._ledger.append(update)

    async def find(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return self._ledger.log(partition).find(leader_epoch, offset)

    async def highest_offset(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        return self._ledger.log(partition).highest_offset(leader_epoch)

    async def list(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        return self._ledger.log(partition).segments(leader_epoch)

    async def deleting_partitions(self) -> Sequence[RemotePartitionDeleteMetadata]:
        return self._ledger.delete_states()

    @property
    def _ledger(self) -> RemoteLogLedger:
        if self._started_with is None:
            raise RemoteLogMetadataError("the metadata of segments is not started", retriable=False)
        return self._started_with

"""Marks the partitions of a deleted topic, so that their segments are removed when nothing else is left of it.

(KIP-405, DELETE_PARTITION_MARKED.)
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import TOPICS
from diskless_core.plugin.remote_log_metadata import IllegalTransitionError, RemoteLogMetadata, RemoteLogMetadataError
from diskless_core.remote_log.metadata import (
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from diskless_core.tiering.partitions import topic_id_partition

AT_ONCE = 16
"""How many partitions are marked at once, so that the entries of a log share its writes."""


class DeletionMarks:
    """To be called where a shard is led, before it forgets a topic: `mark` is repeated until both have been done."""

    def __init__(self, metadata: RemoteLogMetadata, node_id: int, clock: Clock) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._clock = clock

    async def mark(self, shard: DisklessShard, topic_id: uuid.UUID) -> None:
        """Mark those of a topic's partitions in a shard that have segments; again, it changes nothing.

        Raises:
            CoordinatorError: some are not marked.
        """
        topic = shard.shard.state.committed(TOPICS, (topic_id.bytes,))
        if topic is None:
            return
        remaining = iter(topic.partitions)
        failures: list[CoordinatorError] = []
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(AT_ONCE, len(topic.partitions))):
                workers.create_task(self._mark_each(shard, topic_id, remaining, failures))
        if failures:
            raise failures[0]

    async def _mark_each(
        self, shard: DisklessShard, topic_id: uuid.UUID, remaining: Iterator[int], failures: list[CoordinatorError]
    ) -> None:
        for index in remaining:
            partition = topic_id_partition(shard, PartitionKey(topic_id.bytes, index))
            if partition is None:
                continue
            try:
                await self._mark(partition)
            except RemoteLogMetadataError as error:
                failure = CoordinatorError(f"the segments of {partition.name} are not marked: {error}")
                failure.__cause__ = error
                failures.append(failure)
                return

    async def _mark(self, partition: TopicIdPartition) -> None:
        if not await self._metadata.list(partition):
            return
        with suppress(IllegalTransitionError):  # its segments are being removed already
            await self._metadata.update_partition(
                RemotePartitionDeleteMetadata(
                    topic_id_partition=partition,
                    state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
                    event_timestamp_ms=self._clock.now_ms(),
                    broker_id=self._node_id,
                )
            )

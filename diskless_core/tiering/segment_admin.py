"""What an operator does with segments through `admin/`: list those that are known, and have a broker adopt others.

Segments that are adopted were made elsewhere and lie in this cluster's remote storage already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace

from diskless_core.clock import Clock
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import PartitionHead
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata
from diskless_core.protocol.errors import ErrorCode
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.tiering.topics import TieredTopics, UnknownTopicError


class AdoptionError(Exception):
    """The partition cannot have these segments; the message says why."""


class RemoteLog:
    """The segments of the topics that there are."""

    def __init__(
        self,
        metadata: RemoteLogMetadata,
        topics: TieredTopics,
        clock: Clock,
        having_all: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self._having_all = having_all
        self._metadata = metadata
        self._topics = topics
        self._clock = clock

    async def segments(self, *, topic: str | None, partition: int | None) -> Sequence[RemoteLogSegmentMetadata]:
        """Those that are not deleted, by topic, partition and start offset; of one topic, or partition number, or all.

        What another node has made a moment ago may be missing.

        Raises:
            UnknownTopicError: there is no such topic.
            RemoteLogMetadataError: who keeps that did not answer.
            CoordinatorError: this node cannot say it now.
        """
        if topic is not None and self._topics.by_name(topic) is None:
            raise UnknownTopicError(f"there is no topic {topic}")
        async with self._having_all():
            return await self._segments(topic, partition)

    async def _segments(self, topic: str | None, partition: int | None) -> Sequence[RemoteLogSegmentMetadata]:
        found: list[RemoteLogSegmentMetadata] = []
        for info in self._topics.all():
            if topic in (None, info.name):
                for index in range(info.partition_count):
                    if partition in (None, index):
                        found += await self._metadata.list(TopicIdPartition(info.topic_id, info.name, index))
        return found

    async def adopt(
        self, topic: str, partition: int, log_start_offset: int, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> None:
        """Let an empty partition have segments that lie in its remote storage; see `adopt`.

        Raises:
            AdoptionError: it cannot have them.
            CoordinatorError, RemoteLogMetadataError: no answer; it can be asked again.
        """
        info = self._topics.by_name(topic)
        if info is None:
            raise AdoptionError(f"there is no topic {topic}")
        own = TopicIdPartition(info.topic_id, topic, partition)
        shard = self._topics.replica_of(PartitionKey(info.topic_id.bytes, partition))
        if shard is None:
            raise AdoptionError(f"there is no partition {own.name}")
        if any(segment.segment_id.topic_id_partition != own for segment in segments):
            raise AdoptionError(f"the segments are not those of {own.name} with the id {info.topic_id}")
        await adopt(shard, self._metadata, self._clock, own, log_start_offset, segments)


async def adopt(
    shard: DisklessShard,
    metadata: RemoteLogMetadata,
    clock: Clock,
    partition: TopicIdPartition,
    log_start_offset: int,
    segments: Sequence[RemoteLogSegmentMetadata],
) -> None:
    """Let an empty partition have the records of segments, from `log_start_offset` on; again, it changes nothing.

    They become COPY_SEGMENT_FINISHED when the coordinator has taken them: before, a compaction would take such a copy
    for one of its own, with records that others have written meanwhile at the same offsets.

    Args:
        shard: the partition's, led by this node.
        segments: in order, each beginning where the one before ended. All of them have been copied.

    Raises:
        AdoptionError: the partition is not there or not empty, or the segments make no log.
        CoordinatorError, RemoteLogMetadataError: no answer; it can be asked again.
    """
    key = PartitionKey(partition.topic_id.bytes, partition.partition)
    tiered = tuple(map(_tiered, segments))
    await shard.barrier()
    head = shard.head(key)
    if head is None:
        raise AdoptionError(f"there is no partition {partition.name}")
    if head != PartitionHead() and shard.tiered(key) != tiered:
        raise AdoptionError(f"{partition.name} is not empty: create another topic")
    known = {one.segment_id for one in await metadata.list(partition)}
    for segment in segments:
        if segment.segment_id not in known:
            await metadata.add(replace(segment, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED))
    error = await shard.adopt(key, log_start_offset, tiered)
    if error is not ErrorCode.NONE:
        raise AdoptionError(f"the segments do not make a log that begins at {log_start_offset}: {error.name}")
    for segment in segments:
        await metadata.update(_finished(segment, clock.now_ms()))


def _finished(segment: RemoteLogSegmentMetadata, now_ms: int) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment_id=segment.segment_id,
        event_timestamp_ms=now_ms,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        broker_id=segment.broker_id,
        custom_metadata=segment.custom_metadata,
    )


def _tiered(segment: RemoteLogSegmentMetadata) -> TieredSegment:
    return TieredSegment(
        segment.segment_id.id.bytes,
        segment.start_offset,
        segment.end_offset,
        segment.segment_size_bytes,
        segment.max_timestamp_ms,
    )

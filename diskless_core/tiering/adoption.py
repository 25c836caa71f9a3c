"""Takes over segments that were made elsewhere and lie in this cluster's remote storage already."""

from __future__ import annotations

from collections.abc import Sequence
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


class AdoptionError(Exception):
    """The partition cannot have these segments; the message says why."""


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

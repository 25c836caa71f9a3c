"""What the `remote_log_metadata` contract suite works with: partitions, segments, and what becomes of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)

CLUSTER_ID = "contract-cluster"
BROKER_ID = 1
TIME_MS = 1_700_000_000_000
TIMEOUT_S = 300.0
"""How long a test waits for what has to happen."""

PARTITION = TopicIdPartition(uuid.UUID("6f0b8a1c-54c4-4b0e-9a2e-0f5d1d1c7e01"), "orders", 3)


def segment(
    copy: int,
    start_offset: int,
    end_offset: int,
    *,
    epochs: Mapping[int, int] | None = None,
    partition: TopicIdPartition = PARTITION,
    custom_metadata: bytes | None = None,
) -> RemoteLogSegmentMetadata:
    """A copy that begins. `copy` tells it from others of the same records; without `epochs`, all of it is epoch 0."""
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(partition, uuid.UUID(int=copy)),
        start_offset=start_offset,
        end_offset=end_offset,
        max_timestamp_ms=TIME_MS + end_offset,
        broker_id=BROKER_ID,
        event_timestamp_ms=TIME_MS,
        segment_size_bytes=100 * (end_offset - start_offset + 1),
        segment_leader_epochs={0: start_offset} if epochs is None else dict(epochs),
        custom_metadata=custom_metadata,
    )


def update(
    metadata: RemoteLogSegmentMetadata,
    state: RemoteLogSegmentState,
    *,
    after_ms: int = 1,
    broker_id: int = BROKER_ID,
    custom_metadata: bytes | None = None,
) -> RemoteLogSegmentMetadataUpdate:
    """The event by which a segment comes into `state`, so much later than `TIME_MS`."""
    return RemoteLogSegmentMetadataUpdate(
        segment_id=metadata.segment_id,
        event_timestamp_ms=TIME_MS + after_ms,
        state=state,
        broker_id=broker_id,
        custom_metadata=custom_metadata,
    )


def deletion(
    state: RemotePartitionDeleteState, partition: TopicIdPartition = PARTITION, *, after_ms: int = 1
) -> RemotePartitionDeleteMetadata:
    """The event by which the deletion of a partition's segments comes into `state`."""
    return RemotePartitionDeleteMetadata(
        topic_id_partition=partition, state=state, event_timestamp_ms=TIME_MS + after_ms, broker_id=BROKER_ID
    )


async def brought_to(
    metadata: RemoteLogMetadata, begun: RemoteLogSegmentMetadata, state: RemoteLogSegmentState
) -> RemoteLogSegmentMetadata:
    """Add a segment and bring it into `state` on the way by COPY_SEGMENT_FINISHED; what is then known of it."""
    await metadata.add(begun)
    known = begun
    for after_ms, step in enumerate(list(RemoteLogSegmentState)[1 : state + 1], 1):
        change = update(begun, step, after_ms=after_ms)
        await metadata.update(change)
        known = replace(known, state=step, event_timestamp_ms=change.event_timestamp_ms)
    return known


async def finished(
    metadata: RemoteLogMetadata, begun: RemoteLogSegmentMetadata, partition: TopicIdPartition, *, after_ms: int = 1
) -> None:
    """Note that `begun`, as a segment of `partition`, was copied."""
    copied = replace(begun, segment_id=begun.segment_id._replace(topic_id_partition=partition))
    await metadata.add(copied)
    await metadata.update(update(copied, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, after_ms=after_ms))


async def marked_to(
    metadata: RemoteLogMetadata, partition: TopicIdPartition, state: RemotePartitionDeleteState | None
) -> RemotePartitionDeleteMetadata | None:
    """Bring the deletion of a partition into `state`; what is then known of it."""
    known = None
    for step in RemotePartitionDeleteState:
        if state is not None and step <= state:
            known = deletion(step, partition)
            await metadata.update_partition(known)
    return None if state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED else known


async def deletion_of(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> RemotePartitionDeleteMetadata | None:
    """What is known of the deletion of a partition."""
    found = [known for known in await metadata.deleting_partitions() if known.topic_id_partition == partition]
    assert len(found) < 2
    return found[0] if found else None


async def copies_found(
    metadata: RemoteLogMetadata, partition: TopicIdPartition, leader_epoch: int, offsets: Iterable[int]
) -> list[int | None]:
    """The copy that is found at each of the offsets, None without one."""
    found = [await metadata.find(partition, leader_epoch, offset) for offset in offsets]
    return [None if one is None else one.segment_id.id.int for one in found]


async def copies_listed(
    metadata: RemoteLogMetadata, partition: TopicIdPartition, leader_epoch: int | None = None
) -> list[int]:
    """The copies that are listed, in order."""
    return [listed.segment_id.id.int for listed in await metadata.list(partition, leader_epoch)]

"""What is known of a segment in remote storage, and of a partition whose segments are being deleted. Pure.

(KIP-405, "RemoteLogMetadataManager"; field names as Apache Kafka 4 has them, which has moved on from the KIP's text.)
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from diskless_core.protocol.names import partition_name

NO_TIMESTAMP = -1


class TopicIdPartition(NamedTuple):
    """A partition, and the topic that it belongs to by id and by name."""

    topic_id: uuid.UUID
    topic: str
    partition: int

    @property
    def name(self) -> str:
        return partition_name(self.topic, self.partition)


class RemoteLogSegmentId(NamedTuple):
    """One copy of a segment: another attempt to copy the same records has another `id`."""

    topic_id_partition: TopicIdPartition
    id: uuid.UUID


class RemoteLogSegmentState(IntEnum):
    """How far a copy is; the value is what Kafka writes."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(IntEnum):
    """How far the deletion of a partition's segments is; the value is what Kafka writes."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadata:
    """A copy of a segment.

    Attributes:
        start_offset, end_offset: of the records that it holds, both inclusive. Its first batch may begin later.
        max_timestamp_ms: the greatest of its records', -1 where none has any.
        broker_id: who copies it.
        event_timestamp_ms: when it came into this state.
        segment_size_bytes: exact size of its `.log`.
        segment_leader_epochs: the offset at which each leader epoch begins in it, the first one's being `start_offset`.
        custom_metadata: what the remote storage wants to be told again, if anything.
        txn_index_empty: whether it has no transaction index.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_bytes: int
    segment_leader_epochs: Mapping[int, int]
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    custom_metadata: bytes | None = None
    txn_index_empty: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadataUpdate:
    """A known copy has come into another state. `custom_metadata` replaces what was known, unless it is None."""

    segment_id: RemoteLogSegmentId
    event_timestamp_ms: int
    state: RemoteLogSegmentState
    broker_id: int
    custom_metadata: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartitionDeleteMetadata:
    """The deletion of a partition's segments has come into another state."""

    topic_id_partition: TopicIdPartition
    state: RemotePartitionDeleteState
    event_timestamp_ms: int
    broker_id: int


RemoteLogMetadataEvent = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata
"""What a `remote_log_metadata` stores, one at a time."""


def partition_of(event: RemoteLogMetadataEvent) -> TopicIdPartition:
    """The partition that an event is about."""
    if isinstance(event, RemotePartitionDeleteMetadata):
        return event.topic_id_partition
    return event.segment_id.topic_id_partition

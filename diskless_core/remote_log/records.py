"""Events of remote segments as the values of Apache Kafka's topic `__remote_log_metadata`. Pure.

A value is framed as KRaft's records are. Keys are null; the partition of the topic follows from the event's partition.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

from kafka.partitioner.default import murmur2

from diskless_core.protocol.messages.remote_log import (
    REMOTE_LOG_RECORDS,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from diskless_core.protocol.record_frames import RecordFormatError, decode_record, encode_record
from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)

TOPIC = "__remote_log_metadata"

_NO_ID = uuid.UUID(int=0)
_HASH = struct.Struct(">I")
_MASK = 0xFFFF_FFFF


class CorruptRecordError(Exception):
    """The bytes are no event of `__remote_log_metadata`; the message says why."""


def encode(event: RemoteLogMetadataEvent) -> bytes:
    """The value of the event's record, the bytes that Apache Kafka would write."""
    match event:
        case RemoteLogSegmentMetadata():
            return encode_record(_segment_record(event))
        case RemoteLogSegmentMetadataUpdate():
            return encode_record(_update_record(event))
        case RemotePartitionDeleteMetadata():
            return encode_record(_deletion_record(event))


def decode(value: bytes | bytearray | memoryview) -> RemoteLogMetadataEvent:
    """The event of a record's value.

    Raises:
        CorruptRecordError: the bytes are not exactly one event, or of a kind, version or state that is unknown.
    """
    try:
        record = decode_record(value, REMOTE_LOG_RECORDS)
        match record:
            case RemoteLogSegmentMetadataRecord():
                return _segment(record)
            case RemoteLogSegmentMetadataUpdateRecord():
                return _update(record)
            case _:
                return _deletion(record)
    except (RecordFormatError, ValueError) as error:
        raise CorruptRecordError(f"no event of {TOPIC}: {error}") from error


def metadata_partition(topic_id: uuid.UUID, partition: int, count: int) -> int:
    """The partition of `__remote_log_metadata`, which has `count`, that holds the events of a partition."""
    hashed = 1
    for element in (_hash_of_long(topic_id.int & (1 << 64) - 1), _hash_of_long(topic_id.int >> 64), partition):
        hashed = (31 * hashed + element) & _MASK
    positive: int = murmur2(_HASH.pack(hashed)) & 0x7FFF_FFFF
    return positive % count


def _hash_of_long(bits: int) -> int:
    """Java's `Long.hashCode`, which `Objects.hash` takes."""
    return (bits ^ bits >> 32) & _MASK


def _segment_record(event: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataRecord:
    record_class: Any = RemoteLogSegmentMetadataRecord
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=_segment_id_entry(record_class, event.segment_id),
        start_offset=event.start_offset,
        end_offset=event.end_offset,
        broker_id=event.broker_id,
        max_timestamp_ms=event.max_timestamp_ms,
        event_timestamp_ms=event.event_timestamp_ms,
        segment_leader_epochs=[
            record_class.SegmentLeaderEpochEntry(leader_epoch=epoch, offset=start)
            for epoch, start in sorted(event.segment_leader_epochs.items())
        ],
        segment_size_in_bytes=event.segment_size_bytes,
        custom_metadata=event.custom_metadata,
        remote_log_segment_state=event.state,
        txn_index_empty=event.txn_index_empty,
    )


def _update_record(event: RemoteLogSegmentMetadataUpdate) -> RemoteLogSegmentMetadataUpdateRecord:
    return RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=_segment_id_entry(RemoteLogSegmentMetadataUpdateRecord, event.segment_id),
        broker_id=event.broker_id,
        event_timestamp_ms=event.event_timestamp_ms,
        custom_metadata=event.custom_metadata,
        remote_log_segment_state=event.state,
    )


def _deletion_record(event: RemotePartitionDeleteMetadata) -> RemotePartitionDeleteMetadataRecord:
    record_class: Any = RemotePartitionDeleteMetadataRecord
    return RemotePartitionDeleteMetadataRecord(
        topic_id_partition=_partition_entry(record_class.TopicIdPartitionEntry, event.topic_id_partition),
        broker_id=event.broker_id,
        event_timestamp_ms=event.event_timestamp_ms,
        remote_partition_delete_state=event.state,
    )


def _segment_id_entry(record_class: Any, segment_id: RemoteLogSegmentId) -> Any:
    entry_class = record_class.RemoteLogSegmentIdEntry
    return entry_class(
        topic_id_partition=_partition_entry(entry_class.TopicIdPartitionEntry, segment_id.topic_id_partition),
        id=segment_id.id,
    )


def _partition_entry(entry_class: Any, partition: TopicIdPartition) -> Any:
    return entry_class(name=partition.topic, id=partition.topic_id, partition=partition.partition)


def _segment(record: Any) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=_segment_id(record.remote_log_segment_id),
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        max_timestamp_ms=record.max_timestamp_ms,
        broker_id=record.broker_id,
        event_timestamp_ms=record.event_timestamp_ms,
        segment_size_bytes=record.segment_size_in_bytes,
        segment_leader_epochs={entry.leader_epoch: entry.offset for entry in record.segment_leader_epochs},
        state=RemoteLogSegmentState(record.remote_log_segment_state),
        custom_metadata=record.custom_metadata,
        txn_index_empty=record.txn_index_empty,
    )


def _update(record: Any) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment_id=_segment_id(record.remote_log_segment_id),
        event_timestamp_ms=record.event_timestamp_ms,
        state=RemoteLogSegmentState(record.remote_log_segment_state),
        broker_id=record.broker_id,
        custom_metadata=record.custom_metadata,
    )


def _deletion(record: Any) -> RemotePartitionDeleteMetadata:
    return RemotePartitionDeleteMetadata(
        topic_id_partition=_partition(record.topic_id_partition),
        state=RemotePartitionDeleteState(record.remote_partition_delete_state),
        event_timestamp_ms=record.event_timestamp_ms,
        broker_id=record.broker_id,
    )


def _segment_id(entry: Any) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(_partition(entry.topic_id_partition), entry.id or _NO_ID)


def _partition(entry: Any) -> TopicIdPartition:
    return TopicIdPartition(entry.id or _NO_ID, entry.name, entry.partition)

"""The records of a diskless shard (KIP-1164, "Metadata records"), as plain data and as bytes in the log. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diskless_core.diskless.commands import PartitionKey
from diskless_core.protocol import file_committed, messages, record_frames
from diskless_core.protocol.file_committed import FileCommitted
from diskless_core.protocol.record_batch import RecordData
from diskless_core.remote_log.tiered import TieredSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsCreated:
    """Partitions of a topic exist, empty."""

    topic_id: bytes
    name: str
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """All partitions of the topic that this shard has are gone."""

    topic_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsDeleted:
    """The partition begins at `log_start_offset` now; `log_start_bytes` were appended before the runs that remain."""

    topic_id: bytes
    partition: int
    log_start_offset: int
    log_start_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsTiered:
    """The partition's records from the segment's start on, which were in WAL objects until now, are in the segment."""

    topic_id: bytes
    partition: int
    segment: TieredSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAdopted:
    """The partition, empty until now, has the records of these segments, from `log_start_offset` on."""

    topic_id: bytes
    partition: int
    log_start_offset: int
    segments: Sequence[TieredSegment]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogMetadataChanged:
    """What is known of a segment in remote storage, or of their deletion, has changed; see `remote_log.records`."""

    event: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReceived:
    """The object was handed over to this shard.

    Attributes:
        committed_at, dead_at: as in `HandOver`.
        was_unknown: it was not committed here, and so never can be any more.
    """

    object_key: str
    owner_ids: Sequence[int]
    committed_at: int
    dead_at: int
    was_unknown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHandedOver:
    """The object has no live batches here, and `next_owner` has confirmed that it has it."""

    object_key: str
    next_owner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDeleted:
    """The object, whose last owner this shard was, is gone from the object store."""

    object_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForgotten:
    """The shard is through with the object, and nothing of it has to be known any more."""

    object_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonRaised:
    """What was created before `horizon_ms`, by its key, and is not committed yet, never will be."""

    horizon_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersExpired:
    """What is known of these producers is forgotten: for each partition their ids."""

    partitions: Sequence[tuple[PartitionKey, Sequence[int]]]


DisklessRecord = (
    PartitionsCreated
    | TopicDeleted
    | RecordsDeleted
    | RecordsTiered
    | PartitionAdopted
    | RemoteLogMetadataChanged
    | FileCommitted
    | FileReceived
    | FileHandedOver
    | FileDeleted
    | FileForgotten
    | HorizonRaised
    | ProducersExpired
)


def encode(record: DisklessRecord) -> RecordData:
    """The record as it stands in the log: no key, KRaft's framing."""
    return RecordData(key=None, value=_encode_value(record))


def decode(data: RecordData) -> DisklessRecord:
    """The record back.

    Raises:
        RecordFormatError: it is no record of a diskless shard.
    """
    if data.value is None:
        raise record_frames.RecordFormatError("a record of a diskless shard cannot be a tombstone")
    if file_committed.is_file_committed(data.value):
        return file_committed.unpack(data.value)
    message = record_frames.decode_record(data.value)
    match message:
        case messages.DisklessPartitionsCreatedRecord():
            return PartitionsCreated(
                topic_id=record_frames.required_id(message.topic_id).bytes,
                name=message.name,
                partitions=tuple(message.partition_indexes),
            )
        case messages.DisklessTopicDeletedRecord():
            return TopicDeleted(topic_id=record_frames.required_id(message.topic_id).bytes)
        case messages.DisklessRecordsDeletedRecord():
            return RecordsDeleted(
                topic_id=record_frames.required_id(message.topic_id).bytes,
                partition=message.partition_index,
                log_start_offset=message.new_log_start_offset,
                log_start_bytes=message.log_start_bytes,
            )
        case messages.DisklessRecordsTieredRecord():
            return RecordsTiered(
                topic_id=record_frames.required_id(message.topic_id).bytes,
                partition=message.partition_index,
                segment=_segment(message),
            )
        case messages.DisklessPartitionAdoptedRecord():
            return PartitionAdopted(
                topic_id=record_frames.required_id(message.topic_id).bytes,
                partition=message.partition_index,
                log_start_offset=message.log_start_offset,
                segments=tuple(map(_segment, message.segments)),
            )
        case messages.DisklessRemoteLogMetadataRecord():
            return RemoteLogMetadataChanged(event=message.event)
        case messages.DisklessFileReceivedRecord():
            return FileReceived(
                object_key=message.object_key,
                owner_ids=tuple(message.owner_ids),
                committed_at=message.committed_at,
                dead_at=message.dead_at,
                was_unknown=message.was_unknown,
            )
        case messages.DisklessFileHandedOverRecord():
            return FileHandedOver(object_key=message.object_key, next_owner=message.next_owner_id)
        case messages.DisklessFileDeletedRecord():
            return FileDeleted(object_key=message.object_key)
        case messages.DisklessFileForgottenRecord():
            return FileForgotten(object_key=message.object_key)
        case messages.DisklessHorizonRaisedRecord():
            return HorizonRaised(horizon_ms=message.horizon)
        case messages.DisklessProducersExpiredRecord():
            return ProducersExpired(
                partitions=tuple(
                    (
                        PartitionKey(record_frames.required_id(one.topic_id).bytes, one.partition_index),
                        tuple(one.producer_ids),
                    )
                    for one in message.partitions
                )
            )
    raise record_frames.RecordFormatError(f"a {type(message).__name__} does not belong to a diskless shard")


def _encode_value(record: DisklessRecord) -> bytes:
    match record:
        case FileCommitted():
            return file_committed.pack(record)
        case PartitionsCreated():
            return record_frames.encode_record(
                messages.DisklessPartitionsCreatedRecord(
                    topic_id=uuid.UUID(bytes=record.topic_id),
                    name=record.name,
                    partition_indexes=list(record.partitions),
                )
            )
        case TopicDeleted():
            return record_frames.encode_record(
                messages.DisklessTopicDeletedRecord(topic_id=uuid.UUID(bytes=record.topic_id))
            )
        case RecordsDeleted():
            return record_frames.encode_record(
                messages.DisklessRecordsDeletedRecord(
                    topic_id=uuid.UUID(bytes=record.topic_id),
                    partition_index=record.partition,
                    new_log_start_offset=record.log_start_offset,
                    log_start_bytes=record.log_start_bytes,
                )
            )
        case RecordsTiered():
            return record_frames.encode_record(
                messages.DisklessRecordsTieredRecord(
                    topic_id=uuid.UUID(bytes=record.topic_id),
                    partition_index=record.partition,
                    **_segment_fields(record.segment),
                )
            )
        case PartitionAdopted():
            return record_frames.encode_record(
                messages.DisklessPartitionAdoptedRecord(
                    topic_id=uuid.UUID(bytes=record.topic_id),
                    partition_index=record.partition,
                    log_start_offset=record.log_start_offset,
                    segments=[
                        messages.DisklessPartitionAdoptedRecord.AdoptedSegment(**_segment_fields(segment))
                        for segment in record.segments
                    ],
                )
            )
        case RemoteLogMetadataChanged():
            return record_frames.encode_record(messages.DisklessRemoteLogMetadataRecord(event=record.event))
        case HorizonRaised():
            return record_frames.encode_record(messages.DisklessHorizonRaisedRecord(horizon=record.horizon_ms))
        case ProducersExpired():
            return record_frames.encode_record(
                messages.DisklessProducersExpiredRecord(
                    partitions=[
                        messages.DisklessProducersExpiredRecord.ExpiredPartition(
                            topic_id=uuid.UUID(bytes=partition.topic_id),
                            partition_index=partition.partition,
                            producer_ids=list(producer_ids),
                        )
                        for partition, producer_ids in record.partitions
                    ]
                )
            )
        case FileReceived():
            return record_frames.encode_record(
                messages.DisklessFileReceivedRecord(
                    object_key=record.object_key,
                    owner_ids=list(record.owner_ids),
                    committed_at=record.committed_at,
                    dead_at=record.dead_at,
                    was_unknown=record.was_unknown,
                )
            )
        case FileHandedOver():
            return record_frames.encode_record(
                messages.DisklessFileHandedOverRecord(object_key=record.object_key, next_owner_id=record.next_owner)
            )
        case FileDeleted():
            return record_frames.encode_record(messages.DisklessFileDeletedRecord(object_key=record.object_key))
        case FileForgotten():
            return record_frames.encode_record(messages.DisklessFileForgottenRecord(object_key=record.object_key))


def _segment(message: Any) -> TieredSegment:
    return TieredSegment(
        message.segment_id.bytes, message.start_offset, message.end_offset, message.size_bytes, message.max_timestamp
    )


def _segment_fields(segment: TieredSegment) -> dict[str, Any]:
    return {**segment._asdict(), "segment_id": uuid.UUID(bytes=segment.segment_id)}

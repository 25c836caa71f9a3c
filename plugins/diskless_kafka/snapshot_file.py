"""A node's own copy of what it knows of remote segments: KIP-405's flat files, and the offsets that they reach. Pure.

(KIP-405, "Internal flat-file store format of remote log metadata" and "Committed offsets file format".) A flat file is

    magic (uvarint) | topic name (int16 length, UTF-8) | topic id (16 bytes) | metadata offset (varlong) | entries
    entry: length of what follows (uvarint) | type (uvarint) | version (uvarint) | data

The entries are a record for each segment, as Apache Kafka 4 would write it, one for a deletion that is under way, and
at the end one with a checksum, so that a file that was cut or damaged is found out.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from crc32c import crc32c
from kafka.record.util import decode_varint, encode_varint

from diskless_core.protocol.codec import CompiledRecord
from diskless_core.protocol.messages.remote_log.snapshots import (
    SNAPSHOT_RECORDS,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSnapshotChecksumRecord,
    RemotePartitionDeleteMetadataSnapshotRecord,
)
from diskless_core.protocol.record_frames import FRAME_VERSION, RecordFormatError, decode_record, encode_record
from diskless_core.protocol.varint import VarintError, encode_uvarint, read_uvarint
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)

COMMITTED_OFFSETS = "_rlmm_committed_offsets"
SNAPSHOT_NAMES = "_rlmm_snapshots"
SUFFIX = ".remote_log_snapshot"

_MAGIC = 0
_NAME_LENGTH = struct.Struct(">h")
_ID_BYTES = 16
_NO_ID = uuid.UUID(int=0)
_FRAME = encode_uvarint(FRAME_VERSION)
"""What a record of a topic has in front, and an entry of a file has not."""


class CorruptSnapshotError(Exception):
    """A file is damaged, cut, or of another version; the message says why."""


class Deletion(NamedTuple):
    """The deletion of a partition's segments, and the Diskless cluster whose it is; None for an Apache Kafka's."""

    metadata: RemotePartitionDeleteMetadata
    cluster_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """What is known of a partition's remote segments.

    Attributes:
        next_offset: all of the metadata topic below it has been taken into account, of the partition that it is in.
        segments: by start offset.
        deletion: of all of them, where one is under way.
    """

    partition: TopicIdPartition
    next_offset: int
    segments: Sequence[RemoteLogSegmentMetadata] = ()
    deletion: Deletion | None = None


def encode(snapshot: PartitionSnapshot) -> bytes:
    """The flat file. The number of the partition is not in it: it belongs into the file's name."""
    topic_id, topic, _ = snapshot.partition
    name = topic.encode()
    data = bytearray(encode_uvarint(_MAGIC) + _NAME_LENGTH.pack(len(name)) + name + topic_id.bytes)
    encode_varint(snapshot.next_offset, data.append)
    for segment in snapshot.segments:
        data += _entry(_segment_record(segment))
    if snapshot.deletion is not None:
        data += _entry(_deletion_record(snapshot.deletion))
    data += _entry(RemoteLogSnapshotChecksumRecord(crc32c=crc32c(data)))
    return bytes(data)


def decode(data: bytes, partition: int) -> PartitionSnapshot:
    """The content of the flat file of the partition with this number.

    Raises:
        CorruptSnapshotError: it is not exactly what `encode` wrote.
    """
    try:
        return _decode(memoryview(data), partition)
    except (RecordFormatError, VarintError, ValueError, IndexError, struct.error) as error:
        raise CorruptSnapshotError(f"not a file of remote segments: {error}") from error


def encode_offsets(offsets: Mapping[int, int]) -> bytes:
    """The committed offsets: for each partition of the metadata topic, the first one that is in no flat file."""
    return "".join(f"{partition} {offset}\n" for partition, offset in sorted(offsets.items())).encode()


def decode_offsets(data: bytes) -> dict[int, int]:
    """The committed offsets by partition of the metadata topic.

    Raises:
        CorruptSnapshotError: the text is malformed or cut.
    """
    lines = _lines(data)
    try:
        offsets = {int(partition): int(offset) for partition, offset in (line.split(" ") for line in lines)}
    except ValueError as error:
        raise CorruptSnapshotError(f"no committed offsets: {error}") from error
    if len(offsets) < len(lines) or any(number < 0 for entry in offsets.items() for number in entry):
        raise CorruptSnapshotError("no committed offsets: a partition is there twice, or a number is negative")
    return offsets


def encode_names(names: Sequence[str]) -> bytes:
    """The names of the flat files that there have to be, without which the committed offsets mean nothing."""
    return "".join(f"{name}\n" for name in names).encode()


def decode_names(data: bytes) -> list[str]:
    """The names of the flat files.

    Raises:
        CorruptSnapshotError: the text is malformed or cut.
    """
    return _lines(data)


def _lines(data: bytes) -> list[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptSnapshotError(f"no text: {error}") from error
    if text and not text.endswith("\n"):
        raise CorruptSnapshotError("the last line is cut")
    return text.split("\n")[:-1]


def _entry(record: CompiledRecord) -> bytes:
    body = encode_record(record).removeprefix(_FRAME)
    return encode_uvarint(len(body)) + body


def _decode(view: memoryview, number: int) -> PartitionSnapshot:
    magic, pos = read_uvarint(view, 0)
    if magic != _MAGIC:
        raise ValueError(f"version {magic} is unknown")
    (length,) = _NAME_LENGTH.unpack_from(view, pos)
    pos += _NAME_LENGTH.size
    topic, pos = bytes(view[pos : pos + length]).decode(), pos + length
    topic_id, pos = uuid.UUID(bytes=bytes(view[pos : pos + _ID_BYTES])), pos + _ID_BYTES
    next_offset, pos = decode_varint(view, pos)
    partition = TopicIdPartition(topic_id, topic, number)
    segments: list[RemoteLogSegmentMetadata] = []
    deletion = None
    for record in _checked_entries(view, pos):
        if isinstance(record, RemoteLogSegmentMetadataSnapshotRecord):
            segments.append(_segment(partition, record))
        else:
            deletion = _deletion(partition, record)
    return PartitionSnapshot(partition=partition, next_offset=next_offset, segments=segments, deletion=deletion)


def _checked_entries(view: memoryview, pos: int) -> Iterator[Any]:
    """All entries but the last one, which has to be the checksum of what is before it."""
    while True:
        start = pos
        length, pos = read_uvarint(view, pos)
        body, pos = view[pos : pos + length], pos + length
        record = decode_record(_FRAME + bytes(body), SNAPSHOT_RECORDS)
        if not isinstance(record, RemoteLogSnapshotChecksumRecord):
            yield record
            continue
        if pos != len(view) or record.crc32c != crc32c(view[:start]):
            raise ValueError("its checksum does not match")
        return


def _segment_record(segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataSnapshotRecord:
    record_class: Any = RemoteLogSegmentMetadataSnapshotRecord
    return RemoteLogSegmentMetadataSnapshotRecord(
        segment_id=segment.segment_id.id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=[
            record_class.SegmentLeaderEpochEntry(leader_epoch=epoch, offset=start)
            for epoch, start in sorted(segment.segment_leader_epochs.items())
        ],
        segment_size_in_bytes=segment.segment_size_bytes,
        custom_metadata=segment.custom_metadata,
        remote_log_segment_state=segment.state,
        txn_index_empty=segment.txn_index_empty,
    )


def _segment(partition: TopicIdPartition, record: Any) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(partition, record.segment_id or _NO_ID),
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


def _deletion_record(deletion: Deletion) -> RemotePartitionDeleteMetadataSnapshotRecord:
    return RemotePartitionDeleteMetadataSnapshotRecord(
        broker_id=deletion.metadata.broker_id,
        event_timestamp_ms=deletion.metadata.event_timestamp_ms,
        remote_partition_delete_state=deletion.metadata.state,
        cluster_id=deletion.cluster_id,
    )


def _deletion(partition: TopicIdPartition, record: Any) -> Deletion:
    metadata = RemotePartitionDeleteMetadata(
        topic_id_partition=partition,
        state=RemotePartitionDeleteState(record.remote_partition_delete_state),
        event_timestamp_ms=record.event_timestamp_ms,
        broker_id=record.broker_id,
    )
    return Deletion(metadata, record.cluster_id)

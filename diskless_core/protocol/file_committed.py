"""KIP-1164's DisklessFileCommittedRecord packed and unpacked by hand, from and to plain tuples.

It is written for every committed object and read at every replay, so it goes past the generic codec, whose bytes it
equals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from diskless_core.protocol.commit_file import CommitBatch
from diskless_core.protocol.messages import DisklessFileCommittedRecord
from diskless_core.protocol.packed import (
    INT32,
    INT64,
    MALFORMED,
    NO_TAGS,
    PackedReader,
    pack_array,
    pack_bytes,
    pack_integers,
    pack_string,
    pack_tagged,
)
from diskless_core.protocol.record_batch import MAGIC
from diskless_core.protocol.record_frames import RecordFormatError, record_prefix
from diskless_core.protocol.varint import encode_uvarint

_PREFIX = record_prefix(DisklessFileCommittedRecord)
_OBJECT = struct.Struct(">bqi")
_BATCH = struct.Struct(">biiqqqqbqhiix")
_REFUSED = struct.Struct(">ihx")
_DUPLICATE = struct.Struct(">iqqx")
_UUID_BYTES = 16
_NOT_COMMITTED = -1


class CommittedBatch(NamedTuple):
    """One accepted batch, as the coordinator's log records it. `of` makes it of what a broker asked to commit.

    Offsets are inclusive, `byte_offset` counts from the object's start, times are in milliseconds since the epoch.
    """

    magic: int
    byte_offset: int
    byte_size: int
    base_offset: int
    last_offset: int
    log_append_timestamp: int
    batch_max_timestamp: int
    timestamp_type: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int

    @staticmethod
    def of(batch: CommitBatch, base_offset: int, append_time: int, max_timestamp: int) -> CommittedBatch:
        """A batch that gets these offsets and times."""
        # For each batch of each commit: half of the time that the constructor takes with names.
        return tuple.__new__(
            CommittedBatch,
            (
                MAGIC,
                batch.byte_offset,
                batch.size,
                base_offset,
                base_offset + batch.record_count - 1,
                append_time,
                max_timestamp,
                batch.timestamp_type,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.last_sequence,
            ),
        )


class RefusedBatch(NamedTuple):
    """A batch of the request that was not accepted. `request_index` is its position there, from 0."""

    request_index: int
    error_code: int


class DuplicateBatch(NamedTuple):
    """A batch of the request that had been committed before, and its original answer."""

    request_index: int
    base_offset: int
    log_append_time: int


CommittedPartition = tuple[int, Sequence[CommittedBatch]]
"""Partition index and its batches by ascending offset."""

CommittedTopic = tuple[bytes, Sequence[CommittedPartition]]
"""Topic id as 16 bytes, and partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCommitted:
    """The record's content. KIP-1164, "DisklessFileCommittedRecord", and the tagged fields of ours."""

    object_key: str
    object_format: int
    file_size: int
    uploader_broker_id: int
    owner_ids: Sequence[int]
    topics: Sequence[CommittedTopic]
    refused: Sequence[RefusedBatch] = ()
    duplicates: Sequence[DuplicateBatch] = ()
    batch_order: Sequence[int] = ()
    content_digest: bytes = b""
    committed_at: int = _NOT_COMMITTED


def is_file_committed(record: bytes | memoryview) -> bool:
    """Whether `unpack` is the right reader of a metadata record."""
    return record[: len(_PREFIX)] == _PREFIX


def pack(record: FileCommitted) -> bytes:
    """The record in KRaft's framing, equal to what `record_frames.encode_record` makes of the same content.

    Raises:
        struct.error: a number does not fit its field.
    """
    parts = [
        _PREFIX,
        pack_string(record.object_key),
        _OBJECT.pack(record.object_format, record.file_size, record.uploader_broker_id),
        pack_integers(record.owner_ids),
        encode_uvarint(len(record.topics) + 1),
    ]
    for topic_id, partitions in record.topics:
        parts += (topic_id, encode_uvarint(len(partitions) + 1))
        for index, batches in partitions:
            parts += (INT32.pack(index), pack_array(_BATCH, batches), NO_TAGS)
        parts.append(NO_TAGS)
    parts.append(pack_tagged(_tagged_fields(record)))
    return b"".join(parts)


def _tagged_fields(record: FileCommitted) -> Iterator[tuple[int, bytes]]:
    if record.refused:
        yield 0, pack_array(_REFUSED, record.refused)
    if record.duplicates:
        yield 1, pack_array(_DUPLICATE, record.duplicates)
    if record.batch_order:
        yield 2, pack_integers(record.batch_order)
    if record.content_digest:
        yield 3, pack_bytes(record.content_digest)
    if record.committed_at != _NOT_COMMITTED:
        yield 4, INT64.pack(record.committed_at)


def unpack(data: bytes | memoryview) -> FileCommitted:
    """The content of a record in KRaft's framing. Sequences in it are tuples; tags unknown to us are skipped.

    Raises:
        RecordFormatError: it is another record, or malformed.
    """
    if not is_file_committed(data):
        raise RecordFormatError("this is no DisklessFileCommittedRecord of version 0")
    reader = PackedReader(data, len(_PREFIX))
    try:
        object_key = reader.string()
        object_format, file_size, uploader_broker_id = reader.fixed(_OBJECT)
        content = FileCommitted(
            object_key=object_key,
            object_format=object_format,
            file_size=file_size,
            uploader_broker_id=uploader_broker_id,
            owner_ids=reader.integers(),
            topics=tuple(_topic(reader) for _ in range(reader.count(_UUID_BYTES))),
            **reader.tagged_section(_TAG_READERS),
        )
        reader.expect_end()
    except MALFORMED as error:
        raise RecordFormatError(f"a DisklessFileCommittedRecord is malformed: {error}") from error
    return content


def _topic(reader: PackedReader) -> CommittedTopic:
    topic_id = bytes(reader.take(_UUID_BYTES))
    partitions = tuple(_partition(reader) for _ in range(reader.count(INT32.size)))
    reader.end_of_struct()
    return topic_id, partitions


def _partition(reader: PackedReader) -> CommittedPartition:
    (index,) = reader.fixed(INT32)
    batches = reader.rows(_BATCH, CommittedBatch._make)
    reader.end_of_struct()
    return index, batches


_TAG_READERS: dict[int, tuple[str, Callable[[PackedReader], Any]]] = {
    0: ("refused", lambda reader: reader.rows(_REFUSED, RefusedBatch._make)),
    1: ("duplicates", lambda reader: reader.rows(_DUPLICATE, DuplicateBatch._make)),
    2: ("batch_order", PackedReader.integers),
    3: ("content_digest", lambda reader: bytes(reader.bytes_field())),
    4: ("committed_at", lambda reader: reader.fixed(INT64)[0]),
}

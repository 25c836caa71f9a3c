"""DisklessFileCommittedRecord packed and unpacked by hand, from and to plain tuples.

It is written for every committed object and read at every replay, so it goes past the generic codec, whose bytes it
equals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, NamedTuple, TypeVar

from diskless_core.protocol.messages import DisklessFileCommittedRecord
from diskless_core.protocol.record_frames import RecordFormatError, record_prefix
from diskless_core.protocol.varint import VarintError, encode_uvarint, read_uvarint

_PREFIX = record_prefix(DisklessFileCommittedRecord)
_OBJECT = struct.Struct(">bqi")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_BATCH = struct.Struct(">biiqqqqbqhiix")
_REFUSED = struct.Struct(">ihx")
_DUPLICATE = struct.Struct(">iqqx")
_UUID_BYTES = 16
_NO_TAGS = b"\0"
_NOT_COMMITTED = -1

_UNEXPECTED_TAGS = "a DisklessFileCommittedRecord has tagged fields where none are defined"

Row = TypeVar("Row")


class CommittedBatch(NamedTuple):
    """One accepted batch. Offsets are inclusive, `byte_offset` counts from the object's start, times are in ms."""

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
    key = record.object_key.encode()
    parts = [
        _PREFIX,
        encode_uvarint(len(key) + 1),
        key,
        _OBJECT.pack(record.object_format, record.file_size, record.uploader_broker_id),
        *_array(_INT32, [(owner,) for owner in record.owner_ids]),
        encode_uvarint(len(record.topics) + 1),
    ]
    for topic_id, partitions in record.topics:
        parts += (topic_id, encode_uvarint(len(partitions) + 1))
        for index, batches in partitions:
            parts.append(_INT32.pack(index))
            parts += _array(_BATCH, batches)
            parts.append(_NO_TAGS)
        parts.append(_NO_TAGS)
    parts += _tagged_section(record)
    return b"".join(parts)


def _array(element: struct.Struct, rows: Sequence[tuple[Any, ...]]) -> Iterator[bytes]:
    yield encode_uvarint(len(rows) + 1)
    yield from starmap(element.pack, rows)


def _tagged_section(record: FileCommitted) -> Iterator[bytes]:
    tagged: list[tuple[int, bytes]] = []
    if record.refused:
        tagged.append((0, b"".join(_array(_REFUSED, record.refused))))
    if record.duplicates:
        tagged.append((1, b"".join(_array(_DUPLICATE, record.duplicates))))
    if record.batch_order:
        tagged.append((2, b"".join(_array(_INT32, [(index,) for index in record.batch_order]))))
    if record.content_digest:
        tagged.append((3, encode_uvarint(len(record.content_digest) + 1) + record.content_digest))
    if record.committed_at != _NOT_COMMITTED:
        tagged.append((4, _INT64.pack(record.committed_at)))
    yield encode_uvarint(len(tagged))
    for tag, content in tagged:
        yield encode_uvarint(tag) + encode_uvarint(len(content))
        yield content


def unpack(data: bytes | memoryview) -> FileCommitted:
    """The content of a record in KRaft's framing. Sequences in it are tuples; tags unknown to us are skipped.

    Raises:
        RecordFormatError: it is another record, or malformed.
    """
    if not is_file_committed(data):
        raise RecordFormatError("this is no DisklessFileCommittedRecord of version 0")
    reader = _Reader(memoryview(data), len(_PREFIX))
    try:
        object_key = str(reader.bytes_field(), "utf-8")
        object_format, file_size, uploader_broker_id = reader.fixed(_OBJECT)
        content = FileCommitted(
            object_key=object_key,
            object_format=object_format,
            file_size=file_size,
            uploader_broker_id=uploader_broker_id,
            owner_ids=reader.integers(),
            topics=tuple(reader.topic() for _ in range(reader.count(_UUID_BYTES))),
            **reader.tagged_section(),
        )
    except (struct.error, IndexError, VarintError, UnicodeDecodeError) as error:
        raise RecordFormatError(f"a DisklessFileCommittedRecord is malformed: {error}") from error
    reader.expect_end()
    return content


class _Reader:
    """Reads one record from front to back."""

    __slots__ = ("_data", "_pos")

    def __init__(self, data: memoryview, pos: int) -> None:
        self._data = data
        self._pos = pos

    def expect_end(self) -> None:
        if self._pos != len(self._data):
            raise RecordFormatError("a DisklessFileCommittedRecord has trailing bytes or is truncated")

    def fixed(self, layout: struct.Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self._data, self._pos)
        self._pos += layout.size
        return values

    def _varint(self) -> int:
        value = self._data[self._pos]
        if value < 0x80:
            self._pos += 1
            return value
        value, self._pos = read_uvarint(self._data, self._pos)
        return value

    def _take(self, size: int) -> memoryview:
        taken = self._data[self._pos : self._pos + size]
        if len(taken) < size:
            raise RecordFormatError("a DisklessFileCommittedRecord is truncated")
        self._pos += size
        return taken

    def count(self, smallest: int) -> int:
        count = self._varint() - 1
        if count < 0 or count * smallest > len(self._data) - self._pos:
            raise RecordFormatError(f"a DisklessFileCommittedRecord counts {count} elements beyond its end")
        return count

    def bytes_field(self) -> memoryview:
        return self._take(self.count(1))

    def integers(self) -> tuple[int, ...]:
        count = self.count(_INT32.size)
        return struct.unpack(f">{count}i", self._take(_INT32.size * count))

    def topic(self) -> CommittedTopic:
        topic_id = bytes(self._take(_UUID_BYTES))
        partitions = tuple(self._partition() for _ in range(self.count(_INT32.size)))
        self._end_of_struct()
        return topic_id, partitions

    def _partition(self) -> CommittedPartition:
        (index,) = self.fixed(_INT32)
        batches = self.rows(_BATCH, CommittedBatch._make)
        self._end_of_struct()
        return index, batches

    def rows(self, layout: struct.Struct, make: Callable[[tuple[Any, ...]], Row]) -> tuple[Row, ...]:
        content = self._take(layout.size * self.count(layout.size))
        tag_counts = content[layout.size - 1 :: layout.size].tobytes()
        if tag_counts.count(0) != len(tag_counts):
            raise RecordFormatError(_UNEXPECTED_TAGS)
        return tuple(map(make, layout.iter_unpack(content)))

    def _end_of_struct(self) -> None:
        if self._data[self._pos]:
            raise RecordFormatError(_UNEXPECTED_TAGS)
        self._pos += 1

    def tagged_section(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            stop = self._pos + size
            if tag in _TAG_READERS:
                name, read = _TAG_READERS[tag]
                fields[name] = read(self)
            else:
                self._take(size)
            if self._pos != stop:
                raise RecordFormatError(f"tagged field {tag} of a DisklessFileCommittedRecord does not fill its size")
        return fields


_TAG_READERS: dict[int, tuple[str, Callable[[_Reader], Any]]] = {
    0: ("refused", lambda reader: reader.rows(_REFUSED, RefusedBatch._make)),
    1: ("duplicates", lambda reader: reader.rows(_DUPLICATE, DuplicateBatch._make)),
    2: ("batch_order", _Reader.integers),
    3: ("content_digest", lambda reader: bytes(reader.bytes_field())),
    4: ("committed_at", lambda reader: reader.fixed(_INT64)[0]),
}

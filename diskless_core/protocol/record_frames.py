"""Metadata records as bytes: KRaft's framing, and the keys and values of topics such as `__consumer_offsets`.

A KRaft frame is three unsigned varints, frame version, api key and record version, and then the record. Keys and values
have an int16 version in front instead; a key's version says what kind of key it is.

The frame version says what a replica does with the record. Version 1 is KRaft's: the record counts, and a replica that
does not know it must stop. Version 2 has the same layout and says that the record may be ignored: no replica replays
it, whether it knows the record or not, so all of them behave alike.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from diskless_core.protocol.codec import CompiledRecord
from diskless_core.protocol.messages import (
    METADATA_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from diskless_core.protocol.messages.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from diskless_core.protocol.structure import FrameError, check_structure
from diskless_core.protocol.varint import VarintError, encode_uvarint, read_uvarint

FRAME_VERSION = 1
IGNORABLE_FRAME_VERSION = 2
"""Of a record that no replica replays. It is there for people and tools that read the log."""

GROUP_VALUE_VERSION = 3
"""The version of classic groups' values that Apache Kafka 4 writes unless a newer field needs another."""

_VERSION = struct.Struct(">h")


class RecordFormatError(Exception):
    """A record is of an unknown kind or version, or malformed."""


class UnknownRecordError(RecordFormatError):
    """A well-formed frame holds a record, or the version of one, that only a later version of Diskless knows."""


class IgnorableRecordError(RecordFormatError):
    """The record's frame says that it may be ignored: it is not replayed."""


def required_id(value: uuid.UUID | None) -> uuid.UUID:
    """The id in a field of a record that never holds the zero id.

    Raises:
        RecordFormatError: it does.
    """
    if value is None:
        raise RecordFormatError("a record has the zero id where it has to name something")
    return value


def encode_record(message: CompiledRecord, version: int = 0, *, ignorable: bool = False) -> bytes:
    """A metadata record in KRaft's framing.

    Args:
        ignorable: no replica replays it. A record may be written so only if no table and no answer depends on it.
    """
    return record_prefix(type(message), version, ignorable=ignorable) + message.encode_body(version)


def record_prefix(record_class: type[CompiledRecord], version: int = 0, *, ignorable: bool = False) -> bytes:
    """What stands before a record of this class in KRaft's framing."""
    api_key: int = record_class.json["apiKey"]
    frame_version = IGNORABLE_FRAME_VERSION if ignorable else FRAME_VERSION
    return encode_uvarint(frame_version) + encode_uvarint(api_key) + encode_uvarint(version)


class RecordFrame(NamedTuple):
    """What stands before a record. `body_at` is where the record begins."""

    frame_version: int
    api_key: int
    version: int
    body_at: int


def read_frame(data: bytes | bytearray | memoryview) -> RecordFrame:
    """The frame of a metadata record, whatever its record is.

    Raises:
        RecordFormatError: it is malformed, or of a frame version that does not exist.
    """
    view = memoryview(data)
    try:
        frame_version, pos = read_uvarint(view, 0)
        api_key, pos = read_uvarint(view, pos)
        version, pos = read_uvarint(view, pos)
    except (VarintError, IndexError) as error:
        raise RecordFormatError("the frame of a metadata record is malformed") from error
    if frame_version not in (FRAME_VERSION, IGNORABLE_FRAME_VERSION):
        raise RecordFormatError(f"no metadata record has frame version {frame_version} and api key {api_key}")
    return RecordFrame(frame_version, api_key, version, pos)


def decode_record(
    data: bytes | bytearray | memoryview, records: Mapping[int, type[CompiledRecord]] = METADATA_RECORDS
) -> Any:
    """The one metadata record that `data` consists of, an instance of a class in `records`, which has them by api key.

    Raises:
        IgnorableRecordError: the frame says that the record may be ignored; `read_record` shows it.
        UnknownRecordError: the frame is well-formed, and api key or record version is unknown.
        RecordFormatError: the record is malformed, or of a frame version that does not exist.
    """
    frame = read_frame(data)
    if frame.frame_version == IGNORABLE_FRAME_VERSION:
        raise IgnorableRecordError(f"record {frame.api_key} version {frame.version} may be ignored")
    return _decode_framed(frame, data, records)


def read_record(
    data: bytes | bytearray | memoryview, records: Mapping[int, type[CompiledRecord]] = METADATA_RECORDS
) -> Any:
    """The same as `decode_record`, for tools: a record that may be ignored is decoded too."""
    return _decode_framed(read_frame(data), data, records)


def _decode_framed(
    frame: RecordFrame, data: bytes | bytearray | memoryview, records: Mapping[int, type[CompiledRecord]]
) -> Any:
    record_class = records.get(frame.api_key)
    if record_class is None:
        raise UnknownRecordError(
            f"this version of Diskless does not know the record with api key {frame.api_key}, version {frame.version}"
        )
    _require_known(record_class, frame.version)
    return _decode(record_class, frame.version, memoryview(data), frame.body_at)


def _require_known(record_class: type[CompiledRecord], version: int) -> None:
    newest = record_class.valid_versions[1]
    if version > newest:
        raise UnknownRecordError(
            f"this version of Diskless knows {record_class.__name__} up to version {newest}, not version {version}"
        )


def _decode(record_class: type[CompiledRecord], version: int, view: memoryview, pos: int) -> Any:
    try:
        end = check_structure(record_class, version, view, pos)
        record = record_class.decode_body(view[pos:], version)[0]
    except (FrameError, UnicodeDecodeError) as error:
        raise RecordFormatError(str(error)) from error
    if end != len(view):
        raise RecordFormatError(f"{record_class.__name__} v{version} has trailing bytes")
    return record


def encode_key(key: CompiledRecord) -> bytes:
    """A key as Apache Kafka 4 writes it."""
    version: int = key.json["apiKey"]
    return _VERSION.pack(version) + key.encode_body(version)


def encode_value(value: CompiledRecord, version: int) -> bytes:
    """A value that belongs to a key."""
    return _VERSION.pack(version) + value.encode_body(version)


class KeyedRecords:
    """The records that Apache Kafka writes into one of its internal topics, with a key and a value each.

    Args:
        values: the class of the value that belongs to each class of keys.
        older_keys: further versions in front of a key, with the class of such keys.

    Attributes:
        values: the class of the value that belongs to each class of keys.
    """

    def __init__(
        self,
        values: Mapping[type[CompiledRecord], type[CompiledRecord]],
        older_keys: Mapping[int, type[CompiledRecord]] | None = None,
    ) -> None:
        self.values = values
        self._keys = {**(older_keys or {}), **{key_class.json["apiKey"]: key_class for key_class in values}}

    def decode_key(self, data: bytes | bytearray | memoryview) -> CompiledRecord:
        """A key of the topic.

        Raises:
            UnknownRecordError: it is of another kind.
            RecordFormatError: it is malformed.
        """
        version = _version(data)
        record_class = self._keys.get(version)
        if record_class is None:
            raise UnknownRecordError(f"this version of Diskless does not know keys of version {version}")
        key: CompiledRecord = _decode(record_class, version, memoryview(data), _VERSION.size)
        return key

    def decode_value(self, key: CompiledRecord, data: bytes | bytearray | memoryview) -> CompiledRecord:
        """The value that belongs to `key`. Tombstones have no bytes and don't come here.

        Raises:
            UnknownRecordError: its version is unknown.
            RecordFormatError: it is malformed.
        """
        record_class, version = self.values[type(key)], _version(data)
        _require_known(record_class, version)
        value: CompiledRecord = _decode(record_class, version, memoryview(data), _VERSION.size)
        return value


GROUP_RECORDS = KeyedRecords(
    {
        OffsetCommitKey: OffsetCommitValue,
        GroupMetadataKey: GroupMetadataValue,
        ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
        ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
        ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
        ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
    },
    older_keys={0: OffsetCommitKey},
)
"""The records of `__consumer_offsets`."""


def _version(data: bytes | bytearray | memoryview) -> int:
    if len(data) < _VERSION.size:
        raise RecordFormatError(f"{len(data)} bytes are too few for a version")
    version: int = _VERSION.unpack_from(data)[0]
    return version

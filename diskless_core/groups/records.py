"""The records of the groups shard: Kafka's in `__consumer_offsets`, as plain data and as bytes in the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diskless_core.groups.consumer import codec
from diskless_core.groups.consumer.records import ConsumerGroupRecord
from diskless_core.groups.model import NO_TIMESTAMP, CommittedOffset, PersistedGroup, PersistedMember
from diskless_core.plugin.coordinator_store import Key
from diskless_core.protocol import messages, record_frames
from diskless_core.protocol.record_batch import RecordData
from diskless_core.protocol.record_frames import GROUP_RECORDS, GROUP_VALUE_VERSION, RecordFormatError

_EXPIRING_OFFSET_VERSION = 1
_OFFSET_VERSION = 3
_OFFSET_WITH_TOPIC_ID_VERSION = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRecord:
    """A partition's committed offset; `value` None deletes it."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None

    @property
    def table_key(self) -> Key:
        return (self.group_id, self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group's metadata; `value` None deletes it."""

    group_id: str
    value: PersistedGroup | None

    @property
    def table_key(self) -> Key:
        return (self.group_id,)


GroupsRecord = OffsetRecord | GroupRecord | ConsumerGroupRecord


def encode(record: GroupsRecord) -> RecordData:
    """The record as Apache Kafka 4 writes it."""
    value: bytes | None
    if isinstance(record, ConsumerGroupRecord):
        return codec.encode(record)
    if isinstance(record, GroupRecord):
        key = record_frames.encode_key(messages.GroupMetadataKey(group=record.group_id))
        value = encode_group(record.value) if record.value is not None else None
    else:
        key = record_frames.encode_key(
            messages.OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
        )
        value = _encode_offset(record.value) if record.value is not None else None
    return RecordData(key=key, value=value)


def decode(data: RecordData) -> GroupsRecord:
    """The record back.

    Raises:
        RecordFormatError: it is no record of a group or its offsets.
    """
    if data.key is None:
        raise RecordFormatError("a record of the groups shard needs a key")
    key: Any = GROUP_RECORDS.decode_key(data.key)
    if isinstance(key, messages.OffsetCommitKey):
        offset = _decode_offset(key, data.value) if data.value is not None else None
        return OffsetRecord(group_id=key.group, topic=key.topic, partition=key.partition, value=offset)
    if isinstance(key, messages.GroupMetadataKey):
        group = decode_group(data.value) if data.value is not None else None
        return GroupRecord(group_id=key.group, value=group)
    return codec.decode(key, data.value)


def encode_group(value: PersistedGroup) -> bytes:
    """A group's metadata as a GroupMetadataValue with its version in front."""
    return record_frames.encode_value(
        messages.GroupMetadataValue(
            protocol_type=value.protocol_type,
            generation=value.generation,
            protocol=value.protocol,
            leader=value.leader,
            current_state_timestamp=value.state_timestamp_ms,
            members=[_member_message(member) for member in value.members],
        ),
        GROUP_VALUE_VERSION,
    )


def _member_message(member: PersistedMember) -> Any:
    value_class: Any = messages.GroupMetadataValue
    return value_class.MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def decode_group(data: bytes) -> PersistedGroup:
    """A group's metadata back."""
    value: Any = GROUP_RECORDS.decode_value(messages.GroupMetadataKey(group=""), data)
    return PersistedGroup(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        state_timestamp_ms=value.current_state_timestamp,
        members=tuple(
            PersistedMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout,
                session_timeout_ms=member.session_timeout,
                subscription=bytes(member.subscription),
                assignment=bytes(member.assignment),
            )
            for member in value.members
        ),
    )


def _encode_offset(value: CommittedOffset) -> bytes:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        version = _EXPIRING_OFFSET_VERSION
    else:
        version = _OFFSET_WITH_TOPIC_ID_VERSION if value.topic_id is not None else _OFFSET_VERSION
    fields: dict[str, Any] = {"topic_id": value.topic_id} if value.topic_id is not None else {}
    message = messages.OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
        expire_timestamp=value.expire_timestamp_ms,
        **fields,
    )
    return record_frames.encode_value(message, version)


def _decode_offset(key: Any, data: bytes) -> CommittedOffset:
    value: Any = GROUP_RECORDS.decode_value(key, data)
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=value.expire_timestamp,
        topic_id=value.topic_id,
    )

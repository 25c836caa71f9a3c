"""The groups shard as a pure state machine: Kafka's `__consumer_offsets` records, and the tables that they fill."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diskless_core.coordinator.tables import Table, Transaction
from diskless_core.groups.consumer import codec
from diskless_core.groups.consumer.model import ConsumerGroup
from diskless_core.groups.consumer.records import ConsumerGroupRecord, replayed
from diskless_core.groups.model import NO_TIMESTAMP, CommittedOffset, PersistedGroup, PersistedMember
from diskless_core.plugin.coordinator_store import Column, ColumnType, Key, TableSpec, Value
from diskless_core.protocol import messages, record_frames
from diskless_core.protocol.record_batch import RecordData
from diskless_core.protocol.record_frames import RecordFormatError

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


def _offset_columns(value: CommittedOffset) -> tuple[Value, ...]:
    return (
        value.topic_id.bytes if value.topic_id is not None else None,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp_ms,
        value.expire_timestamp_ms,
    )


def _offset_from_row(row: tuple[Any, ...]) -> CommittedOffset:
    topic_id, offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = row[3:]
    return CommittedOffset(
        topic_id=uuid.UUID(bytes=topic_id) if topic_id is not None else None,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=commit_timestamp_ms,
        expire_timestamp_ms=expire_timestamp_ms,
    )


def _encode_group(value: PersistedGroup) -> bytes:
    return record_frames.encode_group_value(
        messages.GroupMetadataValue(
            protocol_type=value.protocol_type,
            generation=value.generation,
            protocol=value.protocol,
            leader=value.leader,
            current_state_timestamp=value.state_timestamp_ms,
            members=[_member_message(member) for member in value.members],
        )
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


def _decode_group(data: bytes) -> PersistedGroup:
    value: Any = record_frames.decode_group_value(messages.GroupMetadataKey(group=""), data)
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


def _group_from_row(row: tuple[Any, ...]) -> PersistedGroup:
    return _decode_group(row[1])


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
    return record_frames.encode_group_value(message, version)


def _decode_offset(key: Any, data: bytes) -> CommittedOffset:
    value: Any = record_frames.decode_group_value(key, data)
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=value.expire_timestamp,
        topic_id=value.topic_id,
    )


GROUP_OFFSETS: Table[CommittedOffset] = Table(
    spec=TableSpec(
        name="group_offsets",
        key=(
            Column("group_id", ColumnType.TEXT),
            Column("topic", ColumnType.TEXT),
            Column("partition", ColumnType.INTEGER),
        ),
        values=(
            Column("topic_id", ColumnType.BLOB),
            Column("offset", ColumnType.INTEGER),
            Column("leader_epoch", ColumnType.INTEGER),
            Column("metadata", ColumnType.TEXT),
            Column("commit_timestamp", ColumnType.INTEGER),
            Column("expire_timestamp", ColumnType.INTEGER),
        ),
    ),
    encode=_offset_columns,
    decode=_offset_from_row,
)
"""Committed offsets by group, topic and partition."""

GROUPS: Table[PersistedGroup] = Table(
    spec=TableSpec(
        name="groups",
        key=(Column("group_id", ColumnType.TEXT),),
        values=(Column("metadata", ColumnType.BLOB),),
    ),
    encode=lambda value: (_encode_group(value),),
    decode=_group_from_row,
)
"""Groups by id. `metadata` is a GroupMetadataValue with its version in front."""

CONSUMER_GROUPS: Table[ConsumerGroup] = Table(
    spec=TableSpec(
        name="consumer_groups",
        key=(Column("group_id", ColumnType.TEXT),),
        values=(Column("records", ColumnType.BLOB),),
    ),
    encode=lambda value: (codec.encode_group(value),),
    decode=lambda row: codec.decode_group(row[1]),
)
"""Groups of the consumer protocol by id. No group has a row here and in `GROUPS`."""


class GroupsMachine:
    """The state machine of `ShardKind.GROUPS`."""

    @property
    def tables(self) -> Sequence[Table[Any]]:
        return (GROUP_OFFSETS, GROUPS, CONSUMER_GROUPS)

    def encode(self, record: GroupsRecord) -> RecordData:
        """The record as Apache Kafka 4 writes it."""
        value: bytes | None
        if isinstance(record, ConsumerGroupRecord):
            return codec.encode(record)
        if isinstance(record, GroupRecord):
            key = record_frames.encode_group_key(messages.GroupMetadataKey(group=record.group_id))
            value = _encode_group(record.value) if record.value is not None else None
        else:
            key = record_frames.encode_group_key(
                messages.OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
            )
            value = _encode_offset(record.value) if record.value is not None else None
        return RecordData(key=key, value=value)

    def decode(self, data: RecordData) -> GroupsRecord:
        """The record back.

        Raises:
            RecordFormatError: it is no record of a group or its offsets.
        """
        if data.key is None:
            raise RecordFormatError("a record of the groups shard needs a key")
        key: Any = record_frames.decode_group_key(data.key)
        if isinstance(key, messages.OffsetCommitKey):
            offset = _decode_offset(key, data.value) if data.value is not None else None
            return OffsetRecord(group_id=key.group, topic=key.topic, partition=key.partition, value=offset)
        if isinstance(key, messages.GroupMetadataKey):
            group = _decode_group(data.value) if data.value is not None else None
            return GroupRecord(group_id=key.group, value=group)
        return codec.decode(key, data.value)

    def replay(self, record: GroupsRecord, tx: Transaction) -> None:
        """Put, change or delete the record's row."""
        if isinstance(record, ConsumerGroupRecord):
            _replay_consumers(record, tx)
            return
        table: Table[Any] = GROUPS if isinstance(record, GroupRecord) else GROUP_OFFSETS
        if record.value is None:
            tx.delete(table, record.table_key)
        else:
            tx.put(table, record.table_key, record.value)


def _replay_consumers(record: ConsumerGroupRecord, tx: Transaction) -> None:
    key = (record.group_id,)
    group = replayed(tx.get(CONSUMER_GROUPS, key), record)
    if group is None:
        tx.delete(CONSUMER_GROUPS, key)
    else:
        tx.put(CONSUMER_GROUPS, key, group)

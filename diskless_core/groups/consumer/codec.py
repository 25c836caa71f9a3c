"""Records of the consumer protocol as Apache Kafka writes them in `__consumer_offsets`, and a group as one value.

Groups are small in number of bytes and change as a whole, so the store keeps all records of a group in one column.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from diskless_core.groups.consumer.model import (
    Assigned,
    ConsumerGroup,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    ResolvedRegex,
    TopicIdPartition,
)
from diskless_core.groups.consumer.records import (
    ConsumerGroupRecord,
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    records_of,
    replayed,
)
from diskless_core.protocol import record_frames
from diskless_core.protocol.codec import CompiledRecord
from diskless_core.protocol.messages import consumer_group as messages
from diskless_core.protocol.record_batch import RecordData
from diskless_core.protocol.record_frames import RecordFormatError

OwnedTopic = messages.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions

_VERSION = 0
_SIZES = struct.Struct(">ii")


def encode(record: ConsumerGroupRecord) -> RecordData:
    """Key and value of a record; a deletion has no value."""
    key, value = _messages(record)
    return RecordData(
        key=record_frames.encode_key(key),
        value=record_frames.encode_value(value, _VERSION) if value is not None else None,
    )


def decode(key: Any, data: bytes | None) -> ConsumerGroupRecord:
    """The record of a decoded key and its value.

    Raises:
        RecordFormatError: the key is of another protocol, or the value malformed.
    """
    value: Any = record_frames.GROUP_RECORDS.decode_value(key, data) if data is not None else None
    match key:
        case messages.ConsumerGroupMetadataKey():
            return _group_record(key.group_id, value)
        case messages.ConsumerGroupTargetAssignmentMetadataKey():
            return _target_epoch_record(key.group_id, value)
        case messages.ConsumerGroupMemberMetadataKey():
            metadata = _metadata(value) if value is not None else None
            return MemberRecord(group_id=key.group_id, member_id=key.member_id, value=metadata)
        case messages.ConsumerGroupTargetAssignmentMemberKey():
            target = frozenset(_partitions(value.topic_partitions)) if value is not None else None
            return TargetRecord(group_id=key.group_id, member_id=key.member_id, value=target)
        case messages.ConsumerGroupCurrentMemberAssignmentKey():
            current = _current(value) if value is not None else None
            return CurrentRecord(group_id=key.group_id, member_id=key.member_id, value=current)
        case messages.ConsumerGroupRegularExpressionKey():
            resolved = _resolved(value) if value is not None else None
            return RegexRecord(group_id=key.group_id, regex=key.regular_expression, value=resolved)
    raise RecordFormatError(f"{type(key).__name__} is no key of the consumer protocol")


def encode_group(group: ConsumerGroup) -> bytes:
    """All records of a group, each with the sizes of key and value in front. The group's id is not in it."""
    pieces = []
    for record in records_of("", group):
        data = encode(record)
        key, value = data.key or b"", data.value or b""
        pieces += [_SIZES.pack(len(key), len(value)), key, value]
    return b"".join(pieces)


def decode_group(data: bytes) -> ConsumerGroup:
    """The group back."""
    group: ConsumerGroup | None = None
    pos = 0
    while pos < len(data):
        key_size, value_size = _SIZES.unpack_from(data, pos)
        start = pos + _SIZES.size
        value = start + key_size
        pos = value + value_size
        group = replayed(group, decode(record_frames.GROUP_RECORDS.decode_key(data[start:value]), data[value:pos]))
    return group or ConsumerGroup()


# --- to messages -----------------------------------------------------------------------------------------------------


def _messages(record: ConsumerGroupRecord) -> tuple[CompiledRecord, CompiledRecord | None]:
    group_id = record.group_id
    key: CompiledRecord
    match record:
        case GroupEpochRecord():
            key = messages.ConsumerGroupMetadataKey(group_id=group_id)
            if record.epoch is None:
                return key, None
            return key, messages.ConsumerGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)
        case TargetEpochRecord():
            key = messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
            if record.epoch is None:
                return key, None
            return key, messages.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=record.epoch, assignment_timestamp=record.timestamp_ms
            )
        case MemberRecord():
            key = messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=record.member_id)
            return key, _metadata_message(record.value) if record.value is not None else None
        case TargetRecord():
            key = messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=record.member_id)
            return key, _target_message(record.value) if record.value is not None else None
        case CurrentRecord():
            key = messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=record.member_id)
            return key, _current_message(record.value) if record.value is not None else None
        case RegexRecord():
            key = messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=record.regex)
            return key, _regex_message(record.value) if record.value is not None else None


def _metadata_message(value: MemberMetadata) -> messages.ConsumerGroupMemberMetadataValue:
    return messages.ConsumerGroupMemberMetadataValue(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=sorted(value.topic_names),
        subscribed_topic_regex=value.topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
    )


def _target_message(value: Iterable[TopicIdPartition]) -> messages.ConsumerGroupTargetAssignmentMemberValue:
    value_class = messages.ConsumerGroupTargetAssignmentMemberValue
    return value_class(
        topic_partitions=[
            value_class.TopicPartition(topic_id=topic_id, partitions=[one.partition for one in of_topic])
            for topic_id, of_topic in groupby(sorted(value), key=lambda one: one.topic_id)
        ]
    )


def _current_message(value: CurrentAssignment) -> messages.ConsumerGroupCurrentMemberAssignmentValue:
    value_class = messages.ConsumerGroupCurrentMemberAssignmentValue
    return value_class(
        member_epoch=value.epoch,
        previous_member_epoch=value.previous_epoch,
        state=int(value.state),
        assigned_partitions=_with_epochs(value.assigned),
        partitions_pending_revocation=_with_epochs(value.revoking),
    )


def _with_epochs(partitions: Assigned) -> list[OwnedTopic]:
    entries = []
    for topic_id, of_topic in groupby(sorted(partitions), key=lambda one: one.topic_id):
        keys = list(of_topic)
        numbers, epochs = [one.partition for one in keys], [partitions[one] for one in keys]
        entries.append(OwnedTopic(topic_id=topic_id, partitions=numbers, assignment_epochs=epochs))
    return entries


def _regex_message(value: ResolvedRegex) -> messages.ConsumerGroupRegularExpressionValue:
    return messages.ConsumerGroupRegularExpressionValue(
        topics=sorted(value.topics), metadata_version=0, timestamp=value.timestamp_ms
    )


# --- from messages ---------------------------------------------------------------------------------------------------


def _group_record(group_id: str, value: Any) -> GroupEpochRecord:
    if value is None:
        return GroupEpochRecord(group_id=group_id, epoch=None)
    return GroupEpochRecord(group_id=group_id, epoch=value.epoch, metadata_hash=value.metadata_hash)


def _target_epoch_record(group_id: str, value: Any) -> TargetEpochRecord:
    if value is None:
        return TargetEpochRecord(group_id=group_id, epoch=None)
    return TargetEpochRecord(group_id=group_id, epoch=value.assignment_epoch, timestamp_ms=value.assignment_timestamp)


def _metadata(value: Any) -> MemberMetadata:
    return MemberMetadata(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
    )


def _partitions(topics: Iterable[Any]) -> Iterable[TopicIdPartition]:
    return (TopicIdPartition(topic.topic_id, partition) for topic in topics for partition in topic.partitions)


def _current(value: Any) -> CurrentAssignment:
    try:
        state = MemberState(value.state)
    except ValueError as error:
        raise RecordFormatError(f"there is no member state {value.state}") from error
    return CurrentAssignment(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=state,
        assigned=_since(value.assigned_partitions, value.member_epoch),
        revoking=_since(value.partitions_pending_revocation, value.member_epoch),
    )


def _since(topics: Iterable[Any], member_epoch: int) -> Assigned:
    """Records from before KIP-1251 do not say since when, so from the present epoch on."""
    since: dict[TopicIdPartition, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or [member_epoch] * len(topic.partitions)
        if len(epochs) != len(topic.partitions):
            raise RecordFormatError("there is not one assignment epoch for each partition")
        pairs = zip(topic.partitions, epochs, strict=True)
        since |= {TopicIdPartition(topic.topic_id, partition): epoch for partition, epoch in pairs}
    return since


def _resolved(value: Any) -> ResolvedRegex:
    return ResolvedRegex(topics=frozenset(value.topics), timestamp_ms=value.timestamp)

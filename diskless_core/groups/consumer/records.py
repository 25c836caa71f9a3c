"""The records of a group of the consumer protocol, and what each does to the group. `replayed` is the only mutator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from diskless_core.groups.consumer.model import (
    ConsumerGroup,
    CurrentAssignment,
    MemberMetadata,
    Partitions,
    ResolvedRegex,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEpochRecord:
    """ConsumerGroupMetadata: the group's epoch, and the hash of its topics; epoch None deletes the group."""

    group_id: str
    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """ConsumerGroupMemberMetadata; None removes the member."""

    group_id: str
    member_id: str
    value: MemberMetadata | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpochRecord:
    """ConsumerGroupTargetAssignmentMetadata; None forgets it."""

    group_id: str
    epoch: int | None
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    """ConsumerGroupTargetAssignmentMember; None forgets it."""

    group_id: str
    member_id: str
    value: Partitions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRecord:
    """ConsumerGroupCurrentMemberAssignment; None forgets it."""

    group_id: str
    member_id: str
    value: CurrentAssignment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexRecord:
    """ConsumerGroupRegularExpression; None forgets it."""

    group_id: str
    regex: str
    value: ResolvedRegex | None


ConsumerGroupRecord = GroupEpochRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord | RegexRecord


def replayed(group: ConsumerGroup | None, record: ConsumerGroupRecord) -> ConsumerGroup | None:
    """The group after a record; None when there is none."""
    if isinstance(record, GroupEpochRecord) and record.epoch is None:
        return None
    group = group or ConsumerGroup()
    match record:
        case GroupEpochRecord(epoch=int(epoch), metadata_hash=metadata_hash):
            return replace(group, epoch=epoch, metadata_hash=metadata_hash)
        case MemberRecord():
            return replace(group, members=_with(group.members, record.member_id, record.value))
        case TargetEpochRecord():
            return replace(group, target_epoch=record.epoch or 0)
        case TargetRecord():
            return replace(group, targets=_with(group.targets, record.member_id, record.value))
        case CurrentRecord():
            return replace(group, current=_with(group.current, record.member_id, record.value))
        case RegexRecord():
            return replace(group, regexes=_with(group.regexes, record.regex, record.value))
    return group


def _with(values: Mapping[str, T], key: str, value: T | None) -> Mapping[str, T]:
    if value is not None:
        return {**values, key: value}
    return {one: other for one, other in values.items() if one != key}


def removal(group_id: str, member_id: str) -> Iterator[ConsumerGroupRecord]:
    """What removes a member."""
    yield CurrentRecord(group_id=group_id, member_id=member_id, value=None)
    yield TargetRecord(group_id=group_id, member_id=member_id, value=None)
    yield MemberRecord(group_id=group_id, member_id=member_id, value=None)


def tombstones(group_id: str, group: ConsumerGroup) -> Iterator[ConsumerGroupRecord]:
    """What deletes a group with all that belongs to it."""
    for member_id in sorted({*group.members, *group.current, *group.targets}):
        yield from removal(group_id, member_id)
    for regex in sorted(group.regexes):
        yield RegexRecord(group_id=group_id, regex=regex, value=None)
    yield TargetEpochRecord(group_id=group_id, epoch=None)
    yield GroupEpochRecord(group_id=group_id, epoch=None)


def records_of(group_id: str, group: ConsumerGroup) -> Iterator[ConsumerGroupRecord]:
    """Records that make this group out of nothing."""
    yield GroupEpochRecord(group_id=group_id, epoch=group.epoch, metadata_hash=group.metadata_hash)
    for member_id, metadata in group.members.items():
        yield MemberRecord(group_id=group_id, member_id=member_id, value=metadata)
    for regex, resolved in group.regexes.items():
        yield RegexRecord(group_id=group_id, regex=regex, value=resolved)
    yield TargetEpochRecord(group_id=group_id, epoch=group.target_epoch)
    for member_id, partitions in group.targets.items():
        yield TargetRecord(group_id=group_id, member_id=member_id, value=partitions)
    for member_id, current in group.current.items():
        yield CurrentRecord(group_id=group_id, member_id=member_id, value=current)

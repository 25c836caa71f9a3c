"""Whether a group of the consumer protocol lets somebody commit or fetch its offsets."""

from __future__ import annotations

from collections.abc import Iterable

from diskless_core.groups.consumer.model import ConsumerGroup, CurrentAssignment, TopicIdPartition
from diskless_core.protocol.errors import ErrorCode

_MEMBER_EPOCHS_SINCE = 9


def check_commit(
    group: ConsumerGroup, member_id: str, epoch: int, version: int, partitions: Iterable[TopicIdPartition]
) -> ErrorCode:
    """Whether an OffsetCommit may be stored.

    A negative epoch comes from clients that are no members; it is good for an empty group. With an older epoch a
    member may commit only what it has had since then (KIP-1251).
    """
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if version < _MEMBER_EPOCHS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    current = group.current_of(member_id)
    if epoch == current.epoch:
        return ErrorCode.NONE
    if epoch > current.epoch or not all(_had(current, one, epoch) for one in partitions):
        return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.NONE


def _had(current: CurrentAssignment, partition: TopicIdPartition, epoch: int) -> bool:
    since = current.assigned.get(partition, current.revoking.get(partition))
    return since is not None and since <= epoch


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Whether an OffsetFetch may be answered; one that names no member may."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    if member_id is None or member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch != group.current_of(member_id).epoch:
        return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.NONE

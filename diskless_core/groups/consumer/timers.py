"""The timers of members: which run follows from the records that a request left behind."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from diskless_core.groups.consumer.model import LEAVE_STATIC_EPOCH, ConsumerGroup, MemberState
from diskless_core.groups.consumer.records import ConsumerGroupRecord, CurrentRecord, MemberRecord
from diskless_core.groups.timers import GroupTimers


class TimerKind(StrEnum):
    """What a timer is for."""

    SESSION = "session"
    """The member did not heartbeat."""
    REBALANCE = "rebalance"
    """The member did not give up what it has to."""


class MemberTimer(NamedTuple):
    """One timer of a group."""

    kind: TimerKind
    member_id: str


Timers = GroupTimers[MemberTimer]


def start_session(timers: Timers, group_id: str, member_id: str, timeout_ms: int) -> None:
    """Begin a member's session, or prolong it."""
    timers.set(group_id, MemberTimer(TimerKind.SESSION, member_id), timeout_ms)


def follow(timers: Timers, group_id: str, group: ConsumerGroup, records: Iterable[ConsumerGroupRecord]) -> None:
    """Start and stop what records call for. `group` is what they led to; sessions begin elsewhere."""
    for record in records:
        if isinstance(record, MemberRecord) and record.value is None:
            for kind in TimerKind:
                timers.cancel(group_id, MemberTimer(kind, record.member_id))
        elif isinstance(record, CurrentRecord) and record.member_id in group.members:
            _follow_rebalance(timers, group_id, group, record.member_id)


def restart(timers: Timers, group_id: str, group: ConsumerGroup, session_timeout_ms: int) -> None:
    """Give every member of a group that was loaded its time anew."""
    for member_id in group.members:
        start_session(timers, group_id, member_id, session_timeout_ms)
        _follow_rebalance(timers, group_id, group, member_id)


def has_failed(group: ConsumerGroup, timer: MemberTimer) -> bool:
    """Whether a timer that ran out still means that its member is to be fenced."""
    if timer.member_id not in group.members:
        return False
    return timer.kind is TimerKind.SESSION or _has_to_revoke(group, timer.member_id)


def _follow_rebalance(timers: Timers, group_id: str, group: ConsumerGroup, member_id: str) -> None:
    timer = MemberTimer(TimerKind.REBALANCE, member_id)
    if _has_to_revoke(group, member_id):
        timers.set(group_id, timer, group.members[member_id].rebalance_timeout_ms)
    else:
        timers.cancel(group_id, timer)


def _has_to_revoke(group: ConsumerGroup, member_id: str) -> bool:
    current = group.current_of(member_id)
    return current.state is MemberState.UNREVOKED_PARTITIONS and current.epoch != LEAVE_STATIC_EPOCH

"""What a heartbeat does to a group (KIP-848): joining, staying, leaving, and being fenced. No I/O, no clock.

The first heartbeat after a change raises the group epoch and makes a new target assignment; every heartbeat takes its
member a step towards it. Nobody waits for anybody, except for partitions that are not given up yet.
"""

from __future__ import annotations

from dataclasses import replace

from diskless_core.groups.consumer import topic_regex
from diskless_core.groups.consumer.changes import Circumstances, GroupChanges
from diskless_core.groups.consumer.model import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    CurrentAssignment,
    MemberMetadata,
)
from diskless_core.groups.consumer.reconcile import Target, reconciled
from diskless_core.groups.consumer.records import CurrentRecord, MemberRecord, TargetRecord, removal
from diskless_core.groups.consumer.requests import (
    UNCHANGED_TIMEOUT,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatRefusedError,
)
from diskless_core.groups.consumer.subscription import SubscribedTopics
from diskless_core.groups.consumer.topic_regex import InvalidRegexError
from diskless_core.protocol.errors import ErrorCode


def heartbeat(changes: GroupChanges, request: Heartbeat, circumstances: Circumstances) -> HeartbeatAnswer:
    """Answer a member that joins or stays.

    Raises:
        HeartbeatRefusedError: it may not; no record that was emitted counts.
    """
    member_id = request.member_id or request.new_member_id
    if changes.group.epoch == 0:
        changes.raise_epoch(metadata_hash=0)
    _require_room(changes, member_id, circumstances.max_size)
    if request.instance_id is None:
        _admit_dynamic(changes, request, member_id)
    else:
        _admit_static(changes, request, member_id, request.instance_id)
    before = changes.group.current_of(member_id)
    subscription_changed = _update_member(changes, request, member_id)
    changes.resolve_regexes(circumstances)
    subscribed = SubscribedTopics.look_up(changes.group.subscribed_topics, circumstances.topics)
    if subscription_changed or subscribed.hash != changes.group.metadata_hash:
        changes.raise_epoch(subscribed.hash)
    changes.assign(subscribed, circumstances)
    after = _reconcile(changes, request, member_id)
    has_changed = before.assigned.keys() != after.assigned.keys()
    is_asked = request.epoch == JOIN_EPOCH or request.says_everything
    is_news = has_changed or is_asked or circumstances.may_have_missed
    return HeartbeatAnswer(
        member_id=member_id, epoch=after.epoch, assignment=frozenset(after.assigned) if is_news else None
    )


def leave(changes: GroupChanges, request: Heartbeat) -> HeartbeatAnswer:
    """Let a member go. A static one that will be back keeps its partitions for its session timeout.

    Raises:
        HeartbeatRefusedError: it is none.
    """
    member_id = request.member_id
    if request.instance_id is not None:
        _require_owner(changes, member_id, request.instance_id)
    elif member_id not in changes.group.members:
        raise _unknown_member(changes, member_id)
    if request.epoch == LEAVE_STATIC_EPOCH:
        current = changes.group.current_of(member_id)
        changes.set_current(member_id, replace(current, epoch=LEAVE_STATIC_EPOCH, revoking={}))
    else:
        changes.remove_member(member_id)
    return HeartbeatAnswer(member_id=member_id, epoch=request.epoch)


# --- who may ---------------------------------------------------------------------------------------------------------


def _require_room(changes: GroupChanges, member_id: str, max_size: int) -> None:
    members = changes.group.members
    if len(members) >= max_size and member_id not in members:
        message = f"The consumer group has reached its maximum capacity of {max_size} members."
        raise HeartbeatRefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def _admit_dynamic(changes: GroupChanges, request: Heartbeat, member_id: str) -> None:
    if member_id in changes.group.members:
        _check_epoch(request, changes.group.current_of(member_id))
    elif request.epoch != JOIN_EPOCH:
        raise _unknown_member(changes, member_id)


def _admit_static(changes: GroupChanges, request: Heartbeat, member_id: str, instance_id: str) -> None:
    if request.epoch != JOIN_EPOCH:
        _require_owner(changes, member_id, instance_id)
        _check_epoch(request, changes.group.current_of(member_id))
        return
    owner = changes.group.static_member_id(instance_id)
    if owner is None:
        return
    if changes.group.current_of(owner).epoch != LEAVE_STATIC_EPOCH:
        message = f"Static member {member_id} cannot join: the instance id {instance_id} is owned by member {owner}."
        raise HeartbeatRefusedError(ErrorCode.UNRELEASED_INSTANCE_ID, message)
    _replace_static_member(changes, owner, member_id)


def _require_owner(changes: GroupChanges, member_id: str, instance_id: str) -> None:
    owner = changes.group.static_member_id(instance_id)
    if owner is None:
        raise HeartbeatRefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if owner != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {owner}."
        raise HeartbeatRefusedError(ErrorCode.FENCED_INSTANCE_ID, message)


def _check_epoch(request: Heartbeat, current: CurrentAssignment) -> None:
    """A member may come with its epoch, with 0 to begin anew, or, having missed an answer, with the one before."""
    if request.epoch in (JOIN_EPOCH, current.epoch):
        return
    owns_no_more = request.owned is not None and request.owned <= current.assigned.keys()
    if request.epoch > current.epoch or request.epoch != current.previous_epoch or not owns_no_more:
        relation = "greater" if request.epoch > current.epoch else "smaller"
        message = (
            f"The consumer group member has a {relation} member epoch ({request.epoch}) than the one known by the "
            f"group coordinator ({current.epoch}). The member must abandon all its partitions and rejoin."
        )
        raise HeartbeatRefusedError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _unknown_member(changes: GroupChanges, member_id: str) -> HeartbeatRefusedError:
    message = f"Member {member_id} is not a member of group {changes.group_id}."
    return HeartbeatRefusedError(ErrorCode.UNKNOWN_MEMBER_ID, message)


def _replace_static_member(changes: GroupChanges, old_id: str, new_id: str) -> None:
    """Whoever comes back under a static identity has what its predecessor had."""
    group, group_id = changes.group, changes.group_id
    current = replace(group.current_of(old_id), epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    changes.emit(
        *removal(group_id, old_id),
        MemberRecord(group_id=group_id, member_id=new_id, value=group.members[old_id]),
        TargetRecord(group_id=group_id, member_id=new_id, value=group.target_of(old_id)),
        CurrentRecord(group_id=group_id, member_id=new_id, value=current),
    )


# --- what changes ----------------------------------------------------------------------------------------------------


def _update_member(changes: GroupChanges, request: Heartbeat, member_id: str) -> bool:
    """Take over what a member says of itself; whether it subscribes to something else now."""
    known = changes.group.members.get(member_id)
    old = known or MemberMetadata()
    new = MemberMetadata(
        instance_id=_or_else(request.instance_id, old.instance_id),
        rack_id=_or_else(request.rack_id, old.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=old.topic_names if request.topic_names is None else request.topic_names,
        topic_regex=_or_else(request.topic_regex, old.topic_regex) or None,
        rebalance_timeout_ms=old.rebalance_timeout_ms
        if request.rebalance_timeout_ms == UNCHANGED_TIMEOUT
        else request.rebalance_timeout_ms,
        server_assignor=_or_else(request.server_assignor, old.server_assignor),
    )
    if new.topic_regex is not None and new.topic_regex != old.topic_regex:
        _check_regex(new.topic_regex)
    if new != known:
        changes.emit(MemberRecord(group_id=changes.group_id, member_id=member_id, value=new))
    return (new.topic_names, new.topic_regex) != (old.topic_names, old.topic_regex)


def _or_else(said: str | None, known: str | None) -> str | None:
    return known if said is None else said


def _check_regex(regex: str) -> None:
    try:
        topic_regex.check(regex)
    except InvalidRegexError as error:
        raise HeartbeatRefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


def _reconcile(changes: GroupChanges, request: Heartbeat, member_id: str) -> CurrentAssignment:
    group = changes.group
    current = reconciled(
        group.current_of(member_id),
        Target(epoch=group.target_epoch, partitions=group.target_of(member_id)),
        request.owned,
        lambda: frozenset(group.owned_by_others(member_id)),
    )
    changes.set_current(member_id, current)
    return current

"""SyncGroup, Heartbeat, LeaveGroup and commits in the classic protocol."""

from __future__ import annotations

import pytest

from diskless_core.groups.effects import GroupState, Identity, Timer, TimerKind
from diskless_core.groups.settings import GroupSettings
from diskless_core.protocol.errors import ErrorCode
from tests.unit.groups.script import Script

SYNC = Timer(TimerKind.SYNC)
JOIN = Timer(TimerKind.JOIN)


@pytest.fixture
def pair(script):
    """Two members that have joined and not synced yet."""
    first, second = script.join(), script.join()
    script.end_join_phase()
    script.end_join_phase()
    return script.joined(first).member_id, script.joined(second).member_id


def test_an_assignment_is_answered_only_when_it_is_stored(script, pair):
    leader, follower = pair
    leading = script.sync(leader, 1, assign={leader: b"0", follower: b"1"})
    following = script.sync(follower, 1)
    assert leading not in script.answers
    assert following not in script.answers
    assert script.state is GroupState.COMPLETING_REBALANCE
    script.store()
    assert script.synced(leading).assignment == b"0"
    assert script.synced(following).assignment == b"1"
    assert script.synced(following).protocol == "range"
    assert script.synced(following).protocol_type == "consumer"
    assert script.state is GroupState.STABLE


def test_what_is_stored_is_the_generation_with_its_members(script, pair):
    leader, follower = pair
    script.sync(leader, 1, assign={leader: b"0", "stranger": b"x"})
    script.store()
    (group,) = script.stored
    assert (group.protocol_type, group.generation, group.protocol, group.leader) == ("consumer", 1, "range", leader)
    assert [(one.member_id, one.subscription, one.assignment) for one in group.members] == [
        (leader, b"meta", b"0"),
        (follower, b"meta", b""),
    ]


def test_a_follower_may_sync_before_the_leader(script, pair):
    leader, follower = pair
    following = script.sync(follower, 1)
    assert following not in script.answers
    script.sync(leader, 1, assign={follower: b"1"})
    script.store()
    assert script.synced(following).assignment == b"1"


def test_a_follower_may_sync_after_the_group_is_stable(script, pair):
    leader, follower = pair
    script.sync(leader, 1, assign={follower: b"1"})
    script.store()
    assert script.synced(script.sync(follower, 1)).assignment == b"1"


def test_a_leader_that_syncs_twice_is_stored_once(script, pair):
    leader, _follower = pair
    first = script.sync(leader, 1, assign={leader: b"0"})
    second = script.sync(leader, 1, assign={leader: b"other"})
    assert script.synced(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    script.store()
    assert len(script.stored) == 1
    assert script.synced(second).assignment == b"0"


def test_an_assignment_stored_after_the_next_rebalance_began_is_not_given_out(script, pair):
    leader, follower = pair
    waiting = script.sync(leader, 1, assign={leader: b"old"})
    again = script.join(leader, protocols={"range": b"new topics"})
    assert script.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    script.join(follower)
    assert script.joined(again).generation == 2
    waiting = script.sync(follower, 2)
    script.store()
    assert script.state is GroupState.COMPLETING_REBALANCE
    assert waiting not in script.answers


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "who", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "m-1", "generation": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "m-1", "generation": 1, "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "m-1", "generation": 1, "protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "m-1", "generation": 1, "protocol_type": "x"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(script, pair, fields, error):
    answer = script.synced(script.sync(**fields))
    assert answer.error is error
    assert answer.protocol is None
    assert answer.assignment == b""


def test_a_sync_that_names_the_right_protocol_is_accepted(script, pair):
    request = script.sync("m-1", 1, protocol_type="consumer", protocol="range", assign={})
    script.store()
    assert script.synced(request).error is ErrorCode.NONE


def test_a_sync_during_a_rebalance_is_sent_to_rejoin(script):
    leader, follower = script.stable(2)
    script.join(leader)
    assert script.synced(script.sync(follower, 1)).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_out_after_the_rebalance_timeout(script, pair):
    leader, follower = pair
    waiting = script.sync(follower, 1)
    assert script.timers[SYNC] == 60_000
    script.expire(SYNC)
    assert script.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in script.group.roster
    assert script.state is GroupState.PREPARING_REBALANCE


def test_the_sync_timer_ends_with_the_last_sync(script, pair):
    leader, follower = pair
    script.sync(leader, 1)
    script.store()
    assert SYNC in script.timers
    script.sync(follower, 1)
    assert SYNC not in script.timers


def test_who_left_without_a_sync_is_not_waited_for_in_the_next_generation(script, pair):
    leader, follower = pair
    script.leave(follower)
    script.join(leader)
    script.sync(leader, 2)
    assert SYNC not in script.timers


# --- heartbeats -------------------------------------------------------------------------------------------------------


def test_a_heartbeat_says_when_to_rejoin(script):
    leader, follower = script.stable(2)
    assert script.heartbeat(follower, 1) is ErrorCode.NONE
    script.join(leader)
    assert script.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    script.join(follower)
    assert script.heartbeat(follower, 2) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("member", "generation", "instance", "error"),
    [
        ("who", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m-1", 0, None, ErrorCode.ILLEGAL_GENERATION),
        ("m-1", 1, "i", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_heartbeat_that_does_not_fit_is_refused(script, member, generation, instance, error):
    script.stable(1)
    assert script.heartbeat(member, generation, instance) is error


def test_a_heartbeat_prolongs_the_session(script):
    (member,) = script.stable(1)
    script.timers.clear()
    script.heartbeat(member, 1)
    assert script.session_ms(member) == 10_000


def test_a_member_whose_session_ends_is_out_and_the_others_rebalance(script):
    leader, follower = script.stable(2)
    script.expire_session(leader)
    assert script.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    request = script.join(follower)
    assert script.joined(request).leader == follower


def test_a_group_whose_last_member_fails_is_empty_and_stored_so(script):
    (member,) = script.stable(1)
    script.expire_session(member)
    script.store()
    assert script.state is GroupState.EMPTY
    group = script.stored[-1]
    assert (group.generation, group.members, group.protocol, group.leader) == (2, (), None, None)
    assert group.protocol_type == "consumer"
    assert JOIN not in script.timers


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_who_leaves_makes_the_others_rebalance(script):
    leader, follower = script.stable(2)
    assert script.leave(leader) == [ErrorCode.NONE]
    assert script.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert script.session_ms(leader) is None


def test_several_members_leave_in_one_rebalance(script):
    ids = script.stable(4)
    before = len(script.states)
    assert script.leave(ids[0], "who", ids[1], ids[0]) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert script.states[before:] == [GroupState.PREPARING_REBALANCE]


def test_the_last_to_leave_empties_the_group(script):
    ids = script.stable(2)
    script.leave(*ids)
    assert script.state is GroupState.EMPTY
    assert script.group.generation == 2


def test_who_leaves_during_a_rebalance_is_not_waited_for(script):
    leader, follower = script.stable(2)
    request = script.join(leader)
    script.leave(follower)
    assert script.joined(request).generation == 2


def test_who_leaves_while_it_waits_gets_an_answer(script, pair):
    leader, follower = pair
    syncing = script.sync(follower, 1)
    script.leave(follower)
    assert script.synced(syncing).error is ErrorCode.UNKNOWN_MEMBER_ID
    joining = script.join(leader, protocols={"range": b"x"})
    newcomer = script.join(needs_id=True)
    script.leave(leader)
    assert script.joined(newcomer).error is ErrorCode.MEMBER_ID_REQUIRED
    assert joining in script.answers


def test_an_expected_member_may_leave_and_disturbs_nobody(script):
    script.stable(1)
    script.join(needs_id=True)
    assert script.leave("m-2") == [ErrorCode.NONE]
    assert script.state is GroupState.STABLE
    assert script.session_ms("m-2") is None


def test_nobody_can_leave_without_saying_who(script):
    script.stable(1)
    assert script.leave("") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert script.leave(Identity(member_id="", instance_id="nobody")) == [ErrorCode.UNKNOWN_MEMBER_ID]


# --- commits ----------------------------------------------------------------------------------------------------------


def test_simple_consumers_commit_to_empty_groups_only(script):
    assert script.commit() is ErrorCode.NONE
    assert script.commit("somebody", -1) is ErrorCode.NONE
    script.stable(1)
    assert script.commit() is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_commit_with_the_present_generation(script):
    _leader, follower = script.stable(2)
    assert script.commit(follower, 1) is ErrorCode.NONE
    assert script.commit(follower, 0) is ErrorCode.ILLEGAL_GENERATION
    assert script.commit(follower, -1) is ErrorCode.ILLEGAL_GENERATION
    assert script.commit("who", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_counts_as_a_heartbeat(script):
    (member,) = script.stable(1)
    script.timers.clear()
    script.commit(member, 1)
    assert script.session_ms(member) == 10_000


def test_members_may_commit_what_they_have_until_the_join_phase_ends(script):
    leader, follower = script.stable(2)
    script.join(leader)
    assert script.commit(follower, 1) is ErrorCode.NONE
    script.join(follower)
    assert script.commit(follower, 1) is ErrorCode.ILLEGAL_GENERATION
    assert script.commit(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_generation_is_unknown_to_a_group_without_members(script):
    assert script.commit("m-1", 3) is ErrorCode.UNKNOWN_MEMBER_ID


# --- restart ----------------------------------------------------------------------------------------------------------


def test_a_restored_group_goes_on_where_it_was(script):
    leader, follower = script.stable(2)
    restored = Script(group=type(script.group).restored("g", script.stored[-1], GroupSettings()))
    assert restored.state is GroupState.STABLE
    assert restored.session_ms(leader) == restored.session_ms(follower) == 10_000
    assert restored.heartbeat(follower, 1) is ErrorCode.NONE
    assert restored.synced(restored.sync(follower, 1)).assignment == f"assigned to {follower}".encode()
    assert restored.group.roster.leader == leader
    restored.expire_session(leader)
    assert restored.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_restored_empty_group_keeps_its_generation(script):
    (member,) = script.stable(1)
    script.leave(member)
    script.store()
    restored = Script(group=type(script.group).restored("g", script.stored[-1], GroupSettings()))
    assert restored.state is GroupState.EMPTY
    request = restored.join()
    restored.end_join_phase()
    assert restored.joined(request).generation == 3


def test_a_restored_group_that_is_too_large_now_rebalances_at_once(script):
    script.stable(3)
    restored = Script(group=type(script.group).restored("g", script.stored[-1], GroupSettings(max_size=2)))
    assert restored.state is GroupState.PREPARING_REBALANCE

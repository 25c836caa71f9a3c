"""Static membership (`group.instance.id`) in the classic protocol."""

from __future__ import annotations

from diskless_core.groups.effects import GroupState, Identity, Timer, TimerKind
from diskless_core.protocol.errors import ErrorCode
from tests.unit.groups.script import Script


def test_a_static_member_gets_in_without_a_second_join(script):
    request = script.join(instance="i", needs_id=True)
    script.end_join_phase()
    assert script.joined(request).member_id == "i-1"
    assert script.joined(request).members[0].instance_id == "i"


def test_a_static_follower_that_comes_back_keeps_its_assignment_without_a_rebalance(script):
    leader, follower = script.stable(2, static=True)
    back = script.join(instance="i1")
    assert back not in script.answers, "its new id is stored first"
    script.store()
    answer = script.joined(back)
    assert (answer.error, answer.generation, answer.leader, answer.members) == (ErrorCode.NONE, 1, leader, ())
    assert answer.member_id not in (leader, follower)
    assert script.state is GroupState.STABLE
    again = script.sync(answer.member_id, 1, instance="i1")
    assert script.synced(again).assignment == f"assigned to {follower}".encode()
    assert answer.member_id in {one.member_id for one in script.stored[-1].members}
    assert script.session_ms(follower) is None


def test_a_static_member_that_comes_back_still_owes_its_sync():
    script = Script()
    first, second = script.join(instance="i0"), script.join(instance="i1")
    script.end_join_phase()
    script.end_join_phase()
    script.sync(script.joined(first).member_id, 1, instance="i0")
    script.store()
    back = script.join(instance="i1")
    script.store()
    assert script.joined(second).member_id != script.joined(back).member_id
    script.expire(Timer(TimerKind.SYNC))
    assert script.joined(back).member_id not in script.group.roster


def test_a_static_leader_that_comes_back_is_kept_from_assigning_by_the_old_leaders_name(script):
    leader, _ = script.stable(2, static=True)
    back = script.join(instance="i0")
    script.store()
    answer = script.joined(back)
    assert answer.leader == leader != answer.member_id
    assert answer.members == ()
    assert script.group.roster.leader == answer.member_id


def test_a_static_leader_that_understands_it_leads_on_without_assigning(script):
    script.stable(2, static=True)
    back = script.join(instance="i0", can_skip=True)
    script.store()
    answer = script.joined(back)
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert len(answer.members) == 2


def test_a_static_follower_never_skips(script):
    script.stable(2, static=True)
    back = script.join(instance="i1", can_skip=True)
    script.store()
    assert not script.joined(back).skip_assignment
    assert script.joined(back).members == ()


def test_a_static_member_that_changes_the_vote_makes_the_group_rebalance(script):
    script.stable(2, static=True, protocols={"range": b"1", "sticky": b"2"})
    script.join(instance="i1", protocols={"sticky": b"2"})
    assert script.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_comes_back_in_the_sync_phase_starts_over(script):
    first, second = script.join(instance="i0"), script.join(instance="i1")
    script.end_join_phase()
    script.end_join_phase()
    old = script.joined(second).member_id
    waiting = script.sync(old, 1, instance="i1")
    back = script.join(instance="i1")
    assert script.synced(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert script.state is GroupState.PREPARING_REBALANCE
    script.join(script.joined(first).member_id, instance="i0")
    assert script.joined(back).generation == 2


def test_of_two_clients_with_one_instance_id_the_newer_stays(script):
    first = script.join(instance="i")
    second = script.join(instance="i")
    assert script.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    script.end_join_phase()
    answer = script.joined(second)
    assert answer.error is ErrorCode.NONE
    old = script.joined(first).member_id
    assert script.heartbeat(old, 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert script.commit(old, 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert script.synced(script.sync(old, 1, instance="i")).error is ErrorCode.FENCED_INSTANCE_ID
    assert script.joined(script.join(old, instance="i")).error is ErrorCode.FENCED_INSTANCE_ID
    assert script.leave(Identity(member_id=old, instance_id="i")) == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_static_member_rejoins_with_its_id_like_any_other(script):
    _leader, follower = script.stable(2, static=True)
    answer = script.joined(script.join(follower, instance="i1"))
    assert (answer.error, answer.generation) == (ErrorCode.NONE, 1)


def test_a_rebalance_does_not_throw_out_static_members_that_are_away(script):
    leader, follower = script.stable(2, static=True)
    request = script.join(leader, instance="i0")
    script.end_join_phase()
    assert {one.member_id for one in script.joined(request).members} == {leader, follower}


def test_a_rebalance_that_no_static_member_comes_to_is_tried_again_until_their_sessions_end(script):
    leader, follower = script.stable(2, static=True)
    script.join(follower, instance="i1", protocols={"range": b"x"})
    script.leave(Identity(member_id=follower, instance_id="i1"))
    assert script.state is GroupState.PREPARING_REBALANCE
    script.end_join_phase()
    assert script.state is GroupState.PREPARING_REBALANCE
    script.expire_session(leader)
    assert script.state is GroupState.EMPTY


def test_an_administrator_removes_a_static_member_by_its_instance_id(script):
    _leader, follower = script.stable(2, static=True)
    assert script.leave(Identity(member_id="", instance_id="i1")) == [ErrorCode.NONE]
    assert follower not in script.group.roster
    assert script.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_gone_for_longer_than_its_session_is_out(script):
    _, follower = script.stable(2, static=True)
    script.expire_session(follower)
    request = script.join(instance="i1")
    assert request not in script.answers
    assert script.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_whose_return_is_overtaken_by_a_rebalance_is_answered_by_it(script):
    leader, _ = script.stable(2, static=True)
    back = script.join(instance="i1")
    script.join(leader, instance="i0")
    assert script.joined(back).generation == 2
    script.store()
    assert script.state is GroupState.COMPLETING_REBALANCE


def test_a_static_member_whose_session_ends_while_its_return_is_stored_has_a_new_one_from_the_answer_on(script):
    script.stable(2, static=True)
    back = script.join(instance="i1")
    new_id = script.group.roster.static_member_id("i1")
    script.expire_session(new_id)
    script.store()
    assert script.joined(back).member_id == new_id
    assert script.session_ms(new_id) is not None


def test_a_given_id_with_an_instance_id_is_nobody(script):
    script.join(needs_id=True)
    assert script.joined(script.join("m-1", instance="i")).error is ErrorCode.UNKNOWN_MEMBER_ID

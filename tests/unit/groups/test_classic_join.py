"""JoinGroup in the classic protocol: who gets in, under which name, and when the answer comes."""

from __future__ import annotations

import pytest

from diskless_core.groups.effects import GroupState, Timer, TimerKind
from diskless_core.groups.settings import GroupSettings
from diskless_core.protocol.errors import ErrorCode
from tests.unit.groups.script import Script

JOIN = Timer(TimerKind.JOIN)
SYNC = Timer(TimerKind.SYNC)


def test_a_first_member_waits_for_the_initial_delay_and_then_leads(script):
    request = script.join()
    assert script.state is GroupState.PREPARING_REBALANCE
    assert request not in script.answers
    assert script.timers[JOIN] == 3_000
    script.end_join_phase()
    answer = script.joined(request)
    assert answer.error is ErrorCode.NONE
    assert answer.generation == 1
    assert answer.leader == answer.member_id == "m-1"
    assert answer.protocol_type == "consumer"
    assert answer.protocol == "range"
    assert [(one.member_id, one.metadata) for one in answer.members] == [("m-1", b"meta")]
    assert script.state is GroupState.COMPLETING_REBALANCE


def test_only_the_leader_learns_of_the_members(script):
    first, second = script.join(), script.join()
    script.end_join_phase()
    script.end_join_phase()
    assert len(script.joined(first).members) == 2
    assert script.joined(second).members == ()
    assert script.joined(second).leader == script.joined(first).member_id


def test_the_initial_delay_is_prolonged_while_members_come_up_to_the_rebalance_timeout():
    script = Script(GroupSettings(initial_rebalance_delay_ms=3_000))
    requests = [script.join(rebalance_ms=7_000)]
    delays = [script.timers[JOIN]]
    for _ in range(5):
        requests.append(script.join(rebalance_ms=7_000))
        script.end_join_phase()
        if requests[0] in script.answers:
            break
        delays.append(script.timers[JOIN])
    assert delays == [3_000, 3_000, 1_000]


def test_the_initial_delay_ends_when_nobody_new_came(script):
    request = script.join()
    script.join()
    script.end_join_phase()
    assert request not in script.answers
    script.end_join_phase()
    assert request in script.answers


def test_a_client_that_can_is_sent_away_to_come_back_with_an_id(script):
    refused = script.joined(script.join(needs_id=True))
    assert refused.error is ErrorCode.MEMBER_ID_REQUIRED
    assert refused.member_id == "m-1"
    assert script.state is GroupState.EMPTY
    assert script.session_ms("m-1") == 10_000
    request = script.join("m-1", needs_id=True)
    script.end_join_phase()
    assert script.joined(request).member_id == "m-1"


def test_a_rebalance_waits_for_members_that_were_given_an_id_and_ends_when_they_time_out(script):
    (leader,) = script.stable(1)
    script.join(needs_id=True)
    again = script.join(leader)
    assert again not in script.answers
    script.expire_session("m-2")
    assert script.joined(again).generation == 2


def test_an_expected_member_that_never_comes_is_forgotten(script):
    script.join(needs_id=True)
    script.expire_session("m-1")
    assert script.joined(script.join("m-1")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.state is GroupState.EMPTY


def test_an_unknown_member_id_is_refused(script):
    script.stable(1)
    answer = script.joined(script.join("who"))
    assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.member_id == "who"
    assert (answer.generation, answer.leader, answer.protocol, answer.protocol_type) == (-1, "", None, None)


@pytest.mark.parametrize(
    "request_fields",
    [{"protocol_type": "connect"}, {"protocols": {"roundrobin": b""}}, {"protocols": {}}],
    ids=["other type", "nothing in common", "no protocol"],
)
def test_a_member_that_does_not_fit_the_group_is_refused(script, request_fields):
    script.stable(1)
    answer = script.joined(script.join(**request_fields))
    assert answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert script.state is GroupState.STABLE


@pytest.mark.parametrize("request_fields", [{"protocol_type": ""}, {"protocols": {}}], ids=["type", "protocols"])
def test_an_empty_group_needs_a_type_and_a_protocol(script, request_fields):
    assert script.joined(script.join(**request_fields)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_emptied_group_may_become_one_of_another_type(script):
    (member,) = script.stable(1)
    script.leave(member)
    script.join(protocol_type="connect", protocols={"sessioned": b""})
    assert script.group.protocol_type == "connect"


def test_members_elect_the_protocol_that_most_prefer_among_those_that_all_know(script):
    requests = [
        script.join(protocols={"sticky": b"1", "range": b"2", "mine": b""}),
        script.join(protocols={"range": b"3", "sticky": b"4"}),
        script.join(protocols={"other": b"", "range": b"5", "sticky": b"6"}),
    ]
    script.end_join_phase()
    script.end_join_phase()
    leader = script.joined(requests[0])
    assert leader.protocol == "range"
    assert [one.metadata for one in leader.members] == [b"2", b"3", b"5"]


def test_a_follower_that_joins_again_unchanged_is_told_the_present_generation(script):
    leader, follower = script.stable(2)
    answer = script.joined(script.join(follower))
    assert (answer.error, answer.generation, answer.leader) == (ErrorCode.NONE, 1, leader)
    assert script.state is GroupState.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance(script):
    leader, follower = script.stable(2)
    request = script.join(leader)
    assert script.state is GroupState.PREPARING_REBALANCE
    assert request not in script.answers
    script.join(follower)
    assert script.joined(request).generation == 2


def test_a_follower_with_other_metadata_starts_a_rebalance(script):
    _, follower = script.stable(2)
    script.join(follower, protocols={"range": b"other topics"})
    assert script.state is GroupState.PREPARING_REBALANCE


def test_a_join_repeated_before_the_sync_gets_the_same_answer(script):
    first = script.join()
    script.end_join_phase()
    again = script.join("m-1")
    assert script.joined(again) == script.joined(first)


def test_a_join_with_other_metadata_before_the_sync_starts_over(script):
    first, second = script.join(), script.join()
    script.end_join_phase()
    script.end_join_phase()
    waiting = script.sync(script.joined(second).member_id, 1)
    again = script.join(script.joined(first).member_id, protocols={"range": b"other"})
    assert script.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert again not in script.answers
    script.join(script.joined(second).member_id)
    assert script.joined(again).generation == 2


def test_a_new_member_in_the_sync_phase_starts_over(script):
    first = script.join()
    script.end_join_phase()
    leader = script.joined(first).member_id
    script.sync(leader, 1, assign={leader: b"everything"})
    newcomer = script.join()
    script.store()
    assert script.state is GroupState.PREPARING_REBALANCE
    script.join(leader)
    assert script.joined(newcomer).generation == 2


def test_members_that_do_not_rejoin_in_time_are_out(script):
    leader, follower = script.stable(2)
    request = script.join(leader)
    assert script.timers[JOIN] == 60_000
    script.end_join_phase()
    assert [one.member_id for one in script.joined(request).members] == [leader]
    assert script.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin_is_replaced(script):
    leader, follower = script.stable(2)
    request = script.join(follower, protocols={"range": b"other"})
    script.end_join_phase()
    answer = script.joined(request)
    assert answer.leader == follower != leader
    assert len(answer.members) == 1


def test_a_full_group_takes_nobody():
    script = Script(GroupSettings(max_size=2))
    script.stable(2)
    answer = script.joined(script.join())
    assert (answer.error, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert script.state is GroupState.STABLE


def test_a_full_group_sheds_who_rejoins_last_and_goes_on():
    script = Script(GroupSettings(max_size=2))
    leader, follower = script.stable(2)
    first = script.join(leader)
    newcomer = script.join()
    late = script.join(follower)
    assert script.joined(late).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert script.joined(first).generation == script.joined(newcomer).generation == 2
    assert len(script.group.roster) == 2


def test_a_full_group_lets_its_members_ask_again():
    script = Script(GroupSettings(max_size=2))
    leader, _ = script.stable(2)
    script.join(leader)
    script.join()
    assert script.join(leader) not in script.answers


def test_a_new_member_whose_join_waits_too_long_is_given_up():
    script = Script(GroupSettings(new_member_join_timeout_ms=300_000))
    script.stable(1)
    newcomer = script.join()
    assert script.session_ms("m-2") == 300_000
    script.expire_session("m-2")
    assert script.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert "m-2" not in script.group.roster


def test_a_member_that_waits_for_its_rejoin_needs_no_heartbeats(script):
    leader, _ = script.stable(2)
    request = script.join(leader)
    script.expire_session(leader)
    assert leader in script.group.roster
    assert request not in script.answers


def test_the_older_of_two_waiting_joins_of_a_member_is_answered(script):
    leader, _ = script.stable(2)
    old = script.join(leader)
    script.join(leader)
    assert script.joined(old).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_everybody_who_waits_is_told_when_the_group_is_closed(script):
    leader, follower = script.stable(2)
    joining = script.join(leader)
    script.join(needs_id=True)
    script.group.close(ErrorCode.NOT_COORDINATOR)
    script.settle()
    assert script.joined(joining).error is ErrorCode.NOT_COORDINATOR
    assert script.timers == {}
    assert script.joined(script.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert script.heartbeat(follower, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert script.commit() is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_group_closed_while_an_assignment_is_stored_stays_closed(script):
    request = script.join()
    script.end_join_phase()
    waiting = script.sync("m-1", 1, assign={"m-1": b"all"})
    script.group.close(ErrorCode.NOT_COORDINATOR)
    script.settle()
    script.store()
    assert script.state is GroupState.DEAD
    assert script.synced(waiting).error is ErrorCode.NOT_COORDINATOR
    assert script.joined(request).error is ErrorCode.NONE

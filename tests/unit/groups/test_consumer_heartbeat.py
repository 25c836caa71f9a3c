"""Heartbeats of the consumer protocol: joining, moving partitions, leaving, and what is refused."""

from __future__ import annotations

import pytest

from diskless_core.groups.consumer.model import ConsumerGroupState, MemberState
from diskless_core.protocol.errors import ErrorCode
from tests.unit.groups.consumer_script import Consumer, ConsumerScript, settle


@pytest.fixture
def group():
    script = ConsumerScript()
    script.topics.create("t", 4)
    return script


# --- joining and moving ----------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once(group):
    answer = group.join("a", "t")

    assert (answer.member_id, answer.epoch) == ("a", 2)
    assert answer.assignment == group.partitions("t", 0, 1, 2, 3)
    assert group.group.state is ConsumerGroupState.STABLE


def test_a_member_without_id_gets_one_in_version_0(group):
    answer = group.join("", "t", version=0, new_member_id="made")
    assert answer.member_id == "made"
    assert "made" in group.group.members


def test_partitions_are_revoked_before_another_member_gets_them(group):
    group.join("a", "t")

    second = group.join("b", "t")
    assert (second.epoch, second.assignment) == (3, frozenset())
    assert group.current("b").state is MemberState.UNRELEASED_PARTITIONS

    told = group.beat("a", 2)
    assert (told.epoch, told.assignment) == (2, group.partitions("t", 0, 1))
    assert group.current("a").state is MemberState.UNREVOKED_PARTITIONS
    assert group.beat("b", 3).assignment is None
    assert group.beat("a", 2).assignment is None
    assert group.group.state is ConsumerGroupState.RECONCILING

    done = group.beat("a", 2, owned=group.partitions("t", 0, 1))
    assert (done.epoch, done.assignment) == (3, None)
    assert group.beat("b", 3).assignment == group.partitions("t", 2, 3)
    assert group.group.state is ConsumerGroupState.STABLE


def test_a_member_that_gave_up_already_moves_on_at_once(group):
    group.join("a", "t")
    group.join("b", "t")

    assert group.beat("a", 2, owned=group.partitions("t", 0, 1)).epoch == 3


def test_what_is_being_revoked_is_not_free_after_a_restart(group):
    group.join("a", "t")
    group.join("b", "t")
    group.beat("a", 2)
    group.restart()

    assert group.beat("b", 3).assignment is None
    assert group.current("b").assigned == {}
    group.beat("a", 2, owned=group.partitions("t", 0, 1))
    assert group.beat("b", 3).assignment == group.partitions("t", 2, 3)


def test_a_heartbeat_that_changes_nothing_writes_nothing(group):
    group.join("a", "t")
    before = group.group
    assert group.beat("a", 2, owned=group.partitions("t", 0, 1, 2, 3)).assignment is None
    assert group.group is before


def test_a_full_request_is_told_the_assignment_again(group):
    group.join("a", "t")
    everything = {"rebalance_timeout_ms": 5, "topic_names": frozenset({"t"}), "owned": frozenset()}
    assert group.beat("a", 2, **everything).assignment == group.partitions("t", 0, 1, 2, 3)


def test_a_member_that_joins_again_with_its_id_keeps_what_it_had(group):
    group.join("a", "t")
    answer = group.join("a", "t")
    assert (answer.epoch, answer.assignment) == (2, group.partitions("t", 0, 1, 2, 3))


def test_a_member_may_subscribe_to_nothing(group):
    group.join("a", "t")
    answer = group.join("b")
    assert (answer.epoch, answer.assignment) == (2, frozenset())
    assert group.group.epoch == 2


def test_a_group_begins_with_epoch_1_and_the_first_subscription_raises_it(group):
    assert group.join("a").epoch == 1
    assert group.beat("a", 1, topic_names=frozenset({"t"})).epoch == 2


def test_changing_the_subscription_makes_a_new_assignment(group):
    group.topics.create("u", 1)
    group.join("a", "t")

    told = group.beat("a", 2, topic_names=frozenset({"u"}), owned=group.partitions("t", 0, 1, 2, 3))
    assert (told.epoch, told.assignment) == (2, frozenset())
    assert group.beat("a", 2, owned=frozenset()).assignment == group.partitions("u", 0)
    assert group.current("a").epoch == 3


def test_the_assignor_that_most_members_wish_for_is_used(group):
    group.topics.create("u", 1)
    for member_id in "abc":
        group.join(member_id, "t", "u", server_assignor="range" if member_id != "a" else None)

    assert group.group.target_of("a") == group.partitions("t", 0, 1) | group.partitions("u", 0)


# --- topics ----------------------------------------------------------------------------------------------------------


def test_a_topic_that_comes_is_assigned_with_the_next_heartbeat(group):
    group.join("a", "t", "later")
    group.topics.create("later", 1)

    answer = group.beat("a", 2)
    assert answer.epoch == 3
    assert answer.assignment == group.partitions("t", 0, 1, 2, 3) | group.partitions("later", 0)


def test_new_partitions_are_assigned_with_the_next_heartbeat(group):
    group.join("a", "t")
    group.topics.counts["t"] = 5
    assert group.beat("a", 2).assignment == group.partitions("t", 0, 1, 2, 3, 4)


def test_a_topic_of_the_same_name_is_another_topic(group):
    group.join("a", "t")
    old = group.partitions("t", 0, 1, 2, 3)
    group.topics.delete("t")
    group.topics.create("t", 4)

    assert group.beat("a", 2, owned=old).assignment == frozenset()
    assert group.beat("a", 2, owned=frozenset()).assignment == group.partitions("t", 0, 1, 2, 3)


def test_a_regular_expression_subscribes_to_whole_names_that_match(group):
    group.topics.create("tt", 1)
    group.topics.create("xt", 1)
    answer = group.join("a", topic_names=None, topic_regex="t+")
    assert answer.assignment == group.partitions("t", 0, 1, 2, 3) | group.partitions("tt", 0)


def test_names_and_a_regular_expression_add_up(group):
    group.topics.create("u", 1)
    answer = group.join("a", "u", topic_regex="t")
    assert answer.assignment == group.partitions("t", 0, 1, 2, 3) | group.partitions("u", 0)


def test_new_topics_are_matched_when_a_refresh_is_due(group):
    group.join("a", topic_names=None, topic_regex="t.*")
    group.topics.create("tnew", 1)
    assert group.beat("a", 2).assignment is None

    group.refresh_regexes = True
    assert group.beat("a", 2).assignment == group.partitions("t", 0, 1, 2, 3) | group.partitions("tnew", 0)


def test_a_regular_expression_that_nobody_uses_is_forgotten(group):
    group.join("a", "t")
    group.join("b", topic_names=None, topic_regex="t")
    assert set(group.group.regexes) == {"t"}
    group.beat("b", -1)
    assert set(group.group.regexes) == set()


@pytest.mark.parametrize("regex", ["(", "a)(b", "(?=t)", r"(t)\1", "[t"])
def test_what_is_no_regular_expression_is_refused(group, regex):
    group.join("a", "t")
    refusal = group.refusal("b", 0, topic_regex=regex, owned=frozenset(), rebalance_timeout_ms=1)
    assert refusal is ErrorCode.INVALID_REGULAR_EXPRESSION


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_partitions_of_a_member_that_leaves_go_to_the_others(group):
    a, b = Consumer(group, "a", ("t",)), Consumer(group, "b", ("t",))
    settle(a, b)

    answer = group.beat("b", -1)
    assert (answer.member_id, answer.epoch, answer.assignment) == ("b", -1, None)
    assert group.group.state is ConsumerGroupState.ASSIGNING
    settle(a)
    assert a.owned == group.partitions("t", 0, 1, 2, 3)


def test_a_group_whose_last_member_left_is_empty_and_keeps_its_epoch(group):
    group.join("a", "t")
    group.beat("a", -1)
    assert group.group.state is ConsumerGroupState.EMPTY
    assert group.join("b", "t").epoch == 4


def test_a_fenced_member_begins_anew(group):
    a, b = Consumer(group, "a", ("t",)), Consumer(group, "b", ("t",))
    settle(a, b)
    group.fence("a")

    assert group.refusal("a", a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    settle(a, b)
    assert (len(a.owned), len(b.owned)) == (2, 2)


# --- static members --------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_has_what_it_had_and_nobody_else_moves(group):
    a, b = Consumer(group, "a", ("t",), {"instance_id": "i"}), Consumer(group, "b", ("t",))
    settle(a, b)
    epoch, had = group.group.epoch, a.owned

    assert group.beat("a", -2, instance_id="i").epoch == -2
    settle(b)
    assert len(b.owned) == 2
    answer = group.join("a2", "t", instance_id="i")

    assert (answer.epoch, answer.assignment) == (epoch, had)
    assert set(group.group.members) == {"a2", "b"}


def test_a_static_member_may_come_back_under_its_own_id(group):
    group.join("a", "t", instance_id="i")
    group.beat("a", -2, instance_id="i")
    assert group.join("a", "t", instance_id="i").epoch == 2


def test_a_static_identity_in_use_is_not_given_away(group):
    group.join("a", "t", instance_id="i")
    full = {"topic_names": frozenset({"t"}), "owned": frozenset(), "rebalance_timeout_ms": 1}
    assert group.refusal("b", 0, instance_id="i", **full) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert group.refusal("a", 0, instance_id="i", **full) is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_member_is_fenced_by_its_successor(group):
    group.join("a", "t", instance_id="i")
    group.beat("a", -2, instance_id="i")
    group.join("b", "t", instance_id="i")

    assert group.refusal("a", 2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert group.refusal("a", -1, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert group.refusal("a", 2, instance_id="other") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_can_leave_for_good(group):
    group.join("a", "t", instance_id="i")
    group.beat("a", -1, instance_id="i")
    assert group.group.members == {}


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_member_that_missed_an_answer_comes_with_its_previous_epoch(group):
    group.join("a", "t")
    group.topics.counts["t"] = 5
    group.beat("a", 2)

    answer = group.beat("a", 2, owned=group.partitions("t", 0, 1, 2, 3))
    assert answer.epoch == 3
    assert group.refusal("a", 2, owned=group.partitions("t", 9)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.refusal("a", 2) is ErrorCode.FENCED_MEMBER_EPOCH


def test_another_epoch_is_fenced(group):
    group.join("a", "t")
    group.topics.counts["t"] = 5
    group.beat("a", 2)
    group.topics.counts["t"] = 6
    group.beat("a", 3)

    assert group.refusal("a", 5, owned=frozenset()) is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.refusal("a", 2, owned=frozenset()) is ErrorCode.FENCED_MEMBER_EPOCH


def test_strangers_are_refused(group):
    group.join("a", "t")
    assert group.refusal("x", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.refusal("x", -1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_more():
    group = ConsumerScript(max_size=1)
    group.topics.create("t")
    group.join("a", "t")
    full = {"topic_names": frozenset({"t"}), "owned": frozenset(), "rebalance_timeout_ms": 1}
    assert group.refusal("b", 0, **full) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.join("a", "t").epoch == 2


FULL = {"topic_names": frozenset({"t"}), "owned": frozenset(), "rebalance_timeout_ms": 1}


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields"),
    [
        ("", 0, FULL),
        ("", 1, {"version": 0}),
        ("", -1, {"version": 0}),
        ("a", 0, {**FULL, "rebalance_timeout_ms": -1}),
        ("a", 0, {**FULL, "owned": None}),
        ("a", 0, {**FULL, "topic_names": None}),
        ("a", 0, {**FULL, "instance_id": ""}),
        ("a", 0, {**FULL, "rack_id": " "}),
        ("a", -2, {}),
        ("a", -3, {}),
    ],
)
def test_requests_that_make_no_sense_are_refused(group, member_id, epoch, fields):
    assert group.refusal(member_id, epoch, **fields) is ErrorCode.INVALID_REQUEST


def test_joining_means_to_own_nothing(group):
    owned = group.partitions("t", 0)
    assert group.refusal("a", 0, **{**FULL, "owned": owned}) is ErrorCode.INVALID_REQUEST


def test_an_unknown_assignor_is_refused(group):
    assert group.refusal("a", 0, **FULL, server_assignor="mine") is ErrorCode.UNSUPPORTED_ASSIGNOR

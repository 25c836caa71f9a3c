"""The server-side assignors: complete, balanced, sticky."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.groups.consumer.assignors import ASSIGNORS, Subscriber, assign_by_range, uniform
from diskless_core.groups.consumer.model import TopicIdPartition

TOPICS = [uuid.UUID(int=number) for number in range(1, 5)]
A, B = TOPICS[:2]


def parts(topic, *numbers):
    return frozenset(TopicIdPartition(topic, number) for number in numbers)


counts = st.fixed_dictionaries({topic: st.integers(1, 7) for topic in TOPICS})
subscriptions = st.dictionaries(
    st.sampled_from("abcdefgh"), st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6
)
same_subscriptions = st.builds(
    lambda members, topics: dict.fromkeys(members, topics),
    st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=6),
    st.frozensets(st.sampled_from(TOPICS), min_size=1),
)
assignors = st.sampled_from(sorted(ASSIGNORS)).map(ASSIGNORS.__getitem__)


def members_of(subscribed, targets=None):
    return {
        member: Subscriber(topics=topics, target=(targets or {}).get(member, frozenset()))
        for member, topics in subscribed.items()
    }


def wanted(subscribed, sizes):
    topics = frozenset().union(*subscribed.values())
    return Counter(TopicIdPartition(topic, number) for topic in topics for number in range(sizes[topic]))


def moved(before, after):
    """How many partitions left an owner that is still there."""
    return sum(len(before[member] - after[member]) for member in before.keys() & after.keys())


@given(assignors, subscriptions, subscriptions, counts)
def test_every_partition_has_one_owner_that_subscribes_to_it(assign, first, second, sizes):
    targets = assign(members_of(first), sizes)
    after = assign(members_of(second, targets), sizes)

    for subscribed, assigned in ((first, targets), (second, after)):
        assert assigned.keys() == subscribed.keys()
        assert Counter(one for owned in assigned.values() for one in owned) == wanted(subscribed, sizes)
        assert all(one.topic_id in subscribed[member] for member, owned in assigned.items() for one in owned)


@given(assignors, subscriptions, counts)
def test_what_is_assigned_already_stays_where_it_is(assign, subscribed, sizes):
    targets = assign(members_of(subscribed), sizes)
    assert assign(members_of(subscribed, targets), sizes) == targets


@given(subscriptions, subscriptions, counts)
def test_uniform_leaves_no_move_that_would_even_out(first, second, sizes):
    after = uniform(members_of(second, uniform(members_of(first), sizes)), sizes)
    for giver, owned in after.items():
        for taker, topics in second.items():
            if any(one.topic_id in topics for one in owned):
                assert len(after[giver]) - len(after[taker]) <= 1


@given(same_subscriptions, st.sampled_from("abcdefgh"), counts)
def test_uniform_moves_to_a_newcomer_its_share_and_nothing_else(subscribed, newcomer, sizes):
    topics = next(iter(subscribed.values()))
    old = {member: topics for member in subscribed if member != newcomer} or {"z": topics}
    before = uniform(members_of(old), sizes)
    after = uniform(members_of(old | {newcomer: topics}, before), sizes)
    assert moved(before, after) == len(after[newcomer])


@given(same_subscriptions, counts)
def test_uniform_moves_nothing_but_what_a_lost_member_had(subscribed, sizes):
    before = uniform(members_of(subscribed), sizes)
    left = dict(list(subscribed.items())[1:])
    if left:
        assert moved(before, uniform(members_of(left, before), sizes)) == 0


@given(same_subscriptions, st.integers(1, 9))
def test_range_gives_topics_of_the_same_size_alike(subscribed, size):
    topics = next(iter(subscribed.values()))
    assigned = assign_by_range(members_of(subscribed), dict.fromkeys(topics, size))
    for owned in assigned.values():
        numbers = [{one.partition for one in owned if one.topic_id == topic} for topic in topics]
        assert all(of_topic == numbers[0] for of_topic in numbers)


@given(subscriptions, subscriptions, counts)
def test_range_gives_every_subscriber_of_a_topic_its_share_of_it(first, second, sizes):
    after = assign_by_range(members_of(second, assign_by_range(members_of(first), sizes)), sizes)
    for topic in TOPICS:
        loads = [sum(one.topic_id == topic for one in after[m]) for m, topics in second.items() if topic in topics]
        assert not loads or max(loads) - min(loads) <= 1


def test_range_hands_out_ranges():
    members = members_of({"a": frozenset({A, B}), "b": frozenset({A, B}), "c": frozenset({B})})
    assert assign_by_range(members, {A: 3, B: 3}) == {
        "a": parts(A, 0, 1) | parts(B, 0),
        "b": parts(A, 2) | parts(B, 1),
        "c": parts(B, 2),
    }


def test_range_keeps_the_lowest_partitions_when_a_member_comes():
    members = members_of({"a": frozenset({A}), "b": frozenset({A})}, {"b": parts(A, 0, 1, 2)})
    assert assign_by_range(members, {A: 3}) == {"a": parts(A, 2), "b": parts(A, 0, 1)}


def test_static_members_keep_their_place_when_their_id_changes():
    def named(first, second):
        return {
            first: Subscriber(instance_id="i1", topics=frozenset({A})),
            second: Subscriber(instance_id="i2", topics=frozenset({A})),
        }

    before, after = uniform(named("x", "y"), {A: 2}), uniform(named("y", "x"), {A: 2})
    assert before["x"] == after["y"] == parts(A, 0)


def test_uniform_fills_up_whoever_subscribes_to_less():
    members = members_of({"a": frozenset({A}), "b": frozenset({A, B})})
    assigned = uniform(members, {A: 2, B: 2})
    assert assigned == {"a": parts(A, 0, 1), "b": parts(B, 0, 1)}


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_members_without_topics_get_nothing(assign):
    assert assign(members_of({"a": frozenset()}), {}) == {"a": frozenset()}

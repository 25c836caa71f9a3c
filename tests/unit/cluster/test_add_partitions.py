"""More partitions for a topic, as the cluster shard decides it."""

from __future__ import annotations

import pytest

from diskless_core.cluster import operations
from diskless_core.cluster.operations import Growth
from diskless_core.coordinator.slices import at_once
from diskless_core.protocol.errors import ErrorCode
from tests.unit.cluster.cluster_state import ClusterState


@pytest.fixture
def cluster():
    state = ClusterState()
    state.create_topic("t", 3)
    return state


def grow(cluster, count, assignments=None, *, name="t", validate_only=False):
    growth = Growth(name=name, count=count, assignments=assignments, node_ids={1, 2}, shard_count=2)
    return cluster.run(lambda command: at_once(operations.add_partitions(command, growth, validate_only=validate_only)))


def test_new_partitions_go_where_the_topic_has_fewest_and_old_ones_stay(cluster):
    assert grow(cluster, 8) is None

    assert cluster.placements() == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1, 6: 0, 7: 1}


def test_validate_only_places_nothing_and_finds_what_growing_would(cluster):
    assert grow(cluster, 6, validate_only=True) is None
    assert grow(cluster, 2, validate_only=True).code is ErrorCode.INVALID_PARTITIONS

    assert len(cluster.placements()) == 3


@pytest.mark.parametrize(
    ("count", "assignments", "code", "hint"),
    [
        (3, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partition(s)."),
        (2, None, ErrorCode.INVALID_PARTITIONS, "2 would not be an increase."),
        (-1, None, ErrorCode.INVALID_PARTITIONS, "-1 would not be an increase."),
        (5, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "add 2 additional partition(s), but only 1 assignment(s)"),
        (5, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "only 0 assignment(s)"),
        (4, [[3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 3, but no such broker is registered"),
        (4, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the broker 1 more than once"),
        (4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 brokers. The object store replicates"),
        (4, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
    ],
)
def test_what_is_no_growth_is_refused_as_apache_kafka_refuses_it(cluster, count, assignments, code, hint):
    refusal = grow(cluster, count, assignments)

    assert refusal.code is code
    assert hint in refusal.message
    assert len(cluster.placements()) == 3


def test_any_one_broker_may_be_asked_for(cluster):
    assert grow(cluster, 5, [[1], [2]]) is None


def test_an_unknown_topic_cannot_grow(cluster):
    assert grow(cluster, 5, name="u").code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

"""Which diskless shards the partitions of new and growing topics are given to."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.cluster import operations
from diskless_core.cluster.operations import Growth, NewTopic
from diskless_core.cluster.spreading import shards_of_new_partitions
from diskless_core.cluster.tables import PLACEMENTS
from diskless_core.coordinator.slices import at_once
from tests.unit.cluster.cluster_state import ClusterState

COUNTS = st.integers(0, 50)
LOADS = st.dictionaries(st.integers(0, 7), COUNTS)


@pytest.fixture
def cluster():
    return ClusterState()


def create(cluster, number, partitions=1, *, shards):
    new = NewTopic(
        topic_id=b"%016d" % number,
        name=f"topic-{number}",
        partition_count=partitions,
        shard_count=shards,
        configs={},
    )
    assert cluster.run(lambda command: at_once(operations.create_topic(command, new))) is None


def grow(cluster, number, count, *, shards):
    growth = Growth(name=f"topic-{number}", count=count, assignments=None, node_ids={1}, shard_count=shards)
    assert cluster.run(lambda command: at_once(operations.add_partitions(command, growth, validate_only=False))) is None


def loads(cluster):
    return Counter(shard for _, shard in cluster.state.rows(PLACEMENTS))


def shards_of(cluster, number):
    return [shard for key, shard in sorted(cluster.state.rows(PLACEMENTS)) if key[0] == b"%016d" % number]


def test_many_topics_of_one_partition_are_shared_by_all_shards(cluster):
    for number in range(12):
        create(cluster, number, shards=4)
    assert loads(cluster) == {0: 3, 1: 3, 2: 3, 3: 3}


def test_a_large_topic_is_shared_by_all_shards(cluster):
    create(cluster, 0, shards=3)
    create(cluster, 1, partitions=7, shards=3)
    assert shards_of(cluster, 1) == [1, 2, 0, 1, 2, 0, 1]


def test_shards_that_were_added_get_new_partitions_and_no_old_ones(cluster):
    for number in range(4):
        create(cluster, number, shards=2)
    before = dict(cluster.state.rows(PLACEMENTS))
    create(cluster, 4, partitions=4, shards=4)
    grow(cluster, 0, 5, shards=4)
    assert before.items() <= dict(cluster.state.rows(PLACEMENTS)).items()
    assert sorted(shards_of(cluster, 4)) == [0, 1, 2, 3]
    assert shards_of(cluster, 0)[1:] == [2, 3, 1, 2]


def test_what_a_deleted_topic_had_does_not_count(cluster):
    create(cluster, 0, partitions=2, shards=2)
    create(cluster, 1, shards=2)
    cluster.run(lambda command: operations.remove_topic(command, b"%016d" % 0))
    create(cluster, 2, shards=2)
    assert shards_of(cluster, 1) == [0]
    assert shards_of(cluster, 2) == [1]


@given(COUNTS, st.integers(1, 8), LOADS, LOADS)
def test_a_topic_is_as_even_as_it_can_be_and_the_choice_is_always_the_same(count, shard_count, of_topic, in_all):
    chosen = shards_of_new_partitions(count, shard_count, of_topic, in_all)
    assert chosen == shards_of_new_partitions(count, shard_count, of_topic, in_all)
    assert len(chosen) == count
    given_to = Counter(chosen)
    assert given_to.keys() <= set(range(shard_count))
    after = {shard: of_topic.get(shard, 0) + given_to[shard] for shard in range(shard_count)}
    for shard in given_to:
        assert after[shard] <= min(after.values()) + 1

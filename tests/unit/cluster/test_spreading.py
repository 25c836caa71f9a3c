"""Which diskless shards the partitions of new and growing topics are given to."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.cluster import operations
from diskless_core.cluster.operations import Growth, NewTopic
from diskless_core.cluster.spreading import place, shards_of_new_partitions
from diskless_core.cluster.tables import LOADS, PLACEMENTS
from diskless_core.coordinator.slices import at_once
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import Transaction
from tests.unit.cluster.cluster_state import ClusterState

COUNTS = st.integers(0, 50)
SOME = st.dictionaries(st.integers(0, 7), COUNTS)


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
    """By shard, as they are kept; they are what the placements add up to."""
    kept = dict(cluster.state.rows(LOADS))
    assert Counter(shard for _, shards in cluster.state.rows(PLACEMENTS) for shard in shards) == {
        shard: count for (shard,), count in kept.items()
    }
    return {shard: count for (shard,), count in kept.items()}


def shards_of(cluster, number):
    return list(cluster.state.committed(PLACEMENTS, (b"%016d" % number,)))


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
    before = [shards_of(cluster, number) for number in range(4)]
    create(cluster, 4, partitions=4, shards=4)
    grow(cluster, 0, 5, shards=4)
    assert [shards_of(cluster, number)[:1] for number in range(4)] == before
    assert sorted(shards_of(cluster, 4)) == [0, 1, 2, 3]
    assert shards_of(cluster, 0)[1:] == [2, 3, 1, 2]


def test_what_a_deleted_topic_had_does_not_count(cluster):
    create(cluster, 0, partitions=2, shards=2)
    create(cluster, 1, shards=2)
    cluster.run(lambda command: operations.remove_topic(command, b"%016d" % 0))
    create(cluster, 2, shards=2)
    assert shards_of(cluster, 1) == [0]
    assert shards_of(cluster, 2) == [1]
    assert loads(cluster) == {0: 1, 1: 1}
    cluster.run(lambda command: operations.remove_topic(command, b"%016d" % 1))
    assert loads(cluster) == {1: 1}


def test_what_a_placement_costs_does_not_follow_the_partitions_that_there_are():
    class Counted(Transaction):
        reads = 0

        def get(self, table, key):
            type(self).reads += 1
            return super().get(table, key)

        def keys(self, table, prefix):
            raise AssertionError("a table is walked")

    cluster = ClusterState()
    costs = []
    for number in range(3):
        create(cluster, number, partitions=1000 * number + 1, shards=4)
        Counted.reads = 0
        command = Command(machine=cluster.machine, tx=Counted(cluster.state), now_ms=0)
        place(command, b"%016d" % 99, 1, 4)
        costs.append(Counted.reads)
    assert costs == [5, 5, 5]


@given(COUNTS, st.integers(1, 8), SOME, SOME)
def test_each_partition_goes_where_fewest_of_the_topic_are_and_then_fewest_in_all(count, shard_count, of_topic, in_all):
    loads = [[of_topic.get(shard, 0), in_all.get(shard, 0), shard] for shard in range(shard_count)]
    expected = []
    for _ in range(count):
        least = min(loads)
        expected.append(least[2])
        least[0] += 1
        least[1] += 1
    assert shards_of_new_partitions(count, shard_count, of_topic, in_all) == expected


@given(COUNTS, st.integers(1, 8), SOME, SOME)
def test_a_topic_is_as_even_as_it_can_be_and_the_choice_is_always_the_same(count, shard_count, of_topic, in_all):
    chosen = shards_of_new_partitions(count, shard_count, of_topic, in_all)
    assert chosen == shards_of_new_partitions(count, shard_count, of_topic, in_all)
    assert len(chosen) == count
    given_to = Counter(chosen)
    assert given_to.keys() <= set(range(shard_count))
    after = {shard: of_topic.get(shard, 0) + given_to[shard] for shard in range(shard_count)}
    for shard in given_to:
        assert after[shard] <= min(after.values()) + 1

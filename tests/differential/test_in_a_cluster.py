"""A broker of a cluster that leads nothing answers as a stock Apache Kafka, but for the differences that are meant.

Each scenario is played once, in the newest version of what it is about: other versions differ by what the broker that
is asked decodes and encodes, which the tests of one broker show.
"""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from tests.differential.cluster_player import ClusterPlayer
from tests.differential.differences import IN_A_CLUSTER, Allowed
from tests.differential.player import Player, compare, name_of
from tests.differential.scenarios import SCENARIOS, records

OF_ONE_BROKER = {
    "reassignments",  # to a broker that is not there
    "offsets of several groups are fetched",  # which belong to different coordinators: a client asks each
    "describe groups",
    "delete groups",
}
SLOW = {
    "every setting of a broker",
    "a bad value for every setting of a topic",
    "settings of a group that it does not take",
    "produce records that become very large to a topic that wants another codec",
}
"""Much is asked that the broker that leads nothing answers as any other does."""

THREE_BROKERS = Allowed(
    name="three brokers",
    places=(
        ("Metadata", "controller_id", 1, ANY),
        ("Metadata", "brokers.*", ANY, ANY),
        ("DescribeCluster", "controller_id", 1, ANY),
        ("DescribeCluster", "brokers.*", ANY, ANY),
        ("DescribeQuorum", "topics.*.leader_id", 1, ANY),
        ("DescribeQuorum", "topics.*.current_voters.*", ANY, ANY),
        ("FindCoordinator", "coordinators.*.node_id", 1, ANY),
        ("FindCoordinator", "coordinators.*.port", ANY, ANY),
        ("FindCoordinator", "node_id", 1, ANY),
    ),
    what="The brokers that an answer names",
    kafka="is one broker, without a rack",
    diskless="is three, in racks",
    why="Apache Kafka is compared as one process; a cluster of it would name three brokers too",
)

CASES = [
    pytest.param(played, played.versions[-1], id=name_of(played, played.versions[-1]))
    for played in SCENARIOS
    if played.title not in OF_ONE_BROKER | SLOW and played not in records.SCENARIOS  # its brokers do not check all
]


@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize(("played", "version"), CASES)
def test_a_broker_that_leads_nothing_answers_alike(pair_with_a_cluster, played, version):
    name = f"cluster-{name_of(played, version)}"

    kafka = Player(pair_with_a_cluster.kafka, name, played, version).play()
    diskless = ClusterPlayer(pair_with_a_cluster.cluster, name, played, version).play()

    compare(kafka, diskless, played, also=(THREE_BROKERS, *IN_A_CLUSTER))

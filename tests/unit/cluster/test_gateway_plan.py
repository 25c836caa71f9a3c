"""Counting what a gateway placement comes to."""

from __future__ import annotations

from diskless_core.cluster.gateway_plan import Cluster, Range, gateway_brokers, model_cluster, summarize
from diskless_core.plugin.gateway_placement import Coordinator, LiveBroker, violation

CLUSTER = Cluster(
    coordinators=[
        Coordinator(shard=0, leader_id=1),
        Coordinator(shard=1, leader_id=1),
        Coordinator(shard=2, leader_id=2),
        Coordinator(shard=3, leader_id=None),
    ],
    brokers=[
        LiveBroker(node_id=1, rack="a"),
        LiveBroker(node_id=2, rack="b"),
        LiveBroker(node_id=3, rack="b"),
    ],
)
A = {"a": frozenset({1})}
GATEWAYS = {
    0: {**A, "b": frozenset({2, 3})},
    1: {**A, "b": frozenset({3})},
    2: {**A, "b": frozenset({3})},
    3: {**A, "b": frozenset({3})},
}


def test_a_model_cluster_goes_round_racks_and_brokers():
    cluster = model_cluster(brokers=4, racks=3, coordinators=6)

    assert [(broker.node_id, broker.rack) for broker in cluster.brokers] == [
        (1, "rack-1"),
        (2, "rack-2"),
        (3, "rack-3"),
        (4, "rack-1"),
    ]
    assert [(one.shard, one.leader_id) for one in cluster.coordinators] == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 4),
        (4, 1),
        (5, 2),
    ]


def test_a_broker_commits_once_to_each_other_broker_and_never_to_itself():
    brokers = gateway_brokers(CLUSTER, GATEWAYS)

    assert [(broker.node_id, broker.coordinators, broker.network_commits) for broker in brokers] == [
        (1, 4, 1),
        (2, 1, 1),
        (3, 4, 2),
    ]


def test_a_summary_has_the_worst_of_all_brokers_and_what_it_would_be_without_gateways():
    summary = summarize(CLUSTER, GATEWAYS)

    assert summary.gateways_per_rack == Range(least=1, most=2)
    assert summary.coordinators_per_broker == Range(least=1, most=4)
    assert summary.network_commits == 2
    assert summarize(CLUSTER, {shard: {**A, "b": frozenset({2})} for shard in range(4)}).network_commits == 1
    assert summary.network_commits_without_gateways == 2


def test_a_range_of_one_number_is_written_as_that():
    assert (str(Range(least=2, most=2)), str(Range(least=1, most=2))) == ("2", "1 to 2")


def violation_of(gateways):
    return violation(CLUSTER.coordinators, CLUSTER.brokers, gateways)


def test_what_is_wrong_with_a_placement_is_told():
    b = {"b": frozenset({2})}

    assert violation_of(GATEWAYS) is None
    assert violation_of({**GATEWAYS, 7: {**A, **b}}) == "it places the shards [0, 1, 2, 3, 7], not [0, 1, 2, 3]"
    assert violation_of({**GATEWAYS, 3: A}) == "shard 3 has gateways in the racks ['a'], not ['a', 'b']"
    assert violation_of({**GATEWAYS, 3: {**A, "b": frozenset()}}) == "shard 3 has no gateway in rack b"
    assert violation_of({**GATEWAYS, 3: {**b, "a": frozenset({1, 2})}}) == (
        "shard 3 has gateways in rack a that are no live brokers there: [2]"
    )

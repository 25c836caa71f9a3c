"""Gateways as KIP-1164 describes them: its six scenarios, co-location, and racks that are not as it assumes."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.cluster.gateway_plan import Cluster, Range, gateway_brokers, model_cluster, summarize
from diskless_core.plugin.gateway_placement import Coordinator, LiveBroker
from tests.support.gateways import placement

PAGE = Path(__file__).parents[3] / "docs" / "plugins" / "gateway_placement.md"

SCENARIOS = [
    # brokers, gateways for a rack, coordinators of a broker, network commits: as the KIP says them
    (3, 1, 12, 3),
    (6, 1, 6, 6),
    (12, 1, 3, 12),
    (24, 1, 2, 2),
    (36, 1, 1, 1),
    (108, 3, 1, 1),
]
"""12 coordinators and 3 racks. Scenario 6 of the KIP calculates with 18 brokers, but has 108."""

NETWORK_COMMITS = {3: 2, 6: 2, 12: 2, 24: 2, 36: 1, 108: 1}
"""What is needed at the worst with all that the KIP proposes: n_racks - 1 up to the saturation, then what it says."""


def summary(policy, brokers):
    cluster = model_cluster(brokers=brokers, racks=3, coordinators=12)
    return summarize(cluster, placement(policy).place(cluster.coordinators, cluster.brokers))


def place(coordinators, brokers):
    return placement("kip1164").place(coordinators, brokers)


def cluster_of(racks, leaders):
    """Brokers 1, 2, ... in these racks, coordinators 0, 1, ... with these leaders."""
    return Cluster(
        coordinators=[Coordinator(shard=shard, leader_id=leader) for shard, leader in enumerate(leaders)],
        brokers=[LiveBroker(node_id=node_id, rack=rack) for node_id, rack in enumerate(racks, 1)],
    )


def parts(cluster):
    return cluster.coordinators, cluster.brokers


@pytest.mark.parametrize(("brokers", "gateways", "coordinators", "network_commits"), SCENARIOS)
def test_a_scenario_of_the_kip_comes_out_as_it_says_or_better(brokers, gateways, coordinators, network_commits):
    planned = summary("kip1164", brokers)

    assert planned.gateways_per_rack == Range(least=gateways, most=gateways)
    assert planned.coordinators_per_broker.most == coordinators
    assert planned.network_commits == NETWORK_COMMITS[brokers] <= network_commits


@pytest.mark.parametrize(("brokers", "gateways", "coordinators", "network_commits"), SCENARIOS)
def test_the_page_shows_what_a_scenario_comes_to(brokers, gateways, coordinators, network_commits):
    ours, other = summary("kip1164", brokers), summary("rendezvous", brokers)
    led = [coordinators, ours.coordinators_per_broker, other.coordinators_per_broker]
    commits = [
        network_commits,
        ours.network_commits,
        other.network_commits,
        ours.network_commits_without_gateways,
    ]

    _, _, tables = PAGE.read_text(encoding="utf-8").partition("### The KIP's six scenarios\n")
    first, second = [line for line in tables.splitlines() if line.startswith(f"| {brokers} |")][:2]
    assert first.startswith(f"| {brokers} | {gateways}")
    assert first.endswith(f" | {' | '.join(map(str, led))} |")
    assert second == f"| {brokers} | {' | '.join(map(str, commits))} |"


def test_co_located_coordinators_have_the_same_gateways_in_every_rack():
    cluster = model_cluster(brokers=6, racks=3, coordinators=24)

    gateways = place(cluster.coordinators, cluster.brokers)

    for shard in range(6):
        assert gateways[shard] == gateways[shard + 6] == gateways[shard + 12] == gateways[shard + 18]


def test_when_there_are_brokers_enough_co_located_coordinators_go_apart():
    """12 coordinators on one broker do not crowd one gateway in a rack that has 12 of them."""
    cluster = cluster_of(["a", "b", "c"] * 12, [1] * 12)

    gateways = place(cluster.coordinators, cluster.brokers)

    assert len({gateways[shard]["b"] for shard in range(12)}) == 12
    assert [len(gateways[shard]["a"] - {1}) for shard in range(12)].count(1) == 11


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    leaders=st.lists(st.integers(1, 12), min_size=1, max_size=12),
)
@settings(deadline=None, max_examples=60)
def test_the_broker_that_leads_a_coordinator_is_its_gateway(racks, leaders):
    cluster = cluster_of(racks, leaders)

    gateways = place(cluster.coordinators, cluster.brokers)

    for coordinator in cluster.coordinators:
        if coordinator.leader_id <= len(racks):
            assert coordinator.leader_id in gateways[coordinator.shard][racks[coordinator.leader_id - 1]]


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=20),
    leaders=st.lists(st.integers(1, 20), min_size=1, max_size=12),
)
@settings(deadline=None, max_examples=60)
def test_no_broker_commits_to_more_others_than_an_even_share_of_its_rack(racks, leaders):
    cluster = cluster_of(racks, [1 + (leader - 1) % len(racks) for leader in leaders])

    gateways = place(cluster.coordinators, cluster.brokers)

    led = len({coordinator.leader_id for coordinator in cluster.coordinators})
    saturated = len(racks) >= len(leaders) * len(set(racks))
    for broker in gateway_brokers(cluster, gateways):
        places = len(leaders) * len(gateways[0][broker.rack]) if saturated else led
        assert broker.network_commits <= ceil(places / racks.count(broker.rack))


def test_all_brokers_of_a_rack_are_gateways_of_the_only_coordinator_however_many_the_other_racks_have():
    cluster = cluster_of(["a"] * 30 + ["b"] * 5 + ["c"], [1])

    gateways = place(cluster.coordinators, cluster.brokers)

    assert {rack: len(node_ids) for rack, node_ids in gateways[0].items()} == {"a": 30, "b": 5, "c": 1}


def test_racks_of_different_size_break_the_bound_of_the_kip():
    cluster = cluster_of(["a"] * 34 + ["b", "c"], range(1, 13))

    planned = summarize(cluster, place(cluster.coordinators, cluster.brokers))

    assert planned.gateways_per_rack == Range(least=1, most=3)
    assert (planned.coordinators_per_broker.most, planned.network_commits) == (12, 12)


@pytest.mark.parametrize("brokers", [37, 48, 71, 107])
def test_between_two_multiples_of_the_saturation_point_every_broker_is_the_gateway_of_one_coordinator(brokers):
    cluster = model_cluster(brokers=brokers, racks=3, coordinators=12)

    gateways = place(cluster.coordinators, cluster.brokers)

    assert {broker.coordinators for broker in gateway_brokers(cluster, gateways)} == {1}
    in_rack = [[len(by_rack[rack]) for by_rack in gateways.values()] for rack in gateways[0]]
    assert all(max(counts) - min(counts) <= 1 for counts in in_rack)


def test_a_broker_that_has_just_come_is_a_gateway_before_it_leads_anything():
    """Three brokers with two coordinators each, which stay where they are when a fourth one comes."""
    leaders = [1, 2, 3, 1, 2, 3]
    before = place(*parts(cluster_of([None] * 3, leaders)))
    after = place(*parts(cluster_of([None] * 4, leaders)))

    led_to_it = [shard for shard, by_rack in after.items() if 4 in by_rack[None]]

    assert len(led_to_it) == 2
    assert len({leaders[shard] for shard in led_to_it}) == 1, "what it gathers is one request to one broker"
    assert {shard: by_rack[None] - {4} for shard, by_rack in after.items()} == {
        shard: by_rack[None] for shard, by_rack in before.items()
    }


def test_when_leadership_moves_coordinators_that_stay_alone_keep_their_gateways_in_other_racks():
    cluster = model_cluster(brokers=24, racks=3, coordinators=12)
    before = place(cluster.coordinators, cluster.brokers)
    moved = [Coordinator(shard=0, leader_id=22), *cluster.coordinators[1:]]

    after = place(moved, cluster.brokers)

    assert after[0]["rack-1"] == {22}
    assert {shard: (by_rack["rack-2"], by_rack["rack-3"]) for shard, by_rack in after.items()} == {
        shard: (by_rack["rack-2"], by_rack["rack-3"]) for shard, by_rack in before.items()
    }


def test_coordinators_without_a_live_leader_are_not_taken_for_co_located():
    """None of them is anywhere, so there is nothing that they could share a request with."""
    cluster = cluster_of("aaabbb", [None, None, None, 99, 99, 99])

    brokers = gateway_brokers(cluster, place(cluster.coordinators, cluster.brokers))

    assert [broker.coordinators for broker in brokers] == [2] * 6

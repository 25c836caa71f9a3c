"""Gateways by rendezvous hashing: what changes is only what has to."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.plugin.gateway_placement import Coordinator, LiveBroker
from tests.support.gateways import placement

COORDINATORS = [Coordinator(shard=shard) for shard in range(40)]


def brokers_in(racks):
    return [LiveBroker(node_id=node_id, rack=rack) for node_id, rack in enumerate(racks)]


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=2, max_size=12),
    gone=st.integers(0, 11),
    wanted=st.integers(1, 4),
)
@settings(deadline=None, max_examples=60)
def test_a_broker_that_leaves_changes_only_what_it_was_a_gateway_of(racks, gone, wanted):
    brokers = brokers_in(racks)
    gone %= len(brokers)
    asked = placement("rendezvous", gateways_per_rack=wanted)

    before, after = asked.place(COORDINATORS, brokers), asked.place(COORDINATORS, brokers[:gone] + brokers[gone + 1 :])

    for shard, by_rack in after.items():
        for rack, gateways in by_rack.items():
            assert gateways >= before[shard][rack] - {gone}
            assert gateways == before[shard][rack] or gone in before[shard][rack]


def test_who_leads_does_not_matter():
    brokers = brokers_in("aabbcc")
    led = [Coordinator(shard=coordinator.shard, leader_id=coordinator.shard % 6) for coordinator in COORDINATORS]

    assert placement("rendezvous").place(led, brokers) == placement("rendezvous").place(COORDINATORS, brokers)


def test_there_are_as_many_gateways_as_configured_or_as_the_rack_has_brokers():
    gateways = placement("rendezvous", gateways_per_rack=3).place(COORDINATORS, brokers_in("aaaaab"))

    assert {(len(by_rack["a"]), len(by_rack["b"])) for by_rack in gateways.values()} == {(3, 1)}


def test_every_broker_is_chosen_about_equally_often():
    coordinators = [Coordinator(shard=shard) for shard in range(3000)]

    gateways = placement("rendezvous").place(coordinators, brokers_in("aaa"))

    chosen = Counter(node_id for by_rack in gateways.values() for node_id in by_rack["a"])
    assert all(850 < chosen[node_id] < 1150 for node_id in range(3))

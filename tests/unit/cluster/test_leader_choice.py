"""Which broker a client is told to be the leader: a gateway, in its rack, always the same, spread over clients."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.cluster.client_racks import ClientRacks
from diskless_core.cluster.leader_choice import ClientIdentity, LeaderChoice
from diskless_core.config.broker import BrokerConfig
from diskless_core.plugin.gateway_placement import Coordinator, LiveBroker
from tests.support.gateways import placement

RACKS = ["a", "b", "c"]


def cluster(size, racks=RACKS):
    return [LiveBroker(node_id=node_id, rack=racks[node_id % len(racks)]) for node_id in range(1, size + 1)]


def clients(count):
    return [ClientIdentity("ANONYMOUS", f"client-{number}", f"10.0.{number % 7}.{number}") for number in range(count)]


def choice(brokers, shards=4, policy="kip1164"):
    coordinators = [Coordinator(shard=shard, leader_id=1 + shard) for shard in range(shards)]
    return LeaderChoice(brokers, placement(policy).place(coordinators, brokers))


SOME_BROKERS = st.lists(
    st.builds(LiveBroker, node_id=st.integers(0, 30), rack=st.sampled_from([*RACKS, None])),
    min_size=1,
    unique_by=lambda one: one.node_id,
)
SOME_CLIENT = st.builds(ClientIdentity, st.text(max_size=3), st.text(max_size=3), st.text(max_size=3))


@given(SOME_BROKERS, SOME_CLIENT, st.sampled_from([*RACKS, "nowhere", None]), st.integers(1, 6))
def test_a_leader_is_a_gateway_of_the_coordinator_in_the_clients_rack(brokers, client, rack, shards):
    coordinators = [Coordinator(shard=shard, leader_id=shard) for shard in range(shards)]
    gateways = placement("kip1164").place(coordinators, brokers)
    leaders = LeaderChoice(brokers, gateways).leaders(client, rack)
    in_rack = {one.node_id for one in brokers if rack is not None and one.rack == rack}
    candidates = in_rack or {one.node_id for one in brokers}

    for shard in range(shards):
        anywhere = frozenset().union(*gateways[shard].values())
        assert leaders.of(shard) in anywhere & candidates
    assert leaders.of(None) in candidates
    assert leaders.of(99) == leaders.of(None)
    told = {leaders.of(shard) for shard in (*range(shards), None)}
    assert leaders.only == (told.pop() if len(told) == 1 else None)


@given(SOME_BROKERS, SOME_CLIENT, st.sampled_from([*RACKS, None]), st.randoms())
def test_brokers_that_see_the_same_cluster_say_the_same(brokers, client, rack, random):
    shuffled = random.sample(brokers, len(brokers))
    first, second = choice(brokers).leaders(client, rack), choice(shuffled).leaders(client, rack)

    assert [first.of(shard) for shard in (*range(4), None)] == [second.of(shard) for shard in (*range(4), None)]


@given(SOME_BROKERS, SOME_CLIENT, st.sampled_from([*RACKS, None]))
def test_without_gateways_any_broker_of_the_rack_leads_everything(brokers, client, rack):
    leaders = LeaderChoice(brokers, {}).leaders(client, rack)

    assert leaders.only in {one.node_id for one in brokers if one.rack == rack} or {one.node_id for one in brokers}


@pytest.mark.parametrize("rack", [*RACKS, None])
def test_clients_are_spread_evenly(rack):
    counted = Counter(LeaderChoice(cluster(12), {}).leaders(client, rack).of(0) for client in clients(6000))
    share = 6000 / (4 if rack else 12)

    assert len(counted) == (4 if rack else 12)
    assert all(0.85 * share < count < 1.15 * share for count in counted.values()), counted


@pytest.mark.parametrize("rack", ["a", None])
def test_when_a_broker_goes_only_its_own_clients_move(rack):
    before, after = LeaderChoice(cluster(12), {}), LeaderChoice(cluster(12)[:-1], {})
    moved = [
        before.leaders(client, rack).of(0)
        for client in clients(1000)
        if before.leaders(client, rack).of(0) != after.leaders(client, rack).of(0)
    ]

    assert set(moved) <= {12}


def test_when_a_broker_comes_clients_move_to_it_and_nowhere_else():
    before, after = LeaderChoice(cluster(12), {}), LeaderChoice(cluster(13), {})
    moved = [
        after.leaders(client, None).of(0)
        for client in clients(1300)
        if before.leaders(client, None).of(0) != after.leaders(client, None).of(0)
    ]

    assert set(moved) == {13}
    assert 60 < len(moved) < 140


def test_brokers_of_another_rack_are_nothing_to_a_client():
    before, after = LeaderChoice(cluster(12), {}), LeaderChoice(cluster(11), {})  # 12 is in another rack than b

    assert cluster(12)[-1].rack != "b"
    assert all(before.leaders(one, "b").of(0) == after.leaders(one, "b").of(0) for one in clients(500))


def test_a_client_has_one_gateway_for_coordinators_that_share_theirs():
    placed = {shard: {"a": frozenset({1, 2, 3})} for shard in range(8)}
    leaders = LeaderChoice([LiveBroker(node_id=one, rack="a") for one in (1, 2, 3)], placed)

    assert all(leaders.leaders(client, "a").only is not None for client in clients(50))


def test_what_is_remembered_of_clients_has_a_bound_in_bytes():
    tracemalloc.start()
    racks, chosen = ClientRacks(BrokerConfig()), choice(cluster(6))
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(500):
            client_id = f"{number:06}" + "\N{GRINNING FACE}" * 8_000
            chosen.leaders(
                ClientIdentity("ANONYMOUS", client_id, "10.0.0.1"), racks.rack_of(client_id, "10.0.0.1", "A")
            )
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 4 << 20

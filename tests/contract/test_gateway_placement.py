"""The gateway placements that come with Diskless keep the contract, and the suite finds out those that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import Phase, settings

from diskless_core.plugin.gateway_placement import Coordinator, GatewayPlacement, Gateways, LiveBroker, brokers_by_rack
from diskless_core.testing import gateway_placement as suite
from diskless_core.testing.gateway_placement import GatewayPlacementContract, MakePlacement
from tests.support.gateways import placement


class TestKip1164(GatewayPlacementContract):
    @pytest.fixture
    def make_placement(self) -> MakePlacement:
        return lambda: placement("kip1164")


class TestRendezvous(GatewayPlacementContract):
    @pytest.fixture
    def make_placement(self) -> MakePlacement:
        return lambda: placement("rendezvous")


class TestRendezvousWithThreeGateways(GatewayPlacementContract):
    @pytest.fixture
    def make_placement(self) -> MakePlacement:
        return lambda: placement("rendezvous", gateways_per_rack=3)


def everyone(coordinators, brokers):
    racks = {rack: frozenset(node_ids) for rack, node_ids in brokers_by_rack(brokers).items()}
    return {coordinator.shard: racks for coordinator in coordinators}


def no_gateway(coordinators, brokers):
    return {shard: dict.fromkeys(racks, frozenset()) for shard, racks in everyone(coordinators, brokers).items()}


def only_the_leader(coordinators, brokers):
    racks = {broker.node_id: broker.rack for broker in brokers}
    return {
        one.shard: {racks[one.leader_id]: frozenset({one.leader_id})} for one in coordinators if one.leader_id in racks
    }


def a_broker_of_another_rack(coordinators, brokers):
    everybody = frozenset(broker.node_id for broker in brokers)
    return {shard: dict.fromkeys(racks, everybody) for shard, racks in everyone(coordinators, brokers).items()}


def by_position(coordinators, brokers):
    racks = {}
    for broker in brokers:
        racks.setdefault(broker.rack, broker.node_id)
    return {one.shard: {rack: frozenset({node_id}) for rack, node_id in racks.items()} for one in coordinators}


def by_remainder(coordinators, brokers, turn=0):
    racks = brokers_by_rack(brokers)
    return {
        one.shard: {rack: frozenset({here[(one.shard + turn) % len(here)]}) for rack, here in racks.items()}
        for one in coordinators
    }


TOTAL = "test_every_coordinator_has_live_gateways_in_every_rack"
ORDER = "test_another_instance_that_hears_in_another_order_gives_the_same_gateways"
STABLE = "test_a_broker_that_joins_or_leaves_changes_little_on_the_others"


def always(work: Callable[..., Gateways]) -> MakePlacement:
    class Placement(GatewayPlacement):
        def place(self, coordinators: Sequence[Coordinator], brokers: Sequence[LiveBroker]) -> Gateways:
            return work(coordinators, brokers)

    return Placement


class ByTurns(GatewayPlacement):
    def __init__(self):
        self.turn = 0

    def place(self, coordinators, brokers):
        self.turn += 1
        return by_remainder(coordinators, brokers, self.turn)


@pytest.mark.parametrize(
    ("make_placement", "test"),
    [
        (always(no_gateway), TOTAL),
        (always(only_the_leader), TOTAL),
        (always(a_broker_of_another_rack), TOTAL),
        (always(by_position), ORDER),
        (ByTurns, ORDER),
        (ByTurns, "test_what_an_instance_saw_before_does_not_matter"),
        (always(by_remainder), STABLE),
    ],
    ids=["none", "leader only", "elsewhere", "by position", "repeated by turns", "by turns", "by remainder"],
)
def test_the_suite_fails_for_a_broken_placement(
    make_placement: MakePlacement, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody reads these failures, so the time to find the smallest one is saved.
    monkeypatch.setattr(suite, "_some", settings(suite._some, phases=[Phase.generate]))
    with pytest.raises(AssertionError):
        getattr(GatewayPlacementContract(), test)(make_placement)

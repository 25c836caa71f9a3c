"""Contract suite of the noun `gateway_placement`: what every placement plugin has to pass.

Subclass `GatewayPlacementContract` in a test module and give it the fixture `make_placement`; needs pytest and
hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.plugin.gateway_placement import Coordinator, GatewayPlacement, Gateways, LiveBroker, violation

MakePlacement = Callable[[], GatewayPlacement]

LARGEST_MOVE = 0.05
"""Which part of the gateways on other brokers may change, on average, when a broker leaves that leads nothing."""

_NODE_IDS = st.integers(0, 2**31 - 1)
_brokers = st.lists(
    st.builds(LiveBroker, node_id=_NODE_IDS, rack=st.sampled_from([None, "", "a", "b", "eu-central-1c"])),
    unique_by=lambda broker: broker.node_id,
    max_size=10,
)
_some = settings(max_examples=50, deadline=None, database=None)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Coordinator], list[LiveBroker]]:
    """Coordinators on some live brokers, on one that is not alive, or on none, and the live brokers."""
    brokers = draw(_brokers)
    leaders = st.sampled_from([None, *[broker.node_id for broker in brokers], draw(_NODE_IDS)])
    shards = draw(st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=8))
    return [Coordinator(shard=shard, leader_id=draw(leaders)) for shard in shards], brokers


def placed(placement: GatewayPlacement, coordinators: list[Coordinator], brokers: list[LiveBroker]) -> Gateways:
    """What it answers, after asserting that the core would accept it."""
    gateways = placement.place(coordinators, brokers)
    assert violation(coordinators, brokers, gateways) is None
    return gateways


def places(gateways: Gateways) -> set[tuple[int, int]]:
    """A placement as pairs of a shard and a gateway of it."""
    return {
        (shard, node_id) for shard, racks in gateways.items() for node_ids in racks.values() for node_id in node_ids
    }


def moved(before: Gateways, after: Gateways, gone: int) -> float:
    """Which part of the pairs of a shard and a gateway, those of the broker `gone` left out, was there only before."""
    kept = {(shard, node_id) for shard, node_id in places(before) if node_id != gone}
    return len(kept - places(after)) / len(kept)


def _departures(placement: GatewayPlacement) -> Iterator[float]:
    """How much moves when a broker leaves that leads nothing, for all of those in clusters of three racks."""
    coordinators = [Coordinator(shard=shard, leader_id=1 + shard % 6) for shard in range(12)]
    for count in (12, 17, 24, 31, 40):
        brokers = [LiveBroker(node_id=1 + n, rack=f"rack-{n % 3}") for n in range(count)]
        before = placed(placement, coordinators, brokers)
        for broker in brokers[6:]:
            after = placed(placement, coordinators, [other for other in brokers if other != broker])
            yield moved(before, after, broker.node_id)


class GatewayPlacementContract:
    """A placement plugin passes if a subclass with `make_placement` overridden does."""

    @pytest.fixture
    def make_placement(self) -> MakePlacement:
        """A function that gives a new instance, as on another broker or after a restart."""
        raise NotImplementedError("give this fixture in the subclass")

    def test_without_brokers_no_coordinator_has_gateways(self, make_placement: MakePlacement) -> None:
        assert make_placement().place([Coordinator(shard=3, leader_id=1)], []) == {3: {}}

    def test_a_single_broker_is_the_gateway_of_every_coordinator(self, make_placement: MakePlacement) -> None:
        coordinators = [Coordinator(shard=0, leader_id=7), Coordinator(shard=1)]

        assert placed(make_placement(), coordinators, [LiveBroker(node_id=7)]) == {0: {None: {7}}, 1: {None: {7}}}

    def test_every_coordinator_has_live_gateways_in_every_rack(self, make_placement: MakePlacement) -> None:
        @_some
        @given(cluster=clusters())
        def holds(cluster: tuple[list[Coordinator], list[LiveBroker]]) -> None:
            placed(make_placement(), *cluster)

        holds()

    def test_another_instance_that_hears_in_another_order_gives_the_same_gateways(
        self, make_placement: MakePlacement
    ) -> None:
        @_some
        @given(cluster=clusters(), data=st.data())
        def holds(cluster: tuple[list[Coordinator], list[LiveBroker]], data: st.DataObject) -> None:
            coordinators, brokers = cluster
            one, other = make_placement(), make_placement()
            first = one.place(coordinators, brokers)
            shuffled = data.draw(st.permutations(coordinators)), data.draw(st.permutations(brokers))
            assert other.place(*shuffled) == first
            assert one.place(coordinators, brokers) == first

        holds()

    def test_what_an_instance_saw_before_does_not_matter(self, make_placement: MakePlacement) -> None:
        @_some
        @given(seen=st.lists(clusters(), max_size=2), cluster=clusters())
        def holds(
            seen: list[tuple[list[Coordinator], list[LiveBroker]]], cluster: tuple[list[Coordinator], list[LiveBroker]]
        ) -> None:
            old = make_placement()
            for earlier in seen:
                old.place(*earlier)
            assert old.place(*cluster) == make_placement().place(*cluster)

        holds()

    def test_its_arguments_are_left_alone_and_may_be_any_sequence(self, make_placement: MakePlacement) -> None:
        @_some
        @given(cluster=clusters())
        def holds(cluster: tuple[list[Coordinator], list[LiveBroker]]) -> None:
            coordinators, brokers = list(cluster[0]), list(cluster[1])
            from_lists = make_placement().place(coordinators, brokers)
            assert (coordinators, brokers) == cluster
            assert make_placement().place(tuple(coordinators), tuple(brokers)) == from_lists

        holds()

    def test_a_broker_that_joins_or_leaves_changes_little_on_the_others(self, make_placement: MakePlacement) -> None:
        assert mean(_departures(make_placement())) <= LARGEST_MOVE

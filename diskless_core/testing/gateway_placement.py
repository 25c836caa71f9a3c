"""Contract suite of the noun `gateway_placement`: what every placement plugin has to pass.

Subclass `GatewayPlacementContract` in a test module and give it the fixture `make_placement`; needs pytest and
hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import mean

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from diskless_core.plugin.gateway_placement import Coordinator, GatewayPlacement, Gateways, LiveBroker, violation
from diskless_core.testing.other_process import answers_elsewhere

MakePlacement = Callable[[], GatewayPlacement]

LARGEST_MOVE = 0.05
"""Which part of the gateways on other brokers may change, on average, when a broker leaves that leads nothing."""

_NODE_IDS = st.integers(0, 2**31 - 1)
_brokers = st.lists(
    st.builds(LiveBroker, node_id=_NODE_IDS, rack=st.sampled_from([None, "", "a", "b", "eu-central-1c"])),
    unique_by=lambda broker: broker.node_id,
    max_size=10,
)
_some = settings(
    max_examples=50,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
)


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
    problem = violation(coordinators, brokers, gateways)
    assert problem is None, f"it placed {gateways}: {problem}"
    return gateways


def places(gateways: Gateways) -> set[tuple[int, int]]:
    """A placement as pairs of a shard and a gateway of it."""
    return {
        (shard, node_id) for shard, racks in gateways.items() for node_ids in racks.values() for node_id in node_ids
    }


def moved(before: Gateways, after: Gateways, gone: int) -> float:
    """Which part of the pairs of a shard and a gateway, those of the broker `gone` left out, was there only before."""
    kept = {(shard, node_id) for shard, node_id in places(before) if node_id != gone}
    return len(kept - places(after)) / len(kept) if kept else 0.0


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
        gateways = make_placement().place([Coordinator(shard=3, leader_id=1)], [])
        assert gateways == {3: {}}, f"without brokers a shard has an entry, and no rack in it: {gateways}"

    def test_a_single_broker_is_the_gateway_of_every_coordinator(self, make_placement: MakePlacement) -> None:
        coordinators = [Coordinator(shard=0, leader_id=7), Coordinator(shard=1)]

        gateways = placed(make_placement(), coordinators, [LiveBroker(node_id=7)])
        assert gateways == {0: {None: {7}}, 1: {None: {7}}}, "the only broker is the gateway of every shard"

    def test_without_coordinators_nothing_is_placed(self, make_placement: MakePlacement) -> None:
        gateways = make_placement().place([], [LiveBroker(node_id=7), LiveBroker(node_id=8, rack="a")])
        assert gateways == {}, f"nothing is placed where there are no coordinators, and not {gateways}"

    def test_each_rack_has_gateways_of_its_own(self, make_placement: MakePlacement) -> None:
        coordinators = [Coordinator(shard=shard, leader_id=1 + shard % 3) for shard in (4, 9, 2, 7)]
        brokers = [LiveBroker(node_id=1 + n, rack=("a", "", None)[n % 3]) for n in range(7)]
        placed(make_placement(), coordinators, brokers)

    def test_a_leader_that_is_not_alive_or_not_known_is_no_gateway(self, make_placement: MakePlacement) -> None:
        brokers = [LiveBroker(node_id=1, rack="a"), LiveBroker(node_id=2, rack="b"), LiveBroker(node_id=3, rack="b")]
        coordinators = [Coordinator(shard=0, leader_id=9), Coordinator(shard=1, leader_id=2), Coordinator(shard=2)]
        placed(make_placement(), coordinators, brokers)

    def test_every_coordinator_has_live_gateways_in_every_rack(self, make_placement: MakePlacement) -> None:
        @_some
        @given(cluster=clusters())
        def holds(cluster: tuple[list[Coordinator], list[LiveBroker]]) -> None:
            placed(make_placement(), *cluster)

        holds()

    def test_another_instance_that_hears_in_another_order_gives_the_same_gateways(
        self, make_placement: MakePlacement
    ) -> None:
        some = [Coordinator(shard=shard, leader_id=1 + shard) for shard in range(6)]
        live = [LiveBroker(node_id=1 + n, rack=f"rack-{n % 2}") for n in range(8)]
        heard_backwards = make_placement().place(some[::-1], live[::-1])
        assert heard_backwards == make_placement().place(some, live), "the order of the arguments does not matter"

        @_some
        @given(cluster=clusters(), data=st.data())
        def holds(cluster: tuple[list[Coordinator], list[LiveBroker]], data: st.DataObject) -> None:
            coordinators, brokers = cluster
            one, other = make_placement(), make_placement()
            first = one.place(coordinators, brokers)
            shuffled = data.draw(st.permutations(coordinators)), data.draw(st.permutations(brokers))
            assert other.place(*shuffled) == first, "neither the instance nor the order of the arguments matters"
            assert one.place(coordinators, brokers) == first, "the same call gives the same gateways again"

        holds()

    def test_another_process_gives_the_same_gateways(self, make_placement: MakePlacement) -> None:
        placement = make_placement()
        coordinators = [Coordinator(shard=shard, leader_id=1 + shard % 6) for shard in range(12)]
        calls = [
            (coordinators, [LiveBroker(node_id=1 + n, rack=rack and f"{rack}-{n % 3}") for n in range(count)])
            for count, rack in ((5, None), (11, "rack"), (24, "zone"))
        ]
        elsewhere = answers_elsewhere(placement, "place", calls)
        here = [placement.place(*call) for call in calls]
        assert elsewhere == here, "the same gateways are chosen in every process"

    def test_what_an_instance_saw_before_does_not_matter(self, make_placement: MakePlacement) -> None:
        @_some
        @given(seen=st.lists(clusters(), max_size=2), cluster=clusters())
        def holds(
            seen: list[tuple[list[Coordinator], list[LiveBroker]]], cluster: tuple[list[Coordinator], list[LiveBroker]]
        ) -> None:
            old = make_placement()
            for earlier in seen:
                old.place(*earlier)
            new = make_placement().place(*cluster)
            assert old.place(*cluster) == new, "gateways depend on the arguments alone, not on earlier calls"

        holds()

    def test_an_instance_that_saw_the_cluster_grow_and_shrink_places_as_a_new_one(
        self, make_placement: MakePlacement
    ) -> None:
        coordinators = [Coordinator(shard=shard, leader_id=1 + shard % 3) for shard in range(12)]
        brokers = [LiveBroker(node_id=1 + n, rack=f"rack-{n % 2}") for n in range(12)]
        old = make_placement()
        for count in (3, 6, 12, 9, 4):
            live = brokers[-count:]
            new = make_placement().place(coordinators, live)
            assert old.place(coordinators, live) == new, "gateways depend on the arguments alone, not on earlier calls"

    def test_later_calls_do_not_change_gateways_that_were_given(self, make_placement: MakePlacement) -> None:
        placement = make_placement()
        coordinators = [Coordinator(shard=shard) for shard in range(3)]
        first = placement.place(coordinators, [LiveBroker(node_id=1, rack="a"), LiveBroker(node_id=2, rack="b")])
        before = places(first)
        placement.place(coordinators[1:], [LiveBroker(node_id=3, rack="a")])
        assert places(first) == before, "a later call changed the gateways that an earlier one gave"

    def test_its_arguments_are_left_alone_and_may_be_any_sequence(self, make_placement: MakePlacement) -> None:
        @_some
        @given(cluster=clusters())
        def holds(cluster: tuple[list[Coordinator], list[LiveBroker]]) -> None:
            coordinators, brokers = list(cluster[0]), list(cluster[1])
            from_lists = make_placement().place(coordinators, brokers)
            assert (coordinators, brokers) == cluster, "the coordinators or the brokers were changed"
            from_tuples = make_placement().place(tuple(coordinators), tuple(brokers))
            assert from_tuples == from_lists, "tuples give the same gateways as lists"

        holds()

    def test_a_broker_that_joins_or_leaves_changes_little_on_the_others(self, make_placement: MakePlacement) -> None:
        part = mean(_departures(make_placement()))
        assert part <= LARGEST_MOVE, (
            f"when a broker leaves, {part:.0%} of the gateways on other brokers change on average, and at most "
            f"{LARGEST_MOVE:.0%} may"
        )

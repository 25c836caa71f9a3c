"""How much of a gateway placement changes when a broker leaves, measured for the table of its page in docs/."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

from diskless_core.cluster.gateway_plan import Cluster, model_cluster
from diskless_core.plugin.gateway_placement import Coordinator
from diskless_core.testing.gateway_placement import moved
from tests.support.gateways import POLICIES, placement

PAGE = Path(__file__).parents[3] / "docs" / "plugins" / "gateway_placement.md"
SIZES = (6, 12, 24, 36, 48, 108, 120)


def without(cluster: Cluster, gone: int) -> Cluster:
    """The cluster when a broker has left, and the brokers after it in turn lead what it led."""
    brokers = [broker for broker in cluster.brokers if broker.node_id != gone]
    heirs = [broker.node_id for broker in brokers[gone - 1 :] + brokers[: gone - 1]]
    led = [coordinator.shard for coordinator in cluster.coordinators if coordinator.leader_id == gone]
    inherited = {shard: heirs[n % len(heirs)] for n, shard in enumerate(led)}
    coordinators = [
        Coordinator(shard=coordinator.shard, leader_id=inherited.get(coordinator.shard, coordinator.leader_id))
        for coordinator in cluster.coordinators
    ]
    return Cluster(coordinators=coordinators, brokers=brokers)


def departures(policy: str, size: int, *, leading: bool) -> list[float]:
    """What part of the other brokers' gateways moves, for each leaving broker that led a coordinator, or led none."""
    asked = placement(policy)
    cluster = model_cluster(brokers=size, racks=3, coordinators=12)
    before = asked.place(cluster.coordinators, cluster.brokers)
    leaders = {coordinator.leader_id for coordinator in cluster.coordinators}
    figures = []
    for broker in cluster.brokers:
        if (broker.node_id in leaders) == leading:
            rest = without(cluster, broker.node_id)
            figures.append(moved(before, asked.place(rest.coordinators, rest.brokers), broker.node_id))
    return figures


def cell(figures: list[float]) -> str:
    return f"{mean(figures):.1%} ({max(figures):.1%})" if figures else "all lead"


def row(size: int) -> str:
    cells = [cell(departures(policy, size, leading=leading)) for policy in POLICIES for leading in (True, False)]
    return f"| {size} | {' | '.join(cells)} |\n"


def test_the_page_shows_how_much_moves_when_a_broker_leaves():
    measured = "".join(map(row, SIZES))

    assert list(POLICIES) == ["kip1164", "rendezvous"]
    assert measured in PAGE.read_text(encoding="utf-8"), f"the measured rows are:\n{measured}"


@pytest.mark.parametrize("size", SIZES)
def test_rendezvous_moves_nothing_that_need_not_move(size):
    assert {*departures("rendezvous", size, leading=True), *departures("rendezvous", size, leading=False)} == {0.0}

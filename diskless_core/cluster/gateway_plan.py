"""What a gateway placement does to a cluster: how its gateways are spread, and how many commits a WAL object costs.

Pure: the cluster may be a real one or a model of one that somebody thinks of building. (KIP-1164, "Reducing multi-DC
commit operations".)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diskless_core.plugin.gateway_placement import Coordinator, Gateways, LiveBroker, brokers_by_rack


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What a placement is asked about."""

    coordinators: Sequence[Coordinator]
    brokers: Sequence[LiveBroker]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayBroker:
    """One broker under a placement.

    Attributes:
        node_id: its `node.id`.
        rack: its rack.
        coordinators: how many it is a gateway of.
        network_commits: to how many other brokers it has to send a commit, at the worst, for one WAL object that was
            gathered from producers of its own rack. Coordinators of one broker are one request, its own are none.
    """

    node_id: int
    rack: str | None
    coordinators: int
    network_commits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The smallest and the largest of some numbers."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySummary:
    """A placement in figures.

    Attributes:
        gateways_per_rack: of one coordinator.
        coordinators_per_broker: that it is a gateway of.
        network_commits: for one WAL object, at the worst.
        network_commits_without_gateways: the same if producers chose any broker of their rack.
    """

    gateways_per_rack: Range
    coordinators_per_broker: Range
    network_commits: int
    network_commits_without_gateways: int


def model_cluster(*, brokers: int, racks: int, coordinators: int) -> Cluster:
    """Brokers 1, 2, … go round the racks `rack-1`, `rack-2`, …, and coordinators 0, 1, … go round the brokers.

    All three are at least 1, and there are no more racks than brokers.
    """
    return Cluster(
        coordinators=[Coordinator(shard=shard, leader_id=1 + shard % brokers) for shard in range(coordinators)],
        brokers=[LiveBroker(node_id=1 + n, rack=f"rack-{1 + n % racks}") for n in range(brokers)],
    )


def gateway_brokers(cluster: Cluster, gateways: Gateways) -> list[GatewayBroker]:
    """Every broker of the cluster with its part of a placement, in the cluster's order."""
    leaders = {coordinator.shard: coordinator.leader_id for coordinator in cluster.coordinators}
    gathered: dict[int, set[int]] = {broker.node_id: set() for broker in cluster.brokers}
    for shard, by_rack in gateways.items():
        for node_ids in by_rack.values():
            for node_id in node_ids:
                gathered[node_id].add(shard)
    return [
        GatewayBroker(
            node_id=broker.node_id,
            rack=broker.rack,
            coordinators=len(gathered[broker.node_id]),
            network_commits=len({leaders[shard] for shard in gathered[broker.node_id]} - {None, broker.node_id}),
        )
        for broker in cluster.brokers
    ]


def summarize(cluster: Cluster, gateways: Gateways) -> GatewaySummary:
    """The figures of a placement for a cluster that has a broker and a coordinator."""
    brokers = gateway_brokers(cluster, gateways)
    all_brokers = {rack: frozenset(node_ids) for rack, node_ids in brokers_by_rack(cluster.brokers).items()}
    without = gateway_brokers(cluster, {coordinator.shard: all_brokers for coordinator in cluster.coordinators})
    return GatewaySummary(
        gateways_per_rack=_range([len(node_ids) for by_rack in gateways.values() for node_ids in by_rack.values()]),
        coordinators_per_broker=_range([broker.coordinators for broker in brokers]),
        network_commits=max(broker.network_commits for broker in brokers),
        network_commits_without_gateways=max(broker.network_commits for broker in without),
    )


def _range(numbers: Sequence[int]) -> Range:
    return Range(least=min(numbers), most=max(numbers))

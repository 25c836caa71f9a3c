"""Hook noun `gateway_placement`: which brokers are the produce gateways of a coordinator, in each rack.

A producer in a rack is led to a gateway of its partition's coordinator there, so that a WAL object holds batches of few
coordinators and is committed with few requests (KIP-1164, "Reducing multi-DC commit operations").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.hookspecs import hookspec

Gateways = Mapping[int, Mapping[str | None, frozenset[int]]]
"""Shard of a coordinator → rack → node ids of its gateways there. The gateways of one rack have no order: the
broker that answers a producer spreads producers over them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker:
    """A broker that is alive.

    Attributes:
        node_id: its `node.id`.
        rack: its `broker.rack`; None if it has none. Brokers without a rack are together in the rack None.
    """

    node_id: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """One Diskless coordinator.

    Attributes:
        shard: its partition of the metadata topic.
        leader_id: `node.id` of the broker that leads the shard; None while nobody is known to. It may name a broker
            that is not alive, which means the same.
    """

    shard: int
    leader_id: int | None = None


class GatewayPlacement(ABC):
    """A pure function: same input, same output, on every broker and in every process. No I/O, no state.

    Every broker computes the placement for itself from what it knows of the cluster and answers producers by it.
    """

    @abstractmethod
    def place(self, coordinators: Sequence[Coordinator], brokers: Sequence[LiveBroker]) -> Gateways:
        """The gateways of every coordinator in every rack.

        Args:
            coordinators: all coordinators, each shard once, in any order; the order must not matter.
            brokers: all live brokers, each node id once, in any order; the order must not matter.

        Returns:
            An entry for each shard, in it one for each rack that has a live broker, in that at least one gateway; all
            of them are live brokers of that rack. The core checks it with `violation`.

            It is stable: when a broker joins or leaves and all coordinators stay where they are, few of the gateways on
            the other brokers change. The contract suite of this noun says how many, on average.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPlacementPlugin(Descriptor[GatewayPlacement]):
    """Descriptor that `diskless_gateway_placements` yields."""

    noun = "gateway_placement"


@hookspec
def diskless_gateway_placements() -> list[GatewayPlacementPlugin]:
    """Ways to choose produce gateways, chosen with `gateway_placement=<name>`.

    Example::

        @hookimpl
        def diskless_gateway_placements() -> list[GatewayPlacementPlugin]:
            return [
                GatewayPlacementPlugin(
                    name="dedicated",
                    factory=DedicatedPlacement,
                    settings=DedicatedSettings,
                    api_version="1.0",
                    help="Makes gateways of the brokers that are set aside for it.",
                )
            ]
    """
    raise NotImplementedError


def brokers_by_rack(brokers: Iterable[LiveBroker]) -> dict[str | None, list[int]]:
    """Node ids in each rack that has a broker, ascending, whatever the order of `brokers`."""
    racks: dict[str | None, list[int]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker.node_id)
    return {rack: sorted(node_ids) for rack, node_ids in racks.items()}


def violation(coordinators: Sequence[Coordinator], brokers: Sequence[LiveBroker], gateways: Gateways) -> str | None:
    """How a placement breaks the contract of `place`, in one line, or None if it does not. Stability is not seen."""
    shards = {coordinator.shard for coordinator in coordinators}
    if set(gateways) != shards:
        return f"it places the shards {sorted(gateways)}, not {sorted(shards)}"
    racks = brokers_by_rack(brokers)
    for shard, by_rack in gateways.items():
        if set(by_rack) != set(racks):
            return f"shard {shard} has gateways in the racks {_names(by_rack)}, not {_names(racks)}"
        for rack, node_ids in by_rack.items():
            if not node_ids:
                return f"shard {shard} has no gateway in rack {rack}"
            if strangers := set(node_ids).difference(racks[rack]):
                return f"shard {shard} has gateways in rack {rack} that are no live brokers there: {sorted(strangers)}"
    return None


def _names(racks: Iterable[str | None]) -> list[str]:
    return sorted(map(str, racks))

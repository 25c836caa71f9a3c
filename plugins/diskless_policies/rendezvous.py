"""Gateways by rendezvous hashing: in each rack, the brokers with a shard's highest weights.

What changes is the least that can, and leaders do not matter. The price: brokers are loaded as chance has it,
co-located coordinators are spread over a rack, and a coordinator's own broker need not be its gateway.
"""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.gateway_placement import Coordinator, GatewayPlacement, Gateways, LiveBroker, brokers_by_rack
from diskless_policies.config import RendezvousSettings
from diskless_policies.weights import weight


class RendezvousPlacement(GatewayPlacement):
    """The same number of gateways for each shard and rack, or all brokers of a rack that has fewer."""

    def __init__(self, context: PluginContext, settings: RendezvousSettings) -> None:
        """Make the policy; it needs nothing of its context."""
        del context
        self._wanted = settings.gateways_per_rack

    def place(self, coordinators: Sequence[Coordinator], brokers: Sequence[LiveBroker]) -> Gateways:
        racks = brokers_by_rack(brokers)
        return {
            coordinator.shard: {rack: self._heaviest(coordinator.shard, here) for rack, here in racks.items()}
            for coordinator in coordinators
        }

    def _heaviest(self, shard: int, node_ids: Sequence[int]) -> frozenset[int]:
        ranked = sorted(node_ids, key=lambda node_id: (weight(shard, node_id), node_id), reverse=True)
        return frozenset(ranked[: self._wanted])

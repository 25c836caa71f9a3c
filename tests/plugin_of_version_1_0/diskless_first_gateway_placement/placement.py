"""The policy `first_gateway_placement`: which brokers are the produce gateways of a coordinator in each rack."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.gateway_placement import Coordinator, GatewayPlacement, Gateways, LiveBroker, brokers_by_rack

from diskless_first_gateway_placement.settings import FirstGatewayPlacementSettings


class FirstGatewayPlacementPlacement(GatewayPlacement):
    """In each rack, the brokers with the highest score for the coordinator's shard.

    Every broker computes this for itself, so it must be pure: the same input gives the same output, in every process.
    Python's own `hash` does not. A broker that leaves moves only what it had itself: scores depend on nothing else.
    """

    def __init__(self, context: PluginContext, settings: FirstGatewayPlacementSettings) -> None:
        """A factory does no I/O."""
        del context
        self._gateways_per_rack = settings.gateways_per_rack

    def place(self, coordinators: Sequence[Coordinator], brokers: Sequence[LiveBroker]) -> Gateways:
        racks = brokers_by_rack(brokers)
        return {
            coordinator.shard: {rack: self._best(coordinator.shard, node_ids) for rack, node_ids in racks.items()}
            for coordinator in coordinators
        }

    def _best(self, shard: int, node_ids: Sequence[int]) -> frozenset[int]:
        # Replace this by your rule.
        ranked = sorted(node_ids, key=lambda node_id: (_score(shard, node_id), node_id))
        return frozenset(ranked[-self._gateways_per_rack :])


def _score(shard: int, node_id: int) -> bytes:
    return hashlib.sha256(f"{shard} {node_id}".encode()).digest()

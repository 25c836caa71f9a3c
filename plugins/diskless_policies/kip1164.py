"""Gateways as KIP-1164 describes them, "Reducing multi-DC commit operations": few commits for each WAL object.

A coordinator's own broker is its gateway in its own rack. Elsewhere gateways are dealt out evenly; while brokers are
few, co-located coordinators share theirs, so that what a gateway gathers for them is one request to one broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.gateway_placement import Coordinator, GatewayPlacement, Gateways, LiveBroker, brokers_by_rack
from diskless_policies.config import Kip1164Settings
from diskless_policies.weights import weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Shards with the same gateways everywhere. `leader_id` is the live broker that leads them, if there is one."""

    shards: tuple[int, ...]
    leader_id: int | None

    def weight(self, node_id: int) -> int:
        """How much it would like to have a broker: the strongest of its shards' wishes, so that it goes with them."""
        return max(weight(shard, node_id) for shard in self.shards)


class Kip1164Placement(GatewayPlacement):
    """One gateway for each shard and rack, and where a rack has more brokers than that takes, all of them, dealt out.

    In racks of one size that is the KIP's number, max(1, brokers // coordinators // racks), or one more: what its
    division leaves over would be brokers that no producer is led to.
    """

    def __init__(self, context: PluginContext, settings: Kip1164Settings) -> None:
        """Make the policy; it needs nothing of its context."""
        del context, settings

    def place(self, coordinators: Sequence[Coordinator], brokers: Sequence[LiveBroker]) -> Gateways:
        racks = brokers_by_rack(brokers)
        if not coordinators or not racks:
            return {coordinator.shard: {} for coordinator in coordinators}
        to_share = len(coordinators) * len(racks)
        groups = grouped(coordinators, {broker.node_id for broker in brokers}, together=len(brokers) < to_share)
        placed = {rack: dealt(groups, node_ids) for rack, node_ids in racks.items()}
        return {shard: {rack: placed[rack][group] for rack in racks} for group in groups for shard in group.shards}


def grouped(coordinators: Iterable[Coordinator], live: Container[int], *, together: bool) -> list[Group]:
    """The coordinators by the live brokers that lead them if `together`, else each by itself."""
    led: dict[tuple[int | None, int | None], list[int]] = {}
    for coordinator in coordinators:
        leader_id = coordinator.leader_id if coordinator.leader_id in live else None
        alone = None if together and leader_id is not None else coordinator.shard
        led.setdefault((leader_id, alone), []).append(coordinator.shard)
    return [Group(shards=tuple(sorted(shards)), leader_id=leader_id) for (leader_id, _), shards in led.items()]


def dealt(groups: Sequence[Group], node_ids: Sequence[int]) -> dict[Group, frozenset[int]]:
    """Brokers of one rack for each group, its leader if it is here, and a group for each broker; loads are even.

    Every broker gets a first group, the heaviest pairs coming first, before any gets a second one, and so on; where
    brokers are left over, every group gets a second broker before any gets a third one. Each of these rounds is a
    stable matching: a broker that goes displaces its own groups, and few others along with them.
    """
    chosen = {group: {node_id for node_id in node_ids if node_id == group.leader_id} for group in groups}
    load = Counter(node_id for gateways in chosen.values() for node_id in gateways)
    pairs = by_weight(groups, node_ids)

    def deal(group: Group, node_id: int) -> None:
        chosen[group].add(node_id)
        load[node_id] += 1

    limit = 0
    while not all(chosen.values()):
        limit += 1
        for group, node_id in pairs:
            if not chosen[group] and load[node_id] < limit:
                deal(group, node_id)
    share = 1
    while pairs := [pair for pair in pairs if not load[pair[1]]]:
        share += 1
        for group, node_id in pairs:
            if not load[node_id] and len(chosen[group]) < share:
                deal(group, node_id)
    return {group: frozenset(gateways) for group, gateways in chosen.items()}


def by_weight(groups: Iterable[Group], node_ids: Sequence[int]) -> list[tuple[Group, int]]:
    """All pairs, the heaviest first, whatever the order of `groups`."""
    pairs = [(-group.weight(node_id), node_id, group.shards, group) for group in groups for node_id in node_ids]
    return [(group, node_id) for _, node_id, _, group in sorted(pairs, key=itemgetter(0, 1, 2))]

"""The produce gateways as this node knows them: the plugin's placement for the brokers that are live now.

It is worked out when a client asks after brokers or leaders of coordinators have changed, and not for each client.
(KIP-1164, "Reducing multi-DC commit operations".)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from diskless_core.cluster.leader_choice import ClientIdentity, LeaderChoice, Leaders
from diskless_core.cluster.membership.brokers import Brokers
from diskless_core.cluster.membership.model import Registration
from diskless_core.cluster.membership.tables import BROKERS
from diskless_core.cluster.shard import ClusterShard
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.coordinator.tables import Writes
from diskless_core.metrics import Metrics
from diskless_core.plugin.gateway_placement import Coordinator, GatewayPlacement, Gateways, LiveBroker, violation

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayNeighbours:
    """What the gateways follow from.

    Attributes:
        itself: this broker. It is named while no other is known to be live.
        lost: the brokers that have most likely just ended, whatever their registrations say.
        coordinators: the Diskless shards of this node by index, of all coordinators.
    """

    placement: GatewayPlacement
    itself: LiveBroker
    brokers: Brokers
    lost: Callable[[], frozenset[int]]
    cluster: ClusterShard
    coordinators: Mapping[int, CoordinatorShard[Any]]
    metrics: Metrics


class ProduceGateways:
    """Tells clients whom to produce to."""

    def __init__(self, neighbours: GatewayNeighbours) -> None:
        self._neighbours = neighbours
        self._led_by: Sequence[int | None] = ()
        self._lost: frozenset[int] = frozenset()
        self._choices: dict[str, LeaderChoice] = {}
        neighbours.cluster.on_commit(self._note)

    def leaders(self, listener: str, client: ClientIdentity, rack: str | None) -> Leaders:
        """What a client of this listener and rack is told to be the leaders of all partitions.

        None of them is fenced, lost, shuts down or lacks the listener, as far as this node knows and as there is
        another.
        """
        led_by = [shard.leader_hint for shard in self._neighbours.coordinators.values()]
        lost = self._neighbours.lost()
        if led_by != self._led_by or lost != self._lost:
            self._led_by, self._lost = led_by, lost
            self._choices.clear()
        choice = self._choices.get(listener)
        if choice is None:
            brokers = self._live(listener)
            choice = self._choices[listener] = LeaderChoice(brokers, self._place(brokers))
        return choice.leaders(client, rack)

    def _live(self, listener: str) -> Sequence[LiveBroker]:
        live = [one for one in self._neighbours.brokers.live() if one.spec.listener(listener) is not None]
        staying = [one for one in live if not one.is_shutting_down and one.spec.node_id not in self._lost]
        return [_live_broker(one) for one in staying or live] or [self._neighbours.itself]

    def _place(self, brokers: Sequence[LiveBroker]) -> Gateways:
        """What the plugin says; nothing if it fails. A client without a gateway is dearer, but not worse off."""
        coordinators = [
            Coordinator(shard=shard, leader_id=leader_id)
            for shard, leader_id in zip(self._neighbours.coordinators, self._led_by, strict=True)
        ]
        try:
            placed = self._neighbours.placement.place(coordinators, brokers)
            problem = violation(coordinators, brokers, placed)
        except Exception as error:  # whatever a plugin may raise
            problem = f"it raised {error!r}"
        if problem is None:
            return placed
        self._neighbours.metrics.gateway_placement_failures.inc()
        _log.error(
            "the plugin of gateway_placement breaks its contract; clients are sent to any broker of their rack",
            problem=problem,
        )
        return {}

    def _note(self, writes: Writes) -> None:
        if BROKERS in writes:
            self._choices.clear()


def _live_broker(registration: Registration) -> LiveBroker:
    return LiveBroker(node_id=registration.spec.node_id, rack=registration.spec.rack)

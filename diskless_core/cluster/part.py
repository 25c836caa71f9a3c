"""Topics, settings, quotas and producer ids on one node, as a part: made from its settings and its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from diskless_core.clock import Clock
from diskless_core.cluster.client_quotas import ClientQuotas
from diskless_core.cluster.config_layers import BrokerSettings
from diskless_core.cluster.configs import Configs
from diskless_core.cluster.producer_ids import ANSWER_MS, ProducerIds
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.topic_settling import Having, as_they_are
from diskless_core.cluster.topics import Topics
from diskless_core.coordinator.calls import PeerCalls
from diskless_core.coordinator.peers import PeerTransport
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.shard import DisklessShard
from diskless_core.quotas.entities import Quotas


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNeighbours:
    """What the cluster's topics and settings stand on.

    Attributes:
        shard: the cluster shard, which has been started.
        replicas: the Diskless shards with a replica on this node, which have been started.
        coordinators: all Diskless coordinators, wherever they are led.
        transport: to the controller.
        broker_epoch: the number of this process's registration, None where it has none.
        having: see `Having`.
        apply_quotas: called with all quotas, now and whenever one of them has changed.
    """

    node_id: int
    shard: ClusterShard
    replicas: Mapping[int, DisklessShard]
    coordinators: Mapping[int, DisklessCoordinator]
    transport: PeerTransport
    broker_epoch: Callable[[], int | None]
    apply_quotas: Callable[[Quotas], None]
    clock: Clock
    having: Having = as_they_are


class Cluster:
    """What the cluster shard says, and its alteration."""

    def __init__(self, settings: BrokerSettings, neighbours: ClusterNeighbours) -> None:
        self.shard = shard = neighbours.shard
        self.configs = Configs(shard, settings)
        self.topics = Topics(
            shard, neighbours.replicas, neighbours.coordinators, self.configs, neighbours.clock, neighbours.having
        )
        self.client_quotas = ClientQuotas(shard, neighbours.apply_quotas)
        calls = PeerCalls(neighbours.transport, timeout_ms=ANSWER_MS, transfer_s=0)
        self.producer_ids = ProducerIds(shard, neighbours.node_id, calls, neighbours.broker_epoch)

    async def start(self) -> None:
        """Bring the Diskless shards to what the cluster shard says; see `Topics.start`."""
        await self.topics.start()

    async def stop(self) -> None:
        """End what goes on in the background."""
        await self.topics.stop()

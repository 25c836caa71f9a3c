"""What the handlers work with: one object for each part of the broker, made by the composition root."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from diskless_core.broker.auto_creation import AutoCreation
from diskless_core.broker.departure import Departure
from diskless_core.broker.endpoint import Endpoint
from diskless_core.broker.fenced_brokers import FencedBrokers
from diskless_core.broker.forwarding import Forwarding
from diskless_core.broker.parts import BrokerParts
from diskless_core.broker.shard_copies import AllShardCopies
from diskless_core.clock import Clock
from diskless_core.cluster.client_quotas import ClientQuotas
from diskless_core.cluster.client_racks import ClientRacks
from diskless_core.cluster.configs import Configs
from diskless_core.cluster.gateways import ProduceGateways
from diskless_core.cluster.membership.part import Membership
from diskless_core.cluster.producer_ids import ProducerIds
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.topics import Topics
from diskless_core.config.broker import BrokerConfig
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.service import CoordinatorService
from diskless_core.fetch.fetcher import Fetcher
from diskless_core.fetch.object_lender import ObjectLender
from diskless_core.groups.coordinators import GroupCoordinators
from diskless_core.metrics import Metrics
from diskless_core.produce.writer import WalWriter
from diskless_core.quotas.managers import QuotaManagers


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A registered broker as clients of one listener reach it."""

    endpoint: Endpoint
    rack: str | None
    is_fenced: bool


@dataclass(slots=True, kw_only=True)
class Services:
    """The parts of a running broker. `endpoints` is filled when the listeners are bound."""

    config: BrokerConfig
    cluster_id: str
    cluster_shard: ClusterShard
    shard_copies: AllShardCopies
    fenced_brokers: FencedBrokers
    forwarding: Forwarding
    membership: Membership
    client_racks: ClientRacks
    gateways: ProduceGateways
    clock: Clock
    metrics: Metrics
    topics: Topics
    auto_creation: AutoCreation
    configs: Configs
    client_quotas: ClientQuotas
    quotas: QuotaManagers
    producer_ids: ProducerIds
    writer: WalWriter
    fetcher: Fetcher
    object_lender: ObjectLender
    groups: GroupCoordinators
    purgatory: Purgatory
    coordinators: CoordinatorService
    endpoints: Mapping[str, Endpoint]
    departure: Departure

    @classmethod
    def of(
        cls,
        config: BrokerConfig,
        parts: BrokerParts,
        clock: Clock,
        metrics: Metrics,
        endpoints: Mapping[str, Endpoint],
    ) -> Services:
        """Those of a broker with these parts."""
        return cls(
            config=config,
            cluster_id=parts.cluster_id,
            cluster_shard=parts.cluster.shard,
            shard_copies=parts.shard_copies,
            fenced_brokers=parts.fenced_brokers,
            forwarding=parts.forwarding,
            membership=parts.membership,
            client_racks=parts.client_racks,
            gateways=parts.gateways,
            clock=clock,
            metrics=metrics,
            topics=parts.cluster.topics,
            auto_creation=parts.auto_creation,
            configs=parts.cluster.configs,
            client_quotas=parts.cluster.client_quotas,
            quotas=parts.quotas,
            producer_ids=parts.cluster.producer_ids,
            writer=parts.produce.writer,
            fetcher=parts.fetch.fetcher,
            object_lender=parts.fetch.lender,
            groups=parts.groups,
            purgatory=parts.purgatory,
            coordinators=parts.coordinator_service,
            endpoints=endpoints,
            departure=Departure(clock),
        )

    def advertised(self, listener: str) -> Endpoint:
        """This broker as the clients of a listener reach it."""
        return self.endpoints[listener]

    def reached(self, node_id: int, listener: str) -> Endpoint | None:
        """A broker as the clients of a listener reach it; None for one that is not registered, or has no such one."""
        if node_id == self.config.node_id:
            return self.endpoints[listener]
        known = self.membership.brokers.get(node_id)
        found = known.spec.listener(listener) if known is not None else None
        return Endpoint(node_id, found.host, found.port) if found is not None else None

    def known_brokers(self, listener: str, *, with_fenced: bool = False) -> Sequence[KnownBroker]:
        """The brokers that clients of a listener may be sent to, by node id; with fenced ones, also those.

        While no broker is known to be live, as when the controller has not been heard of for long, this one is: a
        client that is told of nobody can't ask again.
        """
        known = [
            KnownBroker(endpoint, one.spec.rack, is_fenced=one.is_fenced)
            for one in self.membership.brokers.all()
            if (endpoint := self.reached(one.spec.node_id, listener)) is not None
        ]
        live = [one for one in known if not one.is_fenced]
        if not live:
            live = [KnownBroker(self.endpoints[listener], self.config.broker_rack, is_fenced=False)]
        return known if with_fenced and known else live

    def registered_brokers(self) -> Collection[int]:
        """The ids of the brokers of the cluster, this one among them."""
        return {self.config.node_id} | {one.spec.node_id for one in self.membership.brokers.all()}

    def controller_for(self, listener: str) -> int:
        """The broker that leads the cluster shard, if the clients of a listener may be sent to it, else -1."""
        controller = self.membership.brokers.controller
        live = [one.endpoint.node_id for one in self.known_brokers(listener)]
        return controller if controller is not None and controller in live else -1

"""What the handlers work with: one object for each part of the broker, made by the composition root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.broker.parts import BrokerParts
from diskless_core.clock import Clock
from diskless_core.cluster.client_quotas import ClientQuotas
from diskless_core.cluster.configs import Configs
from diskless_core.cluster.producer_ids import ProducerIds
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.topics import Topics
from diskless_core.config.broker import BrokerConfig
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.service import CoordinatorService
from diskless_core.fetch.fetcher import Fetcher
from diskless_core.groups.service import GroupCoordinator
from diskless_core.metrics import Metrics
from diskless_core.produce.writer import WalWriter
from diskless_core.quotas.managers import QuotaManagers


class Endpoint(NamedTuple):
    """A broker as clients of one listener reach it."""

    node_id: int
    host: str
    port: int


@dataclass(slots=True, kw_only=True)
class Services:
    """The parts of a running broker. `endpoints` is filled when the listeners are bound."""

    config: BrokerConfig
    cluster_id: str
    cluster_shard: ClusterShard
    clock: Clock
    metrics: Metrics
    topics: Topics
    configs: Configs
    client_quotas: ClientQuotas
    quotas: QuotaManagers
    producer_ids: ProducerIds
    writer: WalWriter
    fetcher: Fetcher
    groups: GroupCoordinator
    purgatory: Purgatory
    coordinators: CoordinatorService
    endpoints: Mapping[str, Endpoint]

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
            clock=clock,
            metrics=metrics,
            topics=parts.cluster.topics,
            configs=parts.cluster.configs,
            client_quotas=parts.cluster.client_quotas,
            quotas=parts.quotas,
            producer_ids=parts.cluster.producer_ids,
            writer=parts.produce.writer,
            fetcher=parts.fetch.fetcher,
            groups=parts.groups,
            purgatory=parts.purgatory,
            coordinators=parts.coordinator_service,
            endpoints=endpoints,
        )

    def advertised(self, listener: str) -> Endpoint:
        """This broker as the clients of a listener reach it."""
        return self.endpoints[listener]

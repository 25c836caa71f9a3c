"""What a broker tells tools of its cluster, and where it has others told that its HTTP interface is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diskless_core.broker.coordinators import Coordinators
from diskless_core.broker.endpoint import Endpoint
from diskless_core.broker.fenced_brokers import FencedBrokers
from diskless_core.broker.shard_copies import AllShardCopies
from diskless_core.cluster.membership.brokers import Brokers
from diskless_core.cluster.membership.model import HTTP_LISTENER, BrokerListener
from diskless_core.cluster.view import BrokerView, ClusterView, ShardView
from diskless_core.config.broker import BrokerConfig
from diskless_core.config.listeners import LOOPBACK_HOSTS, WILDCARD_HOSTS
from diskless_core.shards import short_name


def advertised_http(config: BrokerConfig, port: int, endpoints: Mapping[str, Endpoint]) -> BrokerListener | None:
    """Where the HTTP interface is for who asks another broker for it; None where it cannot be reached from elsewhere.

    Args:
        port: the one that was bound.
        endpoints: where the broker's other listeners are.
    """
    advertised = config.advertised_admin_listener
    if advertised is not None:
        return BrokerListener(HTTP_LISTENER, advertised.host, advertised.port or port)
    if config.admin_listener is None or not endpoints:
        return None
    for_brokers = endpoints.get(config.inter_broker_listener_name or "", next(iter(endpoints.values())))
    host = config.admin_listener.host
    if host in WILDCARD_HOSTS:
        host = for_brokers.host
    elif host in LOOPBACK_HOSTS and for_brokers.host not in LOOPBACK_HOSTS:
        return None
    return BrokerListener(HTTP_LISTENER, host, port)


class ClusterSight:
    """The cluster, as this broker's copies of the coordinators have it."""

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        coordinators: Coordinators,
        brokers: Brokers,
        copies: AllShardCopies,
        fenced: FencedBrokers,
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._coordinators = coordinators
        self._brokers = brokers
        self._copies = copies
        self._fenced = fenced

    async def view(self, *, lag: bool, why_fenced: bool) -> ClusterView:
        """What is known here, at once, unless others are to be asked.

        Args:
            lag: all brokers are asked how far they are, for two seconds at most.
            why_fenced: the controller is asked why brokers are fenced, if any is, for one second at most.
        """
        reasons = await self._fenced.reasons() if why_fenced else {}
        return ClusterView(
            node_id=self._node_id,
            cluster_id=self._cluster_id,
            controller=self._brokers.controller,
            brokers=[
                BrokerView(
                    node_id=one.spec.node_id,
                    rack=one.spec.rack,
                    is_fenced=one.is_fenced,
                    fenced_reason=reasons.get(one.spec.node_id) if one.is_fenced else None,
                    http=one.spec.http_url,
                )
                for one in self._brokers.all()
            ],
            shards=await self._compared() if lag else self._known(),
        )

    def _known(self) -> Sequence[ShardView]:
        return [
            ShardView(
                shard=short_name(shard.id),
                leader=self._node_id if shard.leading else shard.leader_hint,
                term=shard.latest_term,
            )
            for shard in self._coordinators.all()
        ]

    async def _compared(self) -> Sequence[ShardView]:
        return [
            ShardView(
                shard=short_name(one.shard),
                leader=one.leader,
                term=one.term,
                high_watermark=one.high_watermark,
                lag={node_id: one.lag(node_id) for node_id in one.copies},
            )
            for one in await self._copies.all()
        ]

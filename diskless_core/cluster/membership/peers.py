"""The addresses of the other brokers' inter-broker listeners, from their registrations."""

from __future__ import annotations

from diskless_core.cluster.membership.tables import BROKERS
from diskless_core.cluster.shard import ClusterShard
from diskless_core.coordinator.peers import PeerAddress


class RegisteredPeers:
    """`Peers` by what is registered. None is known before `follow`, nor where there is no inter-broker listener.

    A broker that is fenced is still a peer: it may lead a coordinator, and be asked who does.
    """

    def __init__(self, own_node_id: int, listener: str | None) -> None:
        self._own_node_id = own_node_id
        self._listener = listener
        self._shard: ClusterShard | None = None

    def follow(self, shard: ClusterShard) -> None:
        """Look into this replica of the cluster shard from now on."""
        self._shard = shard

    def address_of(self, node_id: int) -> PeerAddress | None:
        if self._shard is None or self._listener is None:
            return None
        known = self._shard.state.committed(BROKERS, (node_id,))
        found = known.spec.listener(self._listener) if known is not None else None
        return PeerAddress(found.host, found.port) if found is not None else None

    def rack_of(self, node_id: int) -> str | None:
        """The rack that a broker has registered; None where it has none, or is not known."""
        known = self._shard.state.committed(BROKERS, (node_id,)) if self._shard is not None else None
        return known.spec.rack if known is not None else None

    def node_ids(self) -> list[int]:
        if self._shard is None or self._listener is None:
            return []
        known = sorted(key[0] for key, _ in self._shard.state.rows(BROKERS))
        return [node_id for node_id in known if node_id != self._own_node_id]

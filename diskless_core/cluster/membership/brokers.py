"""The brokers of the cluster as any node knows them, from its copy of the cluster shard."""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.cluster.membership.model import Registration
from diskless_core.cluster.membership.tables import BROKERS
from diskless_core.cluster.shard import ClusterShard


class Brokers:
    """Registrations, looked up in what is committed; what one finds may be a little old."""

    def __init__(self, shard: ClusterShard, node_id: int) -> None:
        self._shard = shard
        self._node_id = node_id

    def get(self, node_id: int) -> Registration | None:
        """A broker's registration."""
        return self._shard.state.committed(BROKERS, (node_id,))

    def all(self) -> Sequence[Registration]:
        """All registrations, by node id."""
        return [registration for _, registration in sorted(self._shard.state.rows(BROKERS), key=lambda row: row[0])]

    def live(self) -> Sequence[Registration]:
        """Those that clients and brokers may be sent to, by node id."""
        return [one for one in self.all() if one.is_live]

    def count(self, *, live: bool) -> int:
        """How many are live, or fenced."""
        return sum(one.is_live is live for _, one in self._shard.state.rows(BROKERS))

    @property
    def controller(self) -> int | None:
        """The node that leads the cluster shard, as far as this node knows; None while nobody is known to."""
        return self._node_id if self._shard.leading else self._shard.leader_hint

"""The live brokers of one rack, as any node knows them from its copy of the cluster shard."""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.cluster.membership.brokers import Brokers
from diskless_core.cluster.membership.tables import BROKERS
from diskless_core.cluster.shard import ClusterShard
from diskless_core.coordinator.tables import Writes


class RackMembers:
    """Brokers without a rack are one rack together: then nobody has said that they are apart."""

    def __init__(self, shard: ClusterShard, brokers: Brokers, rack: str | None) -> None:
        self._brokers = brokers
        self._rack = rack
        self._members: Sequence[int] | None = None
        shard.on_commit(self._note)

    def live(self) -> Sequence[int]:
        """Node ids of those that are not fenced and do not shut down; the same sequence until that changes."""
        if self._members is None:
            self._members = tuple(
                one.spec.node_id
                for one in self._brokers.live()
                if one.spec.rack == self._rack and not one.is_shutting_down
            )
        return self._members

    def _note(self, writes: Writes) -> None:
        if BROKERS in writes:
            self._members = None

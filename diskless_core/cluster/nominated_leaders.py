"""Hints of who should lead, out of the cluster shard: what the controller has nominated, as this node has read it.

They stay as they are while there is no controller. The cluster shard's own leader is the log's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from diskless_core.cluster.membership.tables import BROKERS
from diskless_core.cluster.nominations import Nomination
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.tables import NOMINATIONS, nomination_key
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.tables import Writes
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LeadershipHint
from diskless_core.plugin.shard import ShardId

NOBODY = LeadershipHint(None, 0)
"""Before the first nomination."""


class NominatedLeaders:
    """A `Nominator` of all shards but the cluster shard.

    Args:
        cluster: this node's replica of the cluster shard. It need not be started yet.
    """

    def __init__(self, cluster: ClusterShard) -> None:
        self._cluster = cluster
        self._has_caught_up = False
        self._changed = asyncio.Event()
        self._node_id: int | None = None
        self._is_member: Callable[[], bool] = lambda: True
        cluster.on_commit(self._committed)
        cluster.on_failure(self.wake)

    def require_membership(self, node_id: int, is_member: Callable[[], bool]) -> None:
        """Give this node no hint at itself unless it is a member; looked at whenever brokers or nominations change.

        A nomination is for the process that has registered with the node id, not for another one that is about to.
        """
        self._node_id, self._is_member = node_id, is_member
        self.wake()

    def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        """As `CoordinatorLog.leadership`. The first hint that names anybody comes when the replica has caught up.

        A node that withdraws says so to the controller, in its heartbeats.
        """
        del candidate
        return self._hints(shard)

    def names(self, shard: ShardId, node_id: int) -> bool:
        """Whether a nomination names a node as leader or follower, as far as this node has read."""
        nomination = self._nomination(shard)
        return nomination is not None and node_id in (nomination.leader, *nomination.followers)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds that depends on nominations. It is looked at now, and whenever they change."""
        while not condition():
            await self._changed.wait()

    async def _hints(self, shard: ShardId) -> AsyncIterator[LeadershipHint]:
        if not self._has_caught_up:
            yield NOBODY
            try:
                await self._cluster.until_caught_up()
            except CoordinatorError as error:
                raise CoordinatorLogError(f"it is not known who is nominated: {error}") from error
            self._has_caught_up = True
        hint = self._hint(shard)
        yield hint
        while True:
            changed, present = self._changed, self._hint(shard)
            if present.node_id == hint.node_id:
                await changed.wait()
            else:
                hint = present
                yield hint

    def _hint(self, shard: ShardId) -> LeadershipHint:
        nomination = self._nomination(shard)
        if nomination is None:
            return NOBODY
        is_here = nomination.leader == self._node_id
        # Without a copy of the cluster shard it would not be known when another node is nominated.
        is_out = is_here and (self._cluster.failure is not None or not self._is_member())
        return LeadershipHint(None if is_out else nomination.leader, nomination.generation)

    def _nomination(self, shard: ShardId) -> Nomination | None:
        return self._cluster.state.committed(NOMINATIONS, nomination_key(shard))

    def _committed(self, writes: Writes) -> None:
        if NOMINATIONS in writes or BROKERS in writes:
            self.wake()

    def wake(self) -> None:
        """Have everybody look again who waits."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

"""Hints of who should lead, out of the cluster shard: what the controller has nominated, as this node has read it.

They stay as they are while there is no controller. The cluster shard's own leader is the log's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

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
        cluster.on_commit(self._committed)

    def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        """As `CoordinatorLog.leadership`. The first hint that names anybody comes when the replica has caught up.

        A node that withdraws says so to the controller, in its heartbeats.
        """
        del candidate
        return self._hints(shard)

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
        nomination = self._cluster.state.committed(NOMINATIONS, nomination_key(shard))
        return NOBODY if nomination is None else LeadershipHint(nomination.leader, nomination.generation)

    def _committed(self, writes: Writes) -> None:
        if NOMINATIONS in writes:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

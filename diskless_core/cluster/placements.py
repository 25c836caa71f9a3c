"""Which Diskless shards the partitions of the cluster are placed in, for whoever must not forget one of them."""

from __future__ import annotations

from diskless_core.cluster.records import ClusterRecord
from diskless_core.cluster.state_machine import PLACEMENTS
from diskless_core.coordinator.shard import CoordinatorShard


async def shards_in_use(cluster: CoordinatorShard[ClusterRecord]) -> set[int]:
    """Indexes of the shards that have partitions, strictly: those of all topics created before the call are included.

    Raises:
        NotCoordinatorError: the cluster shard is led by another node, which has to be asked.
        CoordinatorError: no answer.
    """
    await cluster.barrier()
    return {shard for _, shard in cluster.state.rows(PLACEMENTS)}

"""How many shards a cluster has, for commands that have its log and no broker."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

from diskless_core.broker.coordinators import shard_counts
from diskless_core.cli.backends import Backends
from diskless_core.cluster import coordinator_counts
from diskless_core.cluster.tables import CLUSTER
from diskless_core.coordinator import which_log
from diskless_core.coordinator.entries import Acceptance, Entry
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.protocol import messages
from diskless_core.shards import CLUSTER_SHARD, SHARD_KINDS, ShardKind


async def counts_of(backends: Backends, log: CoordinatorLog) -> Mapping[ShardKind, int]:
    """The number of shards of each kind of which there can be several.

    What is recorded is recorded with the cluster's id: among the first entries of the cluster shard's log, or in every
    snapshot of the shard.

    Raises:
        CoordinatorLogError, WalObjectStoreError, SnapshotError: a backend failed.
    """
    recorded = await _counted_in_log(log)
    if recorded is None:
        recorded = await _counted_in_snapshot(backends, log)
    counts = {kind: recorded.get(kind.topic, 1) for kind in SHARD_KINDS if kind.count_is_recorded}
    return {**shard_counts(backends.config), **counts}


async def _counted_in_log(log: CoordinatorLog) -> Mapping[str, int] | None:
    """By topic; None where the log's first entries do not have the cluster's id."""
    bounds = await log.bounds(CLUSTER_SHARD)
    if bounds.start > 0:
        return None
    acceptance, seen = Acceptance(), 0
    async with aclosing(which_log.read_entries(log, CLUSTER_SHARD, 0, bounds.end)) as found:
        async for batch, entry in found:
            if isinstance(entry, Entry) and acceptance.accepts(entry):
                records = list(which_log.common_messages(entry))
                if any(isinstance(one, messages.ClusterNamedRecord) for one in records):
                    counted = [one for one in records if isinstance(one, messages.CoordinatorsCountedRecord)]
                    return {one.topic: one.partition_count for one in counted}
            acceptance, seen = acceptance.after(entry, batch), seen + 1
            if seen >= which_log.FIRST_ENTRIES:
                break
    return None


async def _counted_in_snapshot(backends: Backends, log: CoordinatorLog) -> Mapping[str, int]:
    name = await which_log.name_of(log, CLUSTER_SHARD, await log.bounds(CLUSTER_SHARD))
    async with backends.objects() as objects:
        snapshots = Snapshots.of(backends.config, objects, backends.clock)
        manifest = await snapshots.newest(CLUSTER_SHARD, name.log_id if name is not None else None)
        if manifest is None:
            return {}
        rows = dict(map(CLUSTER.entity, (await snapshots.rows_of(manifest))[CLUSTER.name]))
    topics = [kind.topic for kind in SHARD_KINDS if kind.count_is_recorded]
    return {topic: coordinator_counts.recorded(rows, topic) for topic in topics}

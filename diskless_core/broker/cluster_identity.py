"""Whose cluster this is: its id, the level that it is written at, and whether the WAL objects are its own."""

from __future__ import annotations

from collections.abc import Mapping

from diskless_core.broker.awaited_objects import AwaitedObjects, standing_aside
from diskless_core.broker.errors import StartError
from diskless_core.broker.object_owner import ObjectOwner
from diskless_core.clock import Clock
from diskless_core.cluster.shard import ClusterShard
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.snapshots import snapshot_prefix
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.protocol.feature_levels import FEATURE
from diskless_core.protocol.names import uuid_text
from diskless_core.shards import ShardKind


async def cluster_id_of(
    config: BrokerConfig,
    cluster: ClusterShard,
    objects: WalObjectStore,
    awaited: AwaitedObjects,
    clock: Clock,
    counts: Mapping[ShardKind, int],
) -> str:
    """The cluster's id, once it is sure that this build can read it and that the objects are this cluster's.

    Args:
        counts: how many coordinators of each kind a new cluster has.

    Raises:
        StartError: the one or the other is not so, or another id is configured.
        CoordinatorError: the cluster shard cannot be used on this node.
        WalObjectStoreError: it could not be found out.
    """
    owner = ObjectOwner(objects, prefix=config.diskless_wal_object_prefix, beside=snapshot_prefix(config))
    wanted = config.cluster_id or uuid_text(clock.new_uuid())

    async def require_nobody() -> None:
        with standing_aside(cluster):
            await awaited.do(owner.require_nobody)

    cluster_id = await cluster.cluster_id(wanted, require_nobody, counts)
    if config.cluster_id is not None and cluster_id != config.cluster_id:
        raise StartError(
            f"the coordinator log is that of the cluster {cluster_id}, not {config.cluster_id}: change cluster.id, or "
            f"give this broker the log of its own cluster"
        )
    _require_level(cluster)
    has_topics = cluster.has_topics
    with standing_aside(cluster):
        await awaited.do(lambda: owner.require(cluster_id, has_topics=has_topics))
    return cluster_id


def _require_level(cluster: ClusterShard) -> None:
    level, supported = cluster.level, cluster.supported_levels
    if level < supported.oldest:
        raise StartError(
            f"{FEATURE} is {level} in this cluster, and this version of Diskless supports {supported}: upgrade by a "
            f"version that supports {level} and {supported.oldest}, and raise the level with it first"
        )

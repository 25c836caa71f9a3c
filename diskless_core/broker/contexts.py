"""What plugins get from a configuration, and where a node keeps snapshots; for the broker and for its tools."""

from __future__ import annotations

from diskless_core.clock import Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.plugin_host.contexts import ContextFactory, contexts_in
from diskless_core.snapshot import reading


def plugin_contexts(config: BrokerConfig, clock: Clock, *, node_id: int) -> ContextFactory:
    """Contexts for the plugins of the node `node_id`, in the folder that is configured."""
    return contexts_in(config.data_dir.absolute(), clock, node_id=node_id)


def snapshot_prefix(config: BrokerConfig) -> str:
    """What the keys of the shards' snapshots begin with."""
    return reading.prefix_beside(config.diskless_wal_object_prefix)


def shard_snapshots(config: BrokerConfig, objects: WalObjectStore, clock: Clock) -> Snapshots:
    """The shards' snapshots in the object store."""
    return Snapshots(objects, snapshot_prefix(config), clock)

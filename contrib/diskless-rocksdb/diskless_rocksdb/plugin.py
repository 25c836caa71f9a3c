"""Hook implementation. RocksDB itself is loaded when a store is made."""

from __future__ import annotations

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_store import CoordinatorStore, CoordinatorStorePlugin
from diskless_core.plugin.hookspecs import hookimpl
from diskless_rocksdb.config import RocksdbSettings


def make_store(context: PluginContext, settings: RocksdbSettings) -> CoordinatorStore:
    from diskless_rocksdb.store import RocksdbCoordinatorStore

    return RocksdbCoordinatorStore(context.data_dir, settings)


@hookimpl
def diskless_coordinator_stores() -> list[CoordinatorStorePlugin]:
    """The store in RocksDB."""
    return [
        CoordinatorStorePlugin(
            name="rocksdb",
            factory=make_store,
            settings=RocksdbSettings,
            api_version="1.0",
            help="Coordinator state in RocksDB, one database for each shard.",
            capabilities=frozenset({"survives_kill"}),
        )
    ]

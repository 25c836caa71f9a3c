"""Hook implementations of the SQLite plugin. SQLite itself is imported when a store is made."""

from __future__ import annotations

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_store import CoordinatorStore, CoordinatorStorePlugin
from diskless_core.plugin.hookspecs import hookimpl
from diskless_sqlite.config import SqliteSettings


def make_store(context: PluginContext, settings: SqliteSettings) -> CoordinatorStore:
    from diskless_sqlite.store import SqliteCoordinatorStore

    return SqliteCoordinatorStore(
        context.data_dir, cache_bytes=settings.cache_bytes, checkpoint_bytes=settings.checkpoint_bytes
    )


@hookimpl
def diskless_coordinator_stores() -> list[CoordinatorStorePlugin]:
    """The default store: SQLite."""
    return [
        CoordinatorStorePlugin(
            name="sqlite",
            factory=make_store,
            settings=SqliteSettings,
            api_version="1.0",
            help="Coordinator state in SQLite, one database file for each shard.",
            capabilities=frozenset({"survives_kill"}),
        )
    ]

"""Hook implementations of the SQLite plugin. SQLite itself is imported when a store is made or looked into."""

from __future__ import annotations

from diskless_core.plugin.command_groups import CommandGroup
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


@hookimpl
def diskless_command_groups() -> list[CommandGroup]:
    """`diskless store`."""
    return [
        CommandGroup(
            name="store",
            app="diskless_sqlite.commands:app",
            api_version="1.0",
            help="Looks into coordinator stores in SQLite: tables, rows, queries, and whether they are whole.",
        )
    ]

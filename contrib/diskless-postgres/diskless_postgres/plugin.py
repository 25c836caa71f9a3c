"""Hook implementation of the log in PostgreSQL."""

from __future__ import annotations

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogPlugin
from diskless_core.plugin.hookspecs import hookimpl
from diskless_postgres.config import PostgresLogSettings


@hookimpl
def diskless_coordinator_logs() -> list[CoordinatorLogPlugin]:
    return [
        CoordinatorLogPlugin(
            name="postgres",
            factory=_open_later,
            settings=PostgresLogSettings,
            api_version="1.0",
            help="Tables of a PostgreSQL, for a cluster beside one that is there already.",
        )
    ]


def _open_later(context: PluginContext, settings: PostgresLogSettings) -> CoordinatorLog:
    from diskless_postgres.postgres_log import PostgresLog

    return PostgresLog(context, settings)

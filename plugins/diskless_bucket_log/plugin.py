"""Hook implementation of the bucket log."""

from __future__ import annotations

from diskless_bucket_log.config import BucketLogSettings
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogPlugin
from diskless_core.plugin.hookspecs import hookimpl


@hookimpl
def diskless_coordinator_logs() -> list[CoordinatorLogPlugin]:
    return [
        CoordinatorLogPlugin(
            name="bucket",
            factory=_open_later,
            settings=BucketLogSettings,
            api_version="1.0",
            help="One object an append beside the WAL objects, for a cluster that has nothing but its bucket.",
        )
    ]


def _open_later(context: PluginContext, settings: BucketLogSettings) -> CoordinatorLog:
    from diskless_bucket_log.bucket_log import BucketLog

    return BucketLog(context, settings)

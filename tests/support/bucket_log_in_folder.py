"""The bucket log over a folder beside its own, for a process that a test kills."""

from __future__ import annotations

from dataclasses import replace

from diskless_bucket_log import plugin
from diskless_bucket_log.config import BucketLogSettings
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogPlugin
from diskless_fsspec.config import FsspecSettings
from diskless_fsspec.factory import make_store


def diskless_coordinator_logs() -> list[CoordinatorLogPlugin]:
    """The plugin's own, with the place of the objects."""
    return [replace(found, factory=_open) for found in plugin.diskless_coordinator_logs()]


def _open(context: PluginContext, settings: BucketLogSettings) -> CoordinatorLog:
    from diskless_bucket_log.bucket_log import BucketLog

    store_settings = FsspecSettings(url=f"file://{context.log_dir}/objects")
    beside = replace(context, object_store=lambda: make_store(context, store_settings), object_prefix="wal")
    return BucketLog(beside, settings, check_rounds=0)

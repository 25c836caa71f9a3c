"""Hook implementations of the local coordinator log."""

from __future__ import annotations

from diskless_core.plugin.command_groups import CommandGroup
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogPlugin
from diskless_core.plugin.hookspecs import hookimpl
from diskless_local_log.config import LocalLogSettings


@hookimpl
def diskless_coordinator_logs() -> list[CoordinatorLogPlugin]:
    return [
        CoordinatorLogPlugin(
            name="local",
            factory=_open_later,
            settings=LocalLogSettings,
            api_version="1.0",
            help="Kafka-format segments on this node's disk, for a single broker.",
        )
    ]


@hookimpl
def diskless_command_groups() -> list[CommandGroup]:
    """`diskless log`."""
    return [
        CommandGroup(
            name="log",
            app="diskless_local_log.commands:app",
            api_version="1.0",
            help="Checks the local coordinator log and repairs it.",
        )
    ]


def _open_later(context: PluginContext, settings: LocalLogSettings) -> CoordinatorLog:
    from diskless_local_log.local_log import LocalCoordinatorLog

    return LocalCoordinatorLog(context, settings)

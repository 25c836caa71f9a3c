"""What this distribution announces: the entry point in pyproject.toml names this module.

It is imported whenever plugins are listed, so it should import little that takes long.
"""

from __future__ import annotations

from diskless_core.plugin.coordinator_log import CoordinatorLogPlugin
from diskless_core.plugin.hookspecs import hookimpl

from diskless_first_coordinator_log.log import FirstCoordinatorLogLog
from diskless_first_coordinator_log.settings import FirstCoordinatorLogSettings


@hookimpl
def diskless_coordinator_logs() -> list[CoordinatorLogPlugin]:
    """A list, as one module can bring several backends. Each has an entry point of its own."""
    return [
        CoordinatorLogPlugin(
            name="first_coordinator_log",
            factory=FirstCoordinatorLogLog,
            settings=FirstCoordinatorLogSettings,
            # The plugin API that this was written for, not the newest one: older brokers can use it too.
            api_version="1.0",
            help="Keeps the coordinator log in a file for each shard, for a single broker.",
        )
    ]

"""What this distribution announces: the entry point in pyproject.toml names this module."""

from __future__ import annotations

from diskless_core.plugin.command_groups import CommandGroup
from diskless_core.plugin.hookspecs import hookimpl


@hookimpl
def diskless_command_groups() -> list[CommandGroup]:
    """The commands are named, not imported: that is done when somebody calls one."""
    return [
        CommandGroup(
            name="first_command_group",
            app="diskless_first_command_group.commands:app",
            # The plugin API that this was written for, not the newest one: older versions can use it too.
            api_version="1.0",
            help="Tells operators where backends keep their data.",
        )
    ]

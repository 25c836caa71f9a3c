"""Hook `diskless_command_groups`: commands of a plugin's own, as `diskless <name> ...`.

They are tools for operators. A broker never imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.hookspecs import hookspec

COMMAND_GROUP = "command_group"
"""What stands before the dot in the name of the entry point."""


class SelectedBackend(NamedTuple):
    """What a configuration selects for a noun: its name, the context that a tool's factory gets, and its settings."""

    name: str
    context: PluginContext
    settings: PluginSettings


@dataclass(frozen=True, slots=True)
class CommandHost:
    """What `diskless` gives to the commands of a plugin, which find it with `context.find_object(CommandHost)`, where
    `context` is their `typer.Context`.

    Attributes:
        backend: what is selected for a noun by a properties file (None: the defaults) and by `<property>=<value>` of
            options. A bad configuration ends the command, with all its problems told.
        shard_name: the name of a shard as log and store plugins see it, for any that operators use: `diskless-0` is
            `__diskless_metadata-0`. A text that names no shard is returned as it is.
    """

    backend: Callable[[str, Path | None, Sequence[str]], SelectedBackend]
    shard_name: Callable[[str], str] = str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGroup:
    """Descriptor that `diskless_command_groups` yields.

    Attributes:
        name: `diskless <name>`: lower-case letters, digits and underscores. A command of Diskless itself is not
            replaced.
        app: `<module>:<attribute>` of a `typer.Typer`, imported when somebody calls the command or asks for help.
        api_version: the version of the author API that it was written for, see `diskless_core.plugin.version`.
        help: one sentence for `diskless plugins list`.
    """

    name: str
    app: str
    api_version: str
    help: str


@hookspec
def diskless_command_groups() -> list[CommandGroup]:
    """Commands, announced by entry points named `command_group.<name>`.

    Example::

        @hookimpl
        def diskless_command_groups() -> list[CommandGroup]:
            return [
                CommandGroup(
                    name="store",
                    app="diskless_sqlite.commands:app",
                    api_version="1.0",
                    help="Looks into the coordinator stores.",
                )
            ]
    """
    raise NotImplementedError

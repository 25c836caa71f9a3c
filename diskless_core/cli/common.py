"""What all commands share: the options that name a configuration, and how errors are told."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from diskless_core.config.errors import ConfigError
from diskless_core.config.load import LoadedConfig, load_config
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin_host.manager import PluginManager

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Properties file. Without one, all settings have defaults."),
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option("--override", "-o", metavar="KEY=VALUE", help="Set one property; can be given many times."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")]


def discover_plugins() -> PluginManager:
    """The installed plugins, none of them imported yet; ends the command when `DISKLESS_LOAD_PLUGINS` is wrong."""
    try:
        return PluginManager.discover(os.environ)
    except PluginError as error:
        fail(str(error))


def load_or_exit(config: Path | None, override: Sequence[str] | None, manager: PluginManager) -> LoadedConfig:
    """The configuration that the options and the environment make; ends the command with all problems if it is bad."""
    try:
        return load_config(config, override or [], os.environ, manager)
    except ConfigError as error:
        fail(*map(str, error.problems))


def fail(*lines: str) -> NoReturn:
    """Write to standard error and end with exit code 1."""
    for line in lines:
        typer.echo(line, err=True)
    raise typer.Exit(1)


def echo_json(value: Any) -> None:
    """Write one JSON document to standard output."""
    typer.echo(json.dumps(value, indent=2))

"""Commands that plugins bring: found by entry point, imported when they are called."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from diskless_core.broker.contexts import configured_contexts
from diskless_core.cli.common import discover_plugins, fail, load_or_exit
from diskless_core.clock import SystemClock
from diskless_core.plugin.command_groups import COMMAND_GROUP, CommandHost, SelectedBackend
from diskless_core.plugin.context import TOOL_NODE_ID
from diskless_core.plugin.errors import PluginError, PluginLoadError
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.shards import parse_shard


def _backend(noun: str, config: Path | None, overrides: Sequence[str]) -> SelectedBackend:
    plugins = discover_plugins()
    loaded = load_or_exit(config, overrides, plugins)
    descriptor, settings = loaded.plugins[noun]
    contexts = configured_contexts(loaded, plugins, SystemClock(), node_id=TOOL_NODE_ID)
    return SelectedBackend(descriptor.name, contexts(noun, descriptor.name), settings)


def _shard_name(text: str) -> str:
    try:
        return str(parse_shard(text))
    except ValueError:
        return text


def names(environ: Mapping[str, str], taken: Container[str]) -> list[str]:
    """What `diskless` can be called with because of plugins."""
    return [name for name in _plugins(environ).names(COMMAND_GROUP) if name not in taken]


def build(name: str, environ: Mapping[str, str], context: Any) -> Any:
    """The command of this name, or None if there is none. One that can't be used says why when it is called."""
    plugins = _plugins(environ)
    if name not in plugins.names(COMMAND_GROUP):
        return None
    context.obj = CommandHost(_backend, _shard_name)
    try:
        app = plugins.commands(name).app()
        if not isinstance(app, typer.Typer):
            raise PluginLoadError(f"the app of command_group.{name} is no typer.Typer", traceback_text="")
    except PluginError as error:
        app = _unusable(error)
    command = typer.main.get_command(app)
    command.name = name
    return command


def _plugins(environ: Mapping[str, str]) -> PluginManager:
    try:
        return PluginManager.discover(environ)
    except PluginError:
        return PluginManager([])  # any command that needs plugins says what is wrong


def _unusable(problem: PluginError) -> typer.Typer:
    app = typer.Typer(add_completion=False)

    @app.command(help=f"Can't be used: {problem}", context_settings={"ignore_unknown_options": True})
    def tell(arguments: list[str] | None = typer.Argument(None, hidden=True)) -> None:
        del arguments
        fail(str(problem), *([problem.traceback_text] if isinstance(problem, PluginLoadError) else []))

    return app

"""`diskless plugins`: what is installed, what a plugin can be told, whether a configuration is right."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any

import typer

from diskless_core.broker.contexts import configured_contexts
from diskless_core.broker.shared_log import LISTENER_PROPERTY, missing_listener
from diskless_core.cli import common, plugin_bench, plugin_trials
from diskless_core.cli.scaffold.command import new
from diskless_core.clock import SystemClock
from diskless_core.config.describe import SettingDescription, describe_settings
from diskless_core.config.errors import ConfigError, ConfigProblem
from diskless_core.config.load import LoadedConfig, load_config
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.errors import PluginError, PluginFactoryError, PluginLoadError, PluginNotFoundError
from diskless_core.plugin_host.loading import LoadedCommands, LoadedPlugin, QuarantinedPlugin
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import NOUNS

app = typer.Typer(
    help="List, describe and check plugins, and begin a new one.", no_args_is_help=True, add_completion=False
)
app.command()(new)


@app.command("list")
def list_plugins(as_json: common.JsonOption = False) -> None:
    """List all installed plugins, and those that can't be used with the reason."""
    catalogue = common.discover_plugins().catalogue()
    if as_json:
        common.echo_json(
            {
                "plugins": [plugin_json(plugin) for plugin in catalogue.loaded],
                "commands": [commands_json(commands) for commands in catalogue.commands],
                "quarantined": [quarantined_json(plugin) for plugin in catalogue.quarantined],
            }
        )
        return
    lines = [*_catalogue_lines(catalogue.loaded), *_command_lines(catalogue.commands)]
    typer.echo("\n".join([*lines, *_quarantine_lines(catalogue.quarantined)]))


@app.command()
def describe(
    noun: Annotated[
        str, typer.Argument(help="Kind of plugin, such as wal_object_store, or both, as wal_object_store.fsspec.")
    ],
    name: Annotated[str | None, typer.Argument(help="Name of the plugin, such as fsspec.")] = None,
    as_json: common.JsonOption = False,
) -> None:
    """Show one plugin and all its settings."""
    if name is None:
        noun, dot, name = noun.partition(".")
        if not dot:
            raise typer.BadParameter(f"name a plugin too, as in {noun}.<name>", param_hint="NAME")
    try:
        plugin = common.discover_plugins().get(noun, name)
    except PluginLoadError as error:
        common.fail(str(error), error.traceback_text)
    except PluginNotFoundError as error:
        common.fail(f"{error}; did you mean {error.suggestion}?" if error.suggestion else str(error))
    except PluginError as error:
        common.fail(str(error))
    settings = describe_settings(plugin.descriptor.settings, f"{noun}.{name}.")
    if as_json:
        common.echo_json({**plugin_json(plugin), "settings": [setting.as_json() for setting in settings]})
        return
    typer.echo("\n".join(_description_lines(plugin, settings)))


@app.command()
def validate(
    config: Annotated[Path, typer.Argument(help="Properties file to check.")],
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Check a configuration as `serve` would read it, and show every problem at once.

    Makes the selected backends as `serve` does, and starts none of them.
    """
    problems: Sequence[ConfigProblem] = ()
    plugins: dict[str, str] = {}
    manager = common.discover_plugins()
    try:
        loaded = load_config(config, override or [], os.environ, manager)
        plugins = {noun: selected.descriptor.name for noun, selected in loaded.plugins.items()}
        problems = asyncio.run(_problems_of_factories(loaded, manager))
    except ConfigError as error:
        problems = error.problems
    if as_json:
        common.echo_json(
            {"error_count": len(problems), "problems": [asdict(problem) for problem in problems], "plugins": plugins}
        )
        raise typer.Exit(1 if problems else 0)
    if problems:
        common.fail(*map(str, problems))
    typer.echo(f"{config} is valid: " + ", ".join(f"{noun}={name}" for noun, name in plugins.items()))


app.command("test")(plugin_trials.try_plugin)
app.command()(plugin_bench.bench)


async def _problems_of_factories(loaded: LoadedConfig, manager: PluginManager) -> Sequence[ConfigProblem]:
    """What keeps the selected plugins from making their backends, or the log from being used with these settings.

    It is asked on an event loop, as the broker does it.
    """
    contexts = configured_contexts(loaded, manager, SystemClock(), node_id=loaded.broker.node_id)
    problems = []
    for noun in NOUNS.values():
        try:
            backend = manager.create(noun, loaded.plugins, contexts)
        except PluginFactoryError as error:
            name = loaded.plugins[noun.name].descriptor.name
            problems.append(ConfigProblem(key=noun.name, value=name, message=str(error), source="configuration"))
            continue
        missing = missing_listener(backend, loaded.broker) if isinstance(backend, CoordinatorLog) else None
        if missing is not None:
            problems.append(ConfigProblem(key=LISTENER_PROPERTY, message=missing, source="default"))
    return problems


def plugin_json(plugin: LoadedPlugin) -> dict[str, Any]:
    """A usable plugin as `--json` shows it."""
    descriptor, entry_point = plugin.descriptor, plugin.entry_point
    return {
        "noun": entry_point.noun,
        "name": entry_point.name,
        "default": _is_default(plugin),
        "distribution": entry_point.distribution,
        "version": entry_point.version,
        "location": plugin.location,
        "api_version": descriptor.api_version,
        "capabilities": sorted(descriptor.capabilities),
        "help": descriptor.help,
    }


def commands_json(commands: LoadedCommands) -> dict[str, Any]:
    """Commands of a plugin as `--json` shows them."""
    entry_point = commands.entry_point
    return {
        "name": entry_point.name,
        "distribution": entry_point.distribution,
        "version": entry_point.version,
        "location": commands.location,
        "api_version": commands.group.api_version,
        "help": commands.group.help,
    }


def quarantined_json(plugin: QuarantinedPlugin) -> dict[str, Any]:
    """A plugin that can't be used as `--json` shows it."""
    entry_point = plugin.entry_point
    return {
        "noun": entry_point.noun,
        "name": entry_point.name,
        "distribution": entry_point.distribution,
        "version": entry_point.version,
        "location": entry_point.value,
        "reason": plugin.reason,
        "traceback": plugin.traceback_text,
    }


def _is_default(plugin: LoadedPlugin) -> bool:
    return NOUNS[plugin.entry_point.noun].default == plugin.entry_point.name


def _catalogue_lines(plugins: Sequence[LoadedPlugin]) -> Iterable[str]:
    for noun in NOUNS.values():
        yield f"{noun.name}: {noun.help}"
        for plugin in plugins:
            if plugin.entry_point.noun == noun.name:
                mark = " (default)" if _is_default(plugin) else ""
                yield f"  {plugin.entry_point.name}{mark}: {plugin.descriptor.help}"
                yield f"    {plugin.entry_point.provider}, {plugin.location}"


def _command_lines(groups: Sequence[LoadedCommands]) -> Iterable[str]:
    if groups:
        yield "commands of plugins:"
    for commands in groups:
        yield f"  diskless {commands.entry_point.name}: {commands.group.help}"
        yield f"    {commands.entry_point.provider}, {commands.location}"


def _quarantine_lines(plugins: Sequence[QuarantinedPlugin]) -> Iterable[str]:
    if plugins:
        yield "\nThese can't be used:"
    for plugin in plugins:
        yield f"  {plugin.entry_point.key} of {plugin.entry_point.provider}: {plugin.reason}"
        if plugin.traceback_text:
            yield indent(plugin.traceback_text.rstrip(), "    ")


def _description_lines(plugin: LoadedPlugin, settings: Sequence[SettingDescription]) -> Iterable[str]:
    descriptor = plugin.descriptor
    yield f"{plugin.entry_point.key}: {descriptor.help}"
    yield f"  from {plugin.entry_point.provider}, {plugin.location}"
    yield f"  plugin API {descriptor.api_version}"
    if descriptor.capabilities:
        yield f"  capabilities: {', '.join(sorted(descriptor.capabilities))}"
    yield "Settings:" if settings else "It has no settings."
    for setting in settings:
        default = "required" if setting.required else f"default {setting.default or 'none'}"
        valid = f", {setting.valid_values}" if setting.valid_values else ""
        yield f"  {setting.name} ({setting.type}, {default}{valid})"
        yield f"    {setting.help}"

"""The reference of all commands and options in docs/cli.md, made of the commands themselves."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer

from diskless_core.cli.main import COMMANDS
from diskless_core.plugin.command_groups import COMMAND_GROUP
from diskless_core.plugin_host.discovery import LOAD_PLUGINS_VARIABLE
from diskless_core.plugin_host.manager import PluginManager

_OF_THE_KAFKA = ("bootstrap_server", "command_config", "command_property")
_SHARED = ("help", *_OF_THE_KAFKA)


def render() -> str:
    """A section for each command, with its arguments and options."""
    apps = {name: importlib.import_module(module).app for name, module in COMMANDS.items()}
    built_in = PluginManager.discover({LOAD_PLUGINS_VARIABLE: ""})
    apps |= {name: built_in.commands(name).app() for name in built_in.names(COMMAND_GROUP)}
    lines: list[str] = []
    for name, app in apps.items():
        lines += _of_command(f"diskless {name}", typer.main.get_command(app))
    return "\n".join(lines)


def _of_command(name: str, command: Any) -> Iterator[str]:
    subcommands = getattr(command, "commands", None)
    if subcommands is not None:
        for sub_name, subcommand in subcommands.items():
            yield from _of_command(f"{name} {sub_name}", subcommand)
        return
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and param.name not in _SHARED]
    usage = " ".join([name, *(_argument(argument) for argument in arguments)])
    yield f"### `{usage}`\n"
    yield f"{_paragraphs(command.help)}\n"
    for argument in arguments:
        yield f"- `{_argument(argument)}`: {_sentence(argument)}"
    for option in options:
        yield f"- {_option(option)}: {_sentence(option)}"
    if any(param.name in _OF_THE_KAFKA for param in command.params):
        yield "- `--bootstrap-server`, `--command-config`, `--command-property`: [which Kafka](#which-kafka)."
    yield ""


def _argument(param: Any) -> str:
    metavar = (param.metavar or param.name.upper()) + ("..." if param.nargs != 1 else "")
    return metavar if param.required else f"[{metavar}]"


def _option(param: Any) -> str:
    value = "" if param.is_flag else f" {param.metavar or _type_name(param.type_descriptor.annotation)}"
    return ", ".join(f"`{spelling}{value}`" for spelling in [*param.opts, *param.secondary_opts])


def _type_name(value_type: type) -> str:
    if issubclass(value_type, Enum):
        return "|".join(str(member.value) for member in value_type)
    return "N" if issubclass(value_type, int | float) else "TEXT"


def _sentence(param: Any) -> str:
    told = " ".join((param.help or "").split()).removesuffix(".")
    default = getattr(param.default, "value", param.default)
    more = []
    if not getattr(param, "is_flag", False) and isinstance(default, str | int | float):
        more.append(f"default `{default}`")
    if param.envvar:
        more.append(f"environment variable `{param.envvar}`")
    return f"{told} ({', '.join(more)})." if more else f"{told}."


def _paragraphs(told: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(told or "").split("\n\n"))

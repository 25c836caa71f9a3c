"""`diskless plugins test`: whether a configured backend keeps its contract."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn, TextIO

import typer

from diskless_core.cli import common
from diskless_core.clock import SystemClock
from diskless_core.config.errors import ConfigError
from diskless_core.config.load import LoadedConfig, load_config
from diskless_core.plugin.errors import PluginError, PluginLoadError, PluginNotFoundError
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import NOUNS
from diskless_core.trial.outcome import TriedPromise, Verdict, lines_of
from diskless_core.trial.tried import TRIED
from diskless_core.trial.trying import TrialImpossibleError, require_kit, try_backend

IMPOSSIBLE = 2
"""Exit code where nothing could be tried."""

DEADLINE_S = 60.0

NounArgument = Annotated[
    str, typer.Argument(help="Kind of plugin, or kind and name, as wal_object_store.fsspec, or a name of one kind.")
]
NameArgument = Annotated[str | None, typer.Argument(help="Name of the plugin, such as fsspec.")]


def try_plugin(
    noun: NounArgument,
    name: NameArgument = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    deadline: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long each promise may take to be tried.")
    ] = DEADLINE_S,
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Try only the promises that have this in their sentence.")
    ] = "",
    as_json: common.JsonOption = False,
) -> None:
    """Try whether a backend, as it is configured, keeps every promise that a broker relies on.

    Works in a place of its own, beside what brokers have, and removes it again, also when it is interrupted. The exit
    code is 0 if all promises are kept, 1 if one is broken, 2 if that could not be found out.
    """
    manager = common.discover_plugins()
    try:
        require_kit()
        noun, name = chosen(noun, name, manager)
        loaded = loaded_for(noun, name, config, override, manager)
        if noun not in TRIED:
            impossible(f"there is no trial of a {noun} yet")
        with _progress(quiet=as_json) as told:
            report = try_backend(
                loaded,
                manager,
                noun,
                SystemClock(),
                deadline_s=deadline,
                announce=lambda one: _tell(told, one),
                only=only,
            )
    except TrialImpossibleError as error:
        impossible(str(error))
    if as_json:
        common.echo_json(report.as_json())
    else:
        typer.echo("\n".join(lines_of(report)))
    raise typer.Exit(report.exit_code)


def chosen(noun: str, name: str | None, manager: PluginManager) -> tuple[str, str]:
    """The noun and the name of an installed plugin; ends the command where there is none, or several are meant."""
    if name is None:
        noun, dot, name = noun.partition(".")
        if not dot:
            nouns = [one for one in NOUNS if noun in manager.names(one)]
            if noun in NOUNS:
                impossible(f"name a plugin too, such as {noun}.{NOUNS[noun].default}")
            if not nouns:
                impossible(f"no plugin {noun!r} is installed: see `diskless plugins list`")
            if len(nouns) > 1:
                impossible(f"there are {' and '.join(f'{one}.{noun}' for one in nouns)}: say which")
            noun, name = nouns[0], noun
    try:
        manager.get(noun, name)
    except PluginLoadError as error:
        impossible(str(error), error.traceback_text)
    except PluginNotFoundError as error:
        impossible(f"{error}; did you mean {error.suggestion}?" if error.suggestion else str(error))
    except PluginError as error:
        impossible(str(error))
    return noun, name


def loaded_for(
    noun: str, name: str, config: Path | None, override: Sequence[str] | None, manager: PluginManager
) -> LoadedConfig:
    """The configuration, with this plugin selected; ends the command with all problems if it is bad."""
    try:
        return load_config(config, [*(override or []), f"{noun}={name}"], os.environ, manager)
    except ConfigError as error:
        impossible(*map(str, error.problems))


class _progress:  # noqa: N801
    """What the command says while tests have standard output and standard error for themselves."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._own: TextIO | None = None

    def __enter__(self) -> TextIO | None:
        if self._quiet:
            return None
        sys.stdout.flush()
        try:
            self._own = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        except (OSError, ValueError):  # it is no file: whoever called took it
            return sys.stdout
        return self._own

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.close()


def _tell(told: TextIO | None, promise: TriedPromise) -> None:
    if told is not None and promise.verdict is not Verdict.NOT_TRIED:
        told.write(f"{promise.verdict}: {promise.promise}\n")
        told.flush()


def impossible(*lines: str) -> NoReturn:
    """Write to standard error and end with the exit code of what could not be found out."""
    for line in lines:
        typer.echo(line, err=True)
    raise typer.Exit(IMPOSSIBLE)

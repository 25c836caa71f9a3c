"""The command `diskless`. It imports the module of the one command that is called, and no other."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

COMMANDS: Mapping[str, str] = {
    "serve": "diskless_core.cli.serve",
    "demo": "diskless_core.cli.demo",
    "cluster": "diskless_core.cli.client.cluster_command",
    "topics": "diskless_core.cli.client.topics",
    "groups": "diskless_core.cli.client.groups",
    "produce": "diskless_core.cli.client.produce",
    "consume": "diskless_core.cli.client.consume",
    "plugins": "diskless_core.cli.plugins",
    "wal": "diskless_core.cli.wal",
    "coordinator": "diskless_core.cli.coordinator",
    "migrate-log": "diskless_core.cli.migrate_log",
    "orphans": "diskless_core.cli.orphans",
    "compact": "diskless_core.cli.compact",
    "gateways": "diskless_core.cli.gateways",
    "remote-log": "diskless_core.cli.remote_log",
    "export": "diskless_core.cli.export",
    "import": "diskless_core.cli.import_kafka",
}
"""Commands and the modules whose `app` they are, in the order of `diskless --help`. An `app` is a `typer.Typer` with
`add_completion=False`; of a single function it is a command, of several functions a group."""


@contextmanager
def _garbage_collector_off() -> Iterator[None]:
    """Imports make many objects that stay: looking through them again and again is a fifth of a broker's start."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class LazyGroup(TyperGroup):
    """A group that finds its commands in `COMMANDS`, and others in the plugins that bring some.

    The types are typer's own business, hence `Any`.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """All commands."""
        del ctx
        from diskless_core.cli import plugin_commands

        return [*COMMANDS, *plugin_commands.names(os.environ, COMMANDS)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and build one command, or None for an unknown name."""
        if cmd_name not in COMMANDS:
            from diskless_core.cli import plugin_commands

            return plugin_commands.build(cmd_name, os.environ, ctx)
        with _garbage_collector_off():
            command = typer.main.get_command(importlib.import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command


main = typer.Typer(
    name="diskless",
    cls=LazyGroup,
    help="A Kafka-compatible broker whose data lives in object storage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"diskless {version('diskless')}")
        raise typer.Exit


def _open_closed_streams() -> None:
    """Have those of the standard streams that are closed be `/dev/null`.

    Otherwise the next file that is opened, such as a segment, gets the number of standard error. Then what a library
    writes there would get into the file, and libuv ends a process that closes such a file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


@main.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `diskless` itself."""
    del version
    _open_closed_streams()

"""The command `diskless`. It imports the module of the one command that is called, and no other."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

COMMANDS: Mapping[str, str] = {
    "serve": "diskless_core.cli.serve",
    "demo": "diskless_core.cli.demo",
    "plugins": "diskless_core.cli.plugins",
    "wal": "diskless_core.cli.wal",
    "coordinator": "diskless_core.cli.coordinator",
    "orphans": "diskless_core.cli.orphans",
    "compact": "diskless_core.cli.compact",
    "gateways": "diskless_core.cli.gateways",
    "remote-log": "diskless_core.cli.remote_log",
    "export": "diskless_core.cli.export",
    "import": "diskless_core.cli.import_kafka",
}
"""Commands and the modules whose `app` they are, in the order of `diskless --help`. An `app` is a `typer.Typer` with
`add_completion=False`; of a single function it is a command, of several functions a group."""


class LazyGroup(TyperGroup):
    """A group that finds its commands in `COMMANDS`. The types are typer's own business, hence `Any`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and build one command, or None for an unknown name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(importlib.import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command


main = typer.Typer(
    name="diskless",
    cls=LazyGroup,
    help="A leaderless, Kafka-compatible broker whose data lives in object storage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"diskless {version('diskless')}")
        raise typer.Exit


@main.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `diskless` itself."""
    del version

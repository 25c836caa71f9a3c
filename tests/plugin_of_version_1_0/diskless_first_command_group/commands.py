"""`diskless first_command_group`: tools for operators. A broker never imports them.

They open what a backend has for reading only, for a broker may be running, and leave no files behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from diskless_core.plugin.command_groups import CommandHost

app = typer.Typer(help="Tells operators where backends keep their data.", no_args_is_help=True, add_completion=False)

Config = Annotated[Path | None, typer.Option("--config", "-c", help="Properties file.")]
Override = Annotated[list[str] | None, typer.Option("--override", "-o", help="Set one property.")]


@app.command()
def where(context: typer.Context, noun: str, config: Config = None, override: Override = None) -> None:
    """Say which backend a configuration selects for a noun, and which folder it has."""
    selected = _host(context).backend(noun, config, override or [])
    typer.echo(f"{selected.name}: {selected.context.data_dir}")


@app.command()
def shard(context: typer.Context, name: str) -> None:
    """Say how backends call a shard, such as diskless-0."""
    typer.echo(_host(context).shard_name(name))


def _host(context: typer.Context) -> CommandHost:
    host = context.find_object(CommandHost)
    if host is None:
        raise typer.BadParameter("these commands are called as `diskless first_command_group`")
    return host

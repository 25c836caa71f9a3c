"""Command groups: one that works, and others that can't be used."""

from diskless_core.plugin.command_groups import CommandGroup
from diskless_core.plugin.hookspecs import hookimpl

GROUPS = {
    "works": "tests.broken_plugins.command_groups:app",
    "absent": "tests.broken_plugins.command_groups:absent",
    "no_app": "tests.broken_plugins.command_groups:GROUPS",
    "no_reference": "tests.broken_plugins.command_groups",
}


@hookimpl
def diskless_command_groups() -> list[CommandGroup]:
    return [CommandGroup(name=name, app=app, api_version="1.0", help="Of the zoo.") for name, app in GROUPS.items()]


def __getattr__(name: str) -> object:
    """The commands, made when somebody asks."""
    if name != "app":
        raise AttributeError(name)
    import typer

    app = typer.Typer(add_completion=False)
    app.command("feed")(lambda: typer.echo("fed"))
    app.command("clean")(lambda: typer.echo("clean"))
    return app

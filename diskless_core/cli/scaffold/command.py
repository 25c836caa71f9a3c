"""The command `diskless plugins new`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from diskless_core.cli import common
from diskless_core.cli.scaffold.kinds import KINDS
from diskless_core.cli.scaffold.project import Project, ScaffoldError, checked_project, render
from diskless_core.cli.scaffold.writing import write_project
from diskless_core.plugin.command_groups import COMMAND_GROUP

_NOUN_HELP = f"What the backend is: {', '.join(KINDS)}."


def new(
    noun: Annotated[str, typer.Argument(help=_NOUN_HELP)],
    name: Annotated[str, typer.Argument(help="What server.properties will call it, such as lmdb.")],
    folder: Annotated[Path, typer.Option("--folder", help="Where the project's folder is made.")] = Path(),
) -> None:
    """Write a complete project for a backend: code that works, its tests, README, packaging, CI.

    It passes the contract suite of its noun from the start. Replace the code by your own, and keep it green.
    """
    try:
        project = checked_project(noun, name, _taken(noun))
        place = folder / project.distribution
        write_project(place, render(project))
    except ScaffoldError as error:
        common.fail(str(error))
    typer.echo("\n".join([f"wrote {place}", *_next_steps(project, place)]))


def _taken(noun: str) -> list[str]:
    names = list(common.discover_plugins().names(noun))
    if noun == COMMAND_GROUP:
        from diskless_core.cli.main import COMMANDS

        names += COMMANDS
    return names


def _next_steps(project: Project, place: Path) -> list[str]:
    is_commands = project.noun == COMMAND_GROUP
    use = (
        f"diskless {project.name} --help" if is_commands else f"diskless serve --override {project.noun}={project.name}"
    )
    return [
        "Next:",
        f"  cd {os.fspath(place)}",
        "  pip install --editable '.[testing]' mypy ruff",
        "  pytest                  # the contract suite, which passes: keep it so while you replace the code",
        "  diskless plugins list   # finds it by its entry point",
        f"  {use}",
    ]

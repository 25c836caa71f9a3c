"""Writes what is generated from code, or checks that it is up to date: pages of docs/, and the types of messages.

`python -m diskless_core.cli.docs [--check]`, from the project's folder; `make docs` and `make lint` call it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from diskless_core import metrics
from diskless_core.broker import protocol_support
from diskless_core.cli import message_stubs, record_reference
from diskless_core.cli.common import fail
from diskless_core.config import reference

app = typer.Typer(add_completion=False)

PAGES: Mapping[str, Callable[[], str]] = {
    "configuration.md": lambda: reference.render_reference(reference.built_in_descriptors()),
    "metrics.md": metrics.render_reference,
    "protocol_support.md": protocol_support.render,
    "records.md": record_reference.render,
}
"""Generated pages by their names in docs/."""


@app.command()
def docs(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when a file is out of date.")] = False,
    folder: Annotated[Path, typer.Option("--folder", help="Where the pages are.")] = Path("docs"),
) -> None:
    """Write the generated files."""
    generated = {folder / name: render for name, render in PAGES.items()} | dict(message_stubs.stubs())
    outdated = [path for path, render in generated.items() if _content(path) != render()]
    if check and outdated:
        fail(f"out of date: {', '.join(map(str, outdated))}. Run `make docs`.")
    for path in outdated:
        path.write_text(generated[path](), encoding="utf-8")
        typer.echo(f"wrote {path}")


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    app()

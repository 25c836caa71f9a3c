"""Writes what is generated from code, or checks that it is up to date: pages, sections, and the types of messages.

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

SECTIONS: Mapping[str, Callable[[], str]] = {
    "README.md": lambda: reference.render_nouns(reference.built_in_descriptors()),
    "docs/index.md": reference.render_links,
    "mkdocs.yml": reference.render_navigation,
}
"""Generated sections by their files in the project's folder, each between the lines with `BEGIN` and with `END`."""

BEGIN = "begin: written by `make docs`"
END = "end: written by `make docs`"


@app.command()
def docs(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when a file is out of date.")] = False,
    folder: Annotated[Path, typer.Option("--folder", help="Where the pages are.")] = Path("docs"),
) -> None:
    """Write what is generated."""
    generated = {folder / name: render() for name, render in PAGES.items()}
    generated |= {path: render() for path, render in message_stubs.stubs().items()}
    for name, render in SECTIONS.items():
        generated[folder.parent / name] = with_section(_content(folder.parent / name) or "", render())
    outdated = [path for path, content in generated.items() if _content(path) != content]
    if check and outdated:
        fail(f"out of date: {', '.join(map(str, outdated))}. Run `make docs`.")
    for path in outdated:
        path.write_text(generated[path], encoding="utf-8")
        typer.echo(f"wrote {path}")


def with_section(page: str, section: str) -> str:
    """A page with `section`, which ends with a line, as its generated one."""
    lines = page.splitlines(keepends=True)
    begin = next(number for number, line in enumerate(lines) if BEGIN in line)
    end = next(number for number, line in enumerate(lines) if END in line)
    return "".join([*lines[: begin + 1], section, *lines[end:]])


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    app()

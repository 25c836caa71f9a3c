"""Writes what is generated from code, or checks that it is up to date: pages, sections, types, dashboards.

`python -m diskless_core.cli.docs [--check]`, from the project's folder; `make docs` and `make lint` call it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from diskless_core import metrics
from diskless_core.broker import protocol_support
from diskless_core.cli import (
    alert_rules,
    command_reference,
    dashboards,
    decisions,
    message_stubs,
    plugin_reference,
    record_reference,
    setting_reference,
)
from diskless_core.cli.common import fail
from diskless_core.cluster.broker_configs import ALTERABLE
from diskless_core.config import reference
from diskless_core.plugin_host.nouns import NOUNS

app = typer.Typer(add_completion=False)

PAGES: Mapping[str, Callable[[], str]] = {
    "configuration.md": lambda: reference.render_reference(reference.built_in_descriptors(), ALTERABLE),
    "metrics.md": metrics.render_reference,
    "protocol_support.md": protocol_support.render,
    "records.md": record_reference.render,
    "topic_settings.md": setting_reference.render,
}
"""Generated pages by their names in docs/."""

_CHART = "deploy/helm/diskless/files"

FILES: Mapping[str, Callable[[], str]] = {
    "deploy/prometheus/alerts.yaml": alert_rules.render,
    f"{_CHART}/alerts.yaml": alert_rules.render,
    **{
        f"{folder}/{dashboard.name}.json": partial(dashboards.render, dashboard)
        for folder in ("deploy/grafana", f"{_CHART}/dashboards")
        for dashboard in dashboards.DASHBOARDS
    },
}
"""Generated files of deploy/ by their paths in the project's folder. A chart can only read what is in it, so it has
copies."""

SECTIONS: Mapping[tuple[str, str], Callable[[Path], str]] = {
    ("README.md", "nouns"): lambda _: reference.render_nouns(reference.built_in_descriptors()),
    ("docs/cli.md", "commands"): lambda _: command_reference.render(),
    ("docs/index.md", "nouns"): lambda _: reference.render_links(),
    ("mkdocs.yml", "nouns"): lambda _: reference.render_navigation(),
    ("mkdocs.yml", "decisions"): lambda folder: decisions.render_navigation(folder / "adr"),
    ("docs/adr/README.md", "decisions"): lambda folder: decisions.render_list(folder / "adr"),
    ("docs/catalogue.md", "catalogue"): plugin_reference.render_catalogue,
    **{
        (f"docs/plugins/{name}.md", "reference"): lambda _, noun=noun: plugin_reference.render(noun)  # type: ignore[misc]
        for name, noun in NOUNS.items()
        if Path("docs", "plugins", f"{name}.md").exists()  # a test tells of a noun without a page
    },
}
"""Generated sections by their files in the project's folder and their names, from the folder docs/. Each stands between
the lines `begin <name>` and `end <name>`."""


_MARK = "written by `make docs`"


@app.command()
def docs(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when a file is out of date.")] = False,
    folder: Annotated[Path, typer.Option("--folder", help="Where the pages are.")] = Path("docs"),
) -> None:
    """Write what is generated."""
    generated = {folder / name: render() for name, render in PAGES.items()}
    generated |= {folder.parent / name: render() for name, render in FILES.items()}
    generated |= {path: render() for path, render in message_stubs.stubs().items()}
    for (name, section), render in SECTIONS.items():
        path = folder.parent / name
        page = generated.get(path) or _content(path) or ""
        generated[path] = with_section(page, section, render(folder))
    outdated = [path for path, content in generated.items() if _content(path) != content]
    if check and outdated:
        fail(f"out of date: {', '.join(map(str, outdated))}. Run `make docs`.")
    for path in outdated:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(generated[path], encoding="utf-8")
        typer.echo(f"wrote {path}")


def with_section(page: str, name: str, section: str) -> str:
    """A page with `section`, which ends with a line, as its generated one of this name."""
    lines = page.splitlines(keepends=True)
    begin = next(number for number, line in enumerate(lines) if f"begin {name}: {_MARK}" in line)
    end = next(number for number, line in enumerate(lines) if f"end {name}: {_MARK}" in line)
    return "".join([*lines[: begin + 1], section, *lines[end:]])


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    app()

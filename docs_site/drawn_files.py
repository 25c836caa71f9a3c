"""The files that are drawn: diagrams, charts, the page of charts, and the tables of pages."""

from __future__ import annotations

from pathlib import Path

from docs_site import backends, bucket_costs, charts, diagrams, model_costs, state_space

DOCS = Path("docs")


def files(docs: Path = DOCS) -> dict[Path, str]:
    """What is drawn, by file below `docs`."""
    drawn = charts.charts((docs / "benchmarks.md").read_text(encoding="utf-8"))
    return {
        **{docs / "images" / name: draw().render() for name, draw in diagrams.DRAWINGS.items()},
        **{docs / charts.FOLDER / f"{chart.name}.svg": charts.draw(chart).render() for chart in drawn},
        docs / "backends.md": backends.render(backends.read()),
        docs / "benchmarks-in-pictures.md": charts.render_page(drawn),
        docs / "images" / "bucket-log-states.svg": state_space.draw().render(),
        docs / "cluster.md": model_costs.with_table((docs / "cluster.md").read_text(encoding="utf-8")),
        docs / "bucket_log.md": bucket_costs.with_table((docs / "bucket_log.md").read_text(encoding="utf-8")),
    }


def stale(docs: Path = DOCS) -> list[Path]:
    """Files that are not as they would be drawn, and drawings that nothing draws any more."""
    wanted = files(docs)
    strays = set((docs / charts.FOLDER).glob("*.svg")) - set(wanted)
    changed = {path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    return sorted(changed | strays)


def write(docs: Path = DOCS) -> list[Path]:
    """Draw everything anew, and return which files changed, those that are gone included."""
    wanted, changed = files(docs), stale(docs)
    for path in changed:
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()
    return changed

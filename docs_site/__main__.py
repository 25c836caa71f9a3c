"""Draws, or checks that what is drawn is up to date.

`python -m docs_site [--check]`, from the project's folder; `make docs` and `make lint` call it.
"""

from __future__ import annotations

import sys

import typer

from docs_site import drawn_files


def main(arguments: list[str]) -> None:
    """Write, or with --check end with an error that names what is out of date."""
    if "--check" not in arguments:
        for path in drawn_files.write():
            typer.echo(f"wrote {path}")
    elif outdated := drawn_files.stale():
        sys.exit(f"out of date: {', '.join(map(str, outdated))}. Run `make docs`.")


if __name__ == "__main__":
    main(sys.argv[1:])

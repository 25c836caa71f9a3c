"""Tables: by rich at a terminal, plain lines for `grep` and `awk` anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from diskless_core.cli import text


def echo_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table to standard output; None is shown as `-`, and columns of numbers are flush right."""
    if not sys.stdout.isatty():
        typer.echo("\n".join(text.table(header, rows)))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for number, name in enumerate(header):
        is_numeric = any(isinstance(row[number], int) for row in rows)
        table.add_column(name, justify="right" if is_numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(text.NONE if cell is None else str(cell) for cell in row))
    Console(markup=False, highlight=False, emoji=False).print(table)

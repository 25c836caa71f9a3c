"""How commands write tables and times. No colours, no borders: the output is for `grep` and `awk` too."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

NONE = "-"
"""Stands for a value that is not there."""


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of columns two spaces apart; columns of numbers are flush right."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [all(isinstance(value, int) for value in column) for column in zip(*rows, strict=True)]
    flush_right = numeric or [False] * len(header)
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, flush_right, strict=True)
        ).rstrip()
        for line in cells
    ]


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things, such as "1 segment" and "2 segments"."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def iso_time(time_ms: int) -> str:
    """A time in milliseconds since the epoch as ISO 8601, in UTC; `NONE` for a negative one."""
    if time_ms < 0:
        return NONE
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cell(value: object) -> str:
    return NONE if value is None else str(value)

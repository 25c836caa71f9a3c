"""Lists of the decision records, for the site's navigation and for their own first page, from the records' titles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_TITLE = re.compile(r"# (\d+)\. (.+)")


class Decision(NamedTuple):
    """One record: its number, its title, and its file's name."""

    number: int
    title: str
    file: str


def render_list(folder: Path) -> str:
    """All records below `folder`, as a numbered list in Markdown."""
    return "".join(f"{number}. [{title}]({file})\n" for number, title, file in read_decisions(folder))


def render_navigation(folder: Path) -> str:
    """All records below `folder`, as entries of the site's navigation."""
    return "".join(f"      - adr/{decision.file}\n" for decision in read_decisions(folder))


def read_decisions(folder: Path) -> Iterator[Decision]:
    """The records below `folder` by their numbers.

    Raises:
        ValueError: a record does not begin with its title.
    """
    for path in sorted(folder.glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0]
        found = _TITLE.fullmatch(title)
        if found is None:
            raise ValueError(f"{path} begins with {title!r}, not with '# <number>. <title>'")
        yield Decision(int(found[1]), found[2], path.name)

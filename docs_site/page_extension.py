"""What becomes of a page besides what Markdown and the theme make of it, as an extension of Python-Markdown.

- A drawing that stands alone in a paragraph comes inline: its text can be selected, and it follows light and dark.
- A cell of a wide table knows the name of its column: on a narrow screen the table becomes a list of its cells. Long
  names in tables may break between their parts, so that no column takes more than its share.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor

NARROW_TABLE_CHARACTERS = 48
"""So many characters fit beside each other on a narrow screen, with room for `COLUMN_CHARACTERS` around each column. A
table whose columns' longest cells need no more stays a table there."""
COLUMN_CHARACTERS = 3

SHORT_CELL_CHARACTERS = 16
"""Cells of columns that have no longer ones stand side by side where a wide table has become a list."""

LONG_WORD_CHARACTERS = 18
"""A longer word in a table may be broken between its parts."""

_PARTS = re.compile(r"(?<=[^\W_][_./,=])(?=[^_./:,=])|(?<=::)|(?<=[a-z])(?=[A-Z])")
_SPACES = re.compile(r"(?<=\s)(?=\S)")


def makeExtension(**settings: Any) -> Extension:  # noqa: N802 the name is Markdown's
    """What Markdown asks a module of `markdown_extensions` for."""
    return _PageExtension(**settings)


class _PageExtension(Extension):
    def __init__(self, **settings: Any) -> None:
        self.config = {"docs": ["docs", "The folder of the pages, below which the drawings are."]}
        super().__init__(**settings)

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 the name is Markdown's
        # behind the processor of inline text, 20, and before MkDocs' own, 0, which makes links relative to addresses
        md.treeprocessors.register(_InlineDrawings(md, Path(self.getConfig("docs"))), "diskless-drawings", 5)
        md.treeprocessors.register(_Tables(md), "diskless-tables", 4)


class _InlineDrawings(Treeprocessor):
    def __init__(self, md: Markdown, docs: Path) -> None:
        super().__init__(md)
        self._docs = docs

    def run(self, root: Element) -> None:
        for paragraph in root.iter("p"):
            images = paragraph.findall("img")
            if len(images) == len(paragraph) == 1 and images[0].get("src", "").endswith(".svg"):
                self._put_inline(paragraph, images[0])

    def _put_inline(self, paragraph: Element, image: Element) -> None:
        path = self._docs / image.get("src", "").replace("../", "")
        box = f'<div class="picture" role="group" tabindex="0" aria-label="{escape(image.get("alt", ""), quote=True)}">'
        paragraph.remove(image)
        paragraph.text = self.md.htmlStash.store(f"{box}{path.read_text(encoding='utf-8')}</div>")


class _Tables(Treeprocessor):
    def run(self, root: Element) -> None:
        for table in root.iter("table"):
            names = ["".join(cell.itertext()) for cell in table.iter("th")]
            rows = [cells for row in table.iter("tr") if (cells := row.findall("td"))]
            longest = [max(map(_length, cells), default=0) for cells in zip(*rows, strict=True)]
            widths = [max(len(name), length) for name, length in zip(names, longest, strict=True)]
            if sum(widths) + COLUMN_CHARACTERS * len(widths) > NARROW_TABLE_CHARACTERS:
                table.set("data-wide", "")
                for row in rows:
                    for name, length, cell in zip(names, longest, row, strict=True):
                        cell.set("data-column", name)
                        if length <= SHORT_CELL_CHARACTERS:
                            cell.set("data-short", "")
            for row in rows:
                for cell in row:
                    _make_breakable(cell)


def _length(cell: Element) -> int:
    return len("".join(cell.itertext()))


def _make_breakable(element: Element) -> None:
    """Let long names in an element break between their parts."""
    for child in element:
        _make_breakable(child)
    for child in reversed(element):
        child.tail, breaks = _with_breaks(child.tail)
        place = list(element).index(child) + 1
        element[place:place] = breaks
    element.text, breaks = _with_breaks(element.text)
    element[:0] = breaks


def _with_breaks(text: str | None) -> tuple[str | None, list[Element]]:
    """Text up to its first place for a break, and the rest as elements for breaks, each with the text behind it."""
    if not text:
        return text, []
    words = [_PARTS.split(word) if len(word) > LONG_WORD_CHARACTERS else [word] for word in _SPACES.split(text)]
    first, *parts = _joined(words)
    breaks = []
    for part in parts:
        breaks.append(Element("wbr"))
        breaks[-1].tail = part
    return first, breaks


def _joined(words: list[list[str]]) -> list[str]:
    """The parts of a text, from those of its words: nothing breaks where one word ends and the next begins."""
    parts = [""]
    for first, *others in words:
        parts[-1] += first
        parts += others
    return parts

"""Shapes of drawings, as SVG whose text can be selected and whose colours follow the reader's choice of light or dark.

A drawing works in two places. In a page of the site it stands inline, and follows the page's switch. As a file of its
own, as source forges show it, it follows the system's setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

Point = tuple[float, float]

_LIGHT = {
    "ink": "#1d2b36",
    "soft": "#566573",
    "line": "#8896a3",
    "paper": "#f5f7f9",
    "client": "#e8ecf0",
    "client-edge": "#8896a3",
    "broker": "#dceefb",
    "broker-edge": "#2878b5",
    "store": "#fff0d6",
    "store-edge": "#c77d0a",
    "log": "#e2f3e6",
    "log-edge": "#2f8a4c",
    "bar-first": "#2878b5",
    "bar-second": "#c77d0a",
    "bar-third": "#9aa7b3",
}
_DARK = {
    "ink": "#e6ebf0",
    "soft": "#a9b6c2",
    "line": "#7d8b99",
    "paper": "#252a36",
    "client": "#343b49",
    "client-edge": "#8d9aa8",
    "broker": "#1d3b54",
    "broker-edge": "#5eaee8",
    "store": "#4a3818",
    "store-edge": "#eab054",
    "log": "#1f4029",
    "log-edge": "#6cc788",
    "bar-first": "#5eaee8",
    "bar-second": "#eab054",
    "bar-third": "#6d7a88",
}


def _variables(colours: Mapping[str, str]) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


def _rules() -> str:
    shapes = "".join(
        f".drawing .{kind}{{fill:var(--{kind});stroke:var(--{kind}-edge)}}"
        for kind in ("client", "broker", "store", "log")
    )
    bars = "".join(
        f".drawing .bar-{place}{{fill:var(--bar-{place});stroke:none}}" for place in ("first", "second", "third")
    )
    return (
        f".drawing{{{_variables(_LIGHT)}}}"
        f"@media(prefers-color-scheme:dark){{.drawing:root{{{_variables(_DARK)}}}}}"
        f"[data-md-color-scheme=slate] .drawing{{{_variables(_DARK)}}}"
        ".drawing text{fill:var(--ink);font-family:system-ui,-apple-system,Segoe UI,Roboto,Helvetica,Arial,sans-serif}"
        ".drawing .soft{fill:var(--soft)}.drawing .strong{font-weight:600}"
        ".drawing .paper{fill:var(--paper);stroke:none}"
        ".drawing .line{fill:none;stroke:var(--line);stroke-width:1.5}.drawing .dashed{stroke-dasharray:5 4}"
        f".drawing .head{{fill:var(--line);stroke:none}}{shapes}{bars}"
    )


@dataclass(slots=True)
class Drawing:
    """A picture in the making; coordinates are in pixels at full size, from the upper left corner.

    Attributes:
        text: what it shows, in words, for those who do not see it.
        least_width: the width below which it is not shrunk any further, so that its text stays readable.
    """

    width: int
    height: int
    text: str
    least_width: int = 0
    _parts: list[str] = field(default_factory=list)

    def box(self, kind: str, at: Point, size: Point, *, radius: float = 6) -> None:
        """A rectangle of a colour: client, broker, store, log, paper, or one of the bars."""
        (x, y), (width, height) = at, size
        self._parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'
        )

    def write(self, at: Point, text: str, *, size: int = 14, style: str = "", anchor: str = "start") -> None:
        """A line of text whose baseline begins, has its middle, or ends at a point."""
        x, y = at
        named = f' class="{style}"' if style else ""
        placed = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}"{placed}{named}>{escape(text)}</text>')

    def label(self, at: Point, size: Point, *lines: str, text_size: int = 14) -> None:
        """Lines in the middle of a rectangle, the first one strong."""
        (x, y), (width, height) = at, size
        spacing = text_size * 1.35
        first = y + height / 2 - spacing * (len(lines) - 1) / 2 + text_size * 0.35
        for number, line in enumerate(lines):
            style = "soft" if number else "strong"
            self.write((x + width / 2, first + number * spacing), line, size=text_size, style=style, anchor="middle")

    def named_box(self, kind: str, at: Point, size: Point, *lines: str, text_size: int = 14) -> None:
        """A rectangle with lines in its middle."""
        self.box(kind, at, size)
        self.label(at, size, *lines, text_size=text_size)

    def line(self, points: Sequence[Point], *, dashed: bool = False) -> None:
        """A line through points."""
        listed = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(f'<polyline class="line{" dashed" if dashed else ""}" points="{listed}"/>')

    def arrow(self, points: Sequence[Point], *, dashed: bool = False) -> None:
        """A line through points, of horizontal and vertical parts, with a head at its end."""
        (from_x, from_y), (x, y) = points[-2:]
        along_x, along_y = (x > from_x) - (x < from_x), (y > from_y) - (y < from_y)
        back_x, back_y = x - 9 * along_x, y - 9 * along_y
        self.line([*points[:-1], (back_x, back_y)], dashed=dashed)
        corners = [(x, y), (back_x + 5 * along_y, back_y + 5 * along_x), (back_x - 5 * along_y, back_y - 5 * along_x)]
        listed = " ".join(f"{corner_x:g},{corner_y:g}" for corner_x, corner_y in corners)
        self._parts.append(f'<polygon class="head" points="{listed}"/>')

    def render(self) -> str:
        """The file."""
        least = f"min-width:{self.least_width}px;" if self.least_width else ""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" '
            f'style="width:100%;max-width:{self.width}px;{least}height:auto">'
        )
        lines = [head, f"<desc>{escape(self.text)}</desc>", f"<style>{_rules()}</style>", *self._parts, "</svg>"]
        return "\n".join(lines) + "\n"

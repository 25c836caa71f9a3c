"""The drawing of how many states the explorer of the bucket log runs through, by their distance from the first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs_site.svg import Drawing

FILE = Path(__file__).parent / "bucket_log_states.json"

_TITLES = {
    "claims": "Two leaders that claim and write, a reader, a pruner",
    "pipelines": "Puts that do not wait for confirmation, two prunings",
}
_WIDTH = 720
_PANEL_HEIGHT = 230
_BARS_HEIGHT = 130


def draw() -> Drawing:
    """One panel a scenario."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    words = "; ".join(f"{_TITLES[name]}: {said['states']:,} states" for name, said in found.items())
    drawing = Drawing(
        _WIDTH, _PANEL_HEIGHT * len(found), f"States by distance from the first. {words}.", least_width=560
    )
    for panel, (name, said) in enumerate(found.items()):
        _panel(drawing, panel * _PANEL_HEIGHT, _TITLES[name], said)
    return drawing


def _panel(drawing: Drawing, top: float, title: str, said: dict[str, Any]) -> None:
    layers: list[int] = said["states by distance"]
    drawing.write((10, top + 24), title, size=15, style="strong")
    summary = f"{said['states']:,} states, {said['steps']:,} steps; none is bad"
    drawing.write((10, top + 44), summary, size=13, style="soft")
    base, room = top + 60 + _BARS_HEIGHT, (_WIDTH - 20) / len(layers)
    for distance, states in enumerate(layers):
        height = max(_BARS_HEIGHT * states / max(layers), 0.5)
        drawing.box("bar-first", (10 + distance * room, base - height), (room * 0.8, height), radius=1)
    drawing.line([(10, base), (_WIDTH - 10, base)])
    drawing.write((10, base + 18), "the first state", size=12, style="soft")
    largest = layers.index(max(layers))
    middle = 10 + (largest + 0.4) * room
    drawing.write((middle, base + 18), f"{max(layers):,} after {largest} steps", size=12, style="soft", anchor="middle")
    drawing.write((_WIDTH - 10, base + 18), f"{len(layers) - 1} steps", size=12, style="soft", anchor="end")

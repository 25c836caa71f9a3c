"""How large the state spaces are, as the documentation draws them: written by `python -m tests.explorer`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.explorer.search import Exploration

FILE = Path(__file__).parents[2] / "docs_site" / "bucket_log_states.json"


def documented() -> dict[str, Any]:
    """What is drawn."""
    said: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return said


def of(result: Exploration) -> dict[str, Any]:
    """What is drawn of one scenario."""
    return {
        "states": result.states,
        "steps": result.transitions,
        "late objects below the log start": result.strays,
        "states by distance": result.layers,
    }


def write(said: dict[str, Any]) -> None:
    FILE.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")

"""What this process has open, as Linux tells it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def open_below(folder: Path | str) -> list[str]:
    """The files below a folder that are open, deleted ones included."""
    found: list[str] = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(link.readlink()))
    return [path for path in found if path.startswith(f"{folder}/")]

"""Puts the files of a project on disk: all of them, or none."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from diskless_core.cli.scaffold.project import ScaffoldError


def write_project(folder: Path, files: Mapping[str, str]) -> None:
    """Make a folder with these files, by their paths in it. An interruption leaves no half of it there.

    Raises:
        ScaffoldError: there is something of that name, or it cannot be written.
    """
    if folder.exists() or folder.is_symlink():
        raise ScaffoldError(f"{folder} exists already: choose another name or --folder, or remove it")
    if not folder.parent.is_dir():
        raise ScaffoldError(f"there is no folder {folder.parent}: make it first, or choose another --folder")
    try:
        # Beside the place, so that the renaming stays within one file system.
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as passing:
            made = Path(passing) / folder.name
            for name, content in files.items():
                path = made / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
            _move(made, folder)
    except OSError as error:
        raise ScaffoldError(f"cannot write {folder}: {error.strerror or error}") from error


def _move(made: Path, folder: Path) -> None:
    """Rename a folder. Where there is one by now, an empty one perhaps, it stays."""
    try:
        folder.mkdir()  # nobody else can make it from here on
    except FileExistsError:
        raise ScaffoldError(f"{folder} exists already: somebody else has just made it") from None
    try:
        made.rename(folder)  # over the empty folder, at once
    except BaseException:
        folder.rmdir()
        raise

"""The project's own files, as the architecture tests read them."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that belongs to the project, relative to its folder: what git knows, or would if asked to add all."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(Path(line) for line in sorted(listed.stdout.splitlines()) if (ROOT / line).is_file())


def python_files(*folders: str) -> list[Path]:
    """Python modules below `folders`, relative to the project's folder."""
    return [path for path in project_files() if path.suffix == ".py" and path.parts[0] in folders]


def read(path: Path) -> str:
    """A file's text; bytes that are no UTF-8 are replaced."""
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def imported_modules(path: Path) -> set[str]:
    """Everything that a module imports, anywhere in it, as dotted names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(read(path))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names

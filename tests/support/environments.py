"""Fresh Python environments, into which wheels are installed that were built from this checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2]

_LIMIT_S = 500.0


def run(*command: object) -> str:
    """Run a command that has to succeed, and return what it printed."""
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=_LIMIT_S)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def environment_with(folder: Path, sources: Iterable[Path]) -> Path:
    """Build wheels of these projects, install them without their dependencies, and return the interpreter."""
    wheels = folder / "wheels"
    for source in sources:
        _build_wheel(source, folder / source.name, wheels)
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    python = folder / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run(*install, *wheels.iterdir())
    return python


def site_packages(python: Path) -> Path:
    """Where the packages of an environment are."""
    [folder] = (python.parents[1] / "lib").glob("python*/site-packages")
    return folder


def link_declared_dependencies(python: Path, distribution: str) -> None:
    """Add what a distribution says that it needs, and what that needs, from the environment that runs the tests.

    What is not declared is not there.
    """
    own = site_packages(python)
    [installed] = metadata.distributions(name=distribution, path=[str(own)])
    for needed in _required(installed, {installed.name}):
        for entry in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
            (own / entry).symlink_to(Path(str(needed.locate_file(entry))))


def _required(distribution: metadata.Distribution, seen: set[str]) -> Iterator[metadata.Distribution]:
    for requirement in map(Requirement, distribution.requires or ()):
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        needed = metadata.distribution(requirement.name) if wanted else None
        if needed is not None and needed.name not in seen:
            seen.add(needed.name)
            yield needed
            yield from _required(needed, seen)


def _build_wheel(source: Path, copy: Path, wheels: Path) -> None:
    """Build from a copy: building leaves nothing behind in the project."""
    unwanted = shutil.ignore_patterns(".*", "tests", "docs", "__pycache__", "diskless-data")
    shutil.copytree(source, copy, ignore=unwanted)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    run(*pip, "--wheel-dir", wheels, copy)

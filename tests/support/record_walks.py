"""The walk of records both ways that it runs: from its source, and compiled."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support.downloads import CHECKOUT, filled_once

SOURCE = CHECKOUT / "diskless_core/protocol/record_walk.py"
COMPILER = CHECKOUT / "deploy/compile_walk.py"
WAYS = ("from source", "compiled")


@cache
def record_walk(way: str) -> Any:
    """The module, run that way whatever is installed. Compiling takes seconds, once for each state of the source."""
    return _loaded("record_walk", SOURCE if way == "from source" else _compiled())


def _compiled() -> Path:
    def fill(folder: Path) -> None:
        folder.mkdir()
        _loaded("compile_walk", COMPILER).compile_walk(SOURCE, folder)

    folder = filled_once(f"record_walk-{sys.implementation.cache_tag}", [SOURCE, COMPILER], fill)
    [built] = folder.iterdir()
    return built


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

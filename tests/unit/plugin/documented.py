"""Runs the Python of a page of docs/plugins as the module of a plugin."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

from diskless_core.plugin_host.discovery import ENTRY_POINT_GROUP, PluginEntryPoint

PAGES = Path(__file__).parents[3] / "docs" / "plugins"


def page(noun: str) -> str:
    """The text of a noun's page."""
    return (PAGES / f"{noun}.md").read_text(encoding="utf-8")


def blocks(noun: str, language: str) -> list[str]:
    """The code blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page(noun), re.MULTILINE | re.DOTALL)


def example(noun: str) -> ModuleType:
    """A module with all Python of the page, the example first and the contract suite after it."""
    module = ModuleType(f"documented_{noun}")
    sys.modules[module.__name__] = module
    for block in blocks(noun, "python"):
        exec(compile(block, f"{noun}.md", "exec", dont_inherit=True), module.__dict__)
    return module


def announced(noun: str) -> PluginEntryPoint:
    """The entry point that the page's TOML announces, of the page's module."""
    (toml,) = blocks(noun, "toml")
    ((key, value),) = tomllib.loads(toml)["project"]["entry-points"][ENTRY_POINT_GROUP].items()
    announced_noun, _, name = key.partition(".")
    return PluginEntryPoint(
        noun=announced_noun,
        name=name,
        value=value,
        distribution="documentation",
        version="1",
        load=lambda: example(noun),
    )

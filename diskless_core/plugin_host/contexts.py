"""What a host hands to the factories of its plugins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from diskless_core.clock import Clock
from diskless_core.plugin.context import PluginContext

ContextFactory = Callable[[str, str], PluginContext]
"""Makes the context of the plugin (noun, name)."""


def contexts_in(folder: Path, clock: Clock, *, node_id: int) -> ContextFactory:
    """Contexts for the plugins of a node, each with a folder of its own below the first of `log.dirs`."""

    def context_of(noun: str, name: str) -> PluginContext:
        return PluginContext(node_id=node_id, data_dir=folder / noun / name, log_dir=folder, clock=clock)

    return context_of

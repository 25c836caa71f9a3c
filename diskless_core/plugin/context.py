"""What the broker hands to a plugin's factory: identity, a place for files, time. Nothing else of the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from diskless_core.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContext:
    """Services for one plugin instance.

    Attributes:
        node_id: this broker's `node.id`.
        data_dir: a folder of `log.dirs` that belongs to this plugin alone; it may not exist yet.
        log_dir: the first of `log.dirs`, for defaults that are shared by all plugins.
        clock: the only source of time, randomness and ids that a plugin should use.
    """

    node_id: int
    data_dir: Path
    log_dir: Path
    clock: Clock


ContextFactory = Callable[[str, str], PluginContext]
"""Makes the context of the plugin (noun, name)."""

TOOL_NODE_ID = -1
"""Whoever asks without being a broker has this id in Kafka. A tool's plugins have it lest they touch the broker's."""


def contexts_in(folder: Path, clock: Clock, *, node_id: int) -> ContextFactory:
    """Contexts for the plugins of a node, each with a folder of its own below the first of `log.dirs`."""

    def context_of(noun: str, name: str) -> PluginContext:
        return PluginContext(node_id=node_id, data_dir=folder / noun / name, log_dir=folder, clock=clock)

    return context_of

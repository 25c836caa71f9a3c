"""What the broker hands to a plugin's factory: identity, a place for files, time. Nothing else of the core."""

from __future__ import annotations

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


TOOL_NODE_ID = -1
"""Whoever asks without being a broker has this id in Kafka. A tool's plugins have it lest they touch the broker's."""

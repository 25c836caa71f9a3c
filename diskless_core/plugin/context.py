"""What the broker hands to a plugin's factory: identity, a place for files, time. Nothing else of the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from diskless_core.clock import Clock

if TYPE_CHECKING:  # every noun's module needs the context
    from diskless_core.plugin.wal_object_store import WalObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContext:
    """Services for one plugin instance.

    Attributes:
        node_id: this broker's `node.id`.
        data_dir: a folder of `log.dirs` that belongs to this plugin alone; it may not exist yet.
        log_dir: the first of `log.dirs`, for defaults that are shared by all plugins.
        clock: the only source of time, randomness and ids that a plugin should use.
        object_store: makes an instance, not started, of the `wal_object_store` that the broker is configured with, for
            a plugin that keeps something beside the WAL objects. None where there is no such configuration.
        object_prefix: the `diskless.wal.object.prefix` of the broker, beside which it may write.
    """

    node_id: int
    data_dir: Path
    log_dir: Path
    clock: Clock
    object_store: Callable[[], WalObjectStore] | None = None
    object_prefix: str = ""


TOOL_NODE_ID = -1
"""Whoever asks without being a broker has this id in Kafka. A tool's plugins have it lest they touch the broker's."""

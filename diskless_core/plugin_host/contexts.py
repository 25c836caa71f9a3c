"""What a host hands to the factories of its plugins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from diskless_core.clock import Clock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStorePlugin

ContextFactory = Callable[[str, str], PluginContext]
"""Makes the context of the plugin (noun, name)."""


def contexts_in(
    folder: Path,
    clock: Clock,
    *,
    node_id: int,
    object_store: Callable[[], WalObjectStore] | None = None,
    object_prefix: str = "",
) -> ContextFactory:
    """Contexts for the plugins of a node, each with a folder of its own below the first of `log.dirs`.

    Args:
        object_store: as `PluginContext.object_store`; the object store itself does not get it.
        object_prefix: as `PluginContext.object_prefix`.
    """

    def context_of(noun: str, name: str) -> PluginContext:
        return PluginContext(
            node_id=node_id,
            data_dir=folder / noun / name,
            log_dir=folder,
            clock=clock,
            object_store=None if noun == WalObjectStorePlugin.noun else object_store,
            object_prefix=object_prefix,
        )

    return context_of

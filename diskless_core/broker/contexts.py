"""What plugins get from a configuration; for the broker and for its tools."""

from __future__ import annotations

from diskless_core.clock import Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.config.load import LoadedConfig
from diskless_core.plugin_host.contexts import ContextFactory, contexts_in
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import WAL_OBJECT_STORE


def plugin_contexts(config: BrokerConfig, clock: Clock, *, node_id: int) -> ContextFactory:
    """Contexts for the plugins of the node `node_id`, in the folder that is configured. They make no object store."""
    return contexts_in(config.data_dir.absolute(), clock, node_id=node_id)


def configured_contexts(loaded: LoadedConfig, plugins: PluginManager, clock: Clock, *, node_id: int) -> ContextFactory:
    """The same, for plugins that may keep something beside the WAL objects, in the object store that is configured."""
    own = plugin_contexts(loaded.broker, clock, node_id=node_id)
    return contexts_in(
        loaded.broker.data_dir.absolute(),
        clock,
        node_id=node_id,
        object_store=plugins.source(WAL_OBJECT_STORE, loaded.plugins, own),
        object_prefix=loaded.broker.diskless_wal_object_prefix,
    )

"""What plugins get from a configuration; for the broker and for its tools."""

from __future__ import annotations

from diskless_core.clock import Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.plugin_host.contexts import ContextFactory, contexts_in


def plugin_contexts(config: BrokerConfig, clock: Clock, *, node_id: int) -> ContextFactory:
    """Contexts for the plugins of the node `node_id`, in the folder that is configured."""
    return contexts_in(config.data_dir.absolute(), clock, node_id=node_id)

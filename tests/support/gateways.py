"""The gateway placements that come with Diskless, ready to be asked."""

from __future__ import annotations

from pathlib import Path

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.gateway_placement import GatewayPlacement
from diskless_policies.plugin import diskless_gateway_placements

POLICIES = {descriptor.name: descriptor for descriptor in diskless_gateway_placements()}
UNUSED = Path("unused")


def placement(name: str, **settings: int) -> GatewayPlacement:
    """A new instance, as on another broker."""
    descriptor = POLICIES[name]
    context = PluginContext(node_id=1, data_dir=UNUSED, log_dir=UNUSED, clock=SystemClock())
    return descriptor.factory(context, descriptor.settings(**settings))

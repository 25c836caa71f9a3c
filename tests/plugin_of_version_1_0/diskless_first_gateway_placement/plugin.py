"""What this distribution announces: the entry point in pyproject.toml names this module.

It is imported whenever plugins are listed, so it should import little that takes long.
"""

from __future__ import annotations

from diskless_core.plugin.gateway_placement import GatewayPlacementPlugin
from diskless_core.plugin.hookspecs import hookimpl

from diskless_first_gateway_placement.placement import FirstGatewayPlacementPlacement
from diskless_first_gateway_placement.settings import FirstGatewayPlacementSettings


@hookimpl
def diskless_gateway_placements() -> list[GatewayPlacementPlugin]:
    """A list, as one module can bring several backends. Each has an entry point of its own."""
    return [
        GatewayPlacementPlugin(
            name="first_gateway_placement",
            factory=FirstGatewayPlacementPlacement,
            settings=FirstGatewayPlacementSettings,
            # The plugin API that this was written for, not the newest one: older brokers can use it too.
            api_version="1.0",
            help="Chooses the gateways of each rack by a hash.",
        )
    ]

"""Settings of the policy. Fields are properties: `gateways_per_rack` is `<noun>.<name>.gateways.per.rack`."""

from __future__ import annotations

from diskless_core.plugin.config import PluginSettings
from pydantic import Field


class FirstGatewayPlacementSettings(PluginSettings):
    """`gateway_placement.first_gateway_placement.*`"""

    gateways_per_rack: int = Field(default=1, ge=1, description="Gateways of each coordinator in each rack, at most.")

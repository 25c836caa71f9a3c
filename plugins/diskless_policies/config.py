"""Settings of the built-in policies."""

from __future__ import annotations

from pydantic import Field

from diskless_core.plugin.config import PluginSettings


class SequentialSettings(PluginSettings):
    """`offset_assignment.sequential.*`: there is nothing to set."""


class Kip1164Settings(PluginSettings):
    """`gateway_placement.kip1164.*`: there is nothing to set."""


class ListingSettings(PluginSettings):
    """`orphan_detection.listing.*`: there is nothing to set."""


class RendezvousSettings(PluginSettings):
    """`gateway_placement.rendezvous.*`"""

    gateways_per_rack: int = Field(
        default=1, ge=1, description="Gateways of each coordinator in each rack, as far as the rack has brokers."
    )

"""Announces the built-in policies."""

from __future__ import annotations

from diskless_core.plugin.gateway_placement import GatewayPlacementPlugin
from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.offset_assignment import OffsetAssignmentPlugin
from diskless_core.plugin.orphan_detection import OrphanDetectionPlugin
from diskless_policies.config import Kip1164Settings, ListingSettings, RendezvousSettings, SequentialSettings
from diskless_policies.kip1164 import Kip1164Placement
from diskless_policies.listing import ListingDetection
from diskless_policies.rendezvous import RendezvousPlacement
from diskless_policies.sequential import SequentialAssignment


@hookimpl
def diskless_offset_assignments() -> list[OffsetAssignmentPlugin]:
    """Offset assignment as Kafka does it."""
    return [
        OffsetAssignmentPlugin(
            name="sequential",
            factory=SequentialAssignment,
            settings=SequentialSettings,
            api_version="1.0",
            help="Gives consecutive offsets in order of arrival, as Kafka does.",
        )
    ]


@hookimpl
def diskless_gateway_placements() -> list[GatewayPlacementPlugin]:
    """Gateways as KIP-1164 has them, and by hashing alone."""
    return [
        GatewayPlacementPlugin(
            name="kip1164",
            factory=Kip1164Placement,
            settings=Kip1164Settings,
            api_version="1.0",
            help="Spreads gateways evenly, together for co-located coordinators, as KIP-1164 describes.",
        ),
        GatewayPlacementPlugin(
            name="rendezvous",
            factory=RendezvousPlacement,
            settings=RendezvousSettings,
            api_version="1.0",
            help="Chooses gateways by rendezvous hashing, so that the fewest change with the cluster.",
        ),
    ]


@hookimpl
def diskless_orphan_detections() -> list[OrphanDetectionPlugin]:
    """Orphans as KIP-1164 finds them."""
    return [
        OrphanDetectionPlugin(
            name="listing",
            factory=ListingDetection,
            settings=ListingSettings,
            api_version="1.0",
            help="Lists the object store and takes what is old enough, as KIP-1164 describes.",
        )
    ]

"""Loadable plugins of all nouns under the default names, so that a test of one plugin needs no real others."""

from __future__ import annotations

from pydantic import Field, SecretStr

from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.coordinator_log import CoordinatorLogPlugin
from diskless_core.plugin.coordinator_store import CoordinatorStorePlugin
from diskless_core.plugin.gateway_placement import GatewayPlacementPlugin
from diskless_core.plugin.hookspecs import NOUNS, hookimpl
from diskless_core.plugin.offset_assignment import OffsetAssignmentPlugin
from diskless_core.plugin.orphan_detection import OrphanDetectionPlugin
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataPlugin
from diskless_core.plugin.remote_storage import RemoteStoragePlugin
from diskless_core.plugin.segment_compaction import SegmentCompactionPlugin
from diskless_core.plugin.wal_object_store import WalObjectStorePlugin
from tests.broken_plugins.zoo import announce


class ObjectStoreSettings(PluginSettings):
    url: str = Field(default="memory://", description="Where objects go.")
    endpoint_url: str | None = Field(default=None, description="Address of the service.")
    secret_key: SecretStr | None = Field(default=None, description="Key of the service.")
    timeout_ms: int = Field(default=1000, ge=1, description="Time-out of a request, in milliseconds.")


def refuse(context, settings):
    raise NotImplementedError


def describe(descriptor, name, settings=PluginSettings):
    return [descriptor(name=name, factory=refuse, settings=settings, api_version="1.0", help="Stands in.")]


@hookimpl
def diskless_coordinator_logs():
    return describe(CoordinatorLogPlugin, "local")


@hookimpl
def diskless_coordinator_stores():
    return describe(CoordinatorStorePlugin, "sqlite")


@hookimpl
def diskless_wal_object_stores():
    return describe(WalObjectStorePlugin, "fsspec", ObjectStoreSettings)


@hookimpl
def diskless_offset_assignments():
    return describe(OffsetAssignmentPlugin, "sequential")


@hookimpl
def diskless_gateway_placements():
    return describe(GatewayPlacementPlugin, "kip1164")


@hookimpl
def diskless_orphan_detections():
    return describe(OrphanDetectionPlugin, "listing")


@hookimpl
def diskless_remote_storages():
    return describe(RemoteStoragePlugin, "fsspec")


@hookimpl
def diskless_remote_log_metadatas():
    return describe(RemoteLogMetadataPlugin, "coordinator")


@hookimpl
def diskless_segment_compactions():
    return describe(SegmentCompactionPlugin, "inline")


def announce_stand_ins():
    """Entry points for all of them, as if the distribution `diskless` had them."""
    return [
        announce("stand_ins", noun=noun.name, name=noun.default, distribution="diskless", version="0")
        for noun in NOUNS.values()
    ]

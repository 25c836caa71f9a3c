"""The hooks that a plugin implements, one for each noun, and `NOUNS`: the one table that knows all nouns.

Hooks are synchronous, take no argument and do no work: they return a list of frozen descriptors. The broker calls them
while it starts, for selected plugins only, or for all of them in `diskless plugins list`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pluggy

from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogPlugin
from diskless_core.plugin.coordinator_store import CoordinatorStore, CoordinatorStorePlugin
from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.gateway_placement import GatewayPlacement, GatewayPlacementPlugin
from diskless_core.plugin.offset_assignment import OffsetAssignment, OffsetAssignmentPlugin
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanDetectionPlugin
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataPlugin
from diskless_core.plugin.remote_storage import RemoteStorage, RemoteStoragePlugin
from diskless_core.plugin.segment_compaction import SegmentCompaction, SegmentCompactionPlugin
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStorePlugin

PROJECT = "diskless"
"""The name under which pluggy marks functions as ours."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Decorator for the functions of a plugin's `plugin.py`. A name that is no hook is an error, not ignored."""

InterfaceT = TypeVar("InterfaceT")


class Hooks:
    """The hook specifications."""

    @staticmethod
    @hookspec
    def diskless_coordinator_logs() -> list[CoordinatorLogPlugin]:
        """Replicated metadata logs, chosen with `coordinator_log=<name>`.

        Example::

            @hookimpl
            def diskless_coordinator_logs() -> list[CoordinatorLogPlugin]:
                return [
                    CoordinatorLogPlugin(
                        name="etcd",
                        factory=EtcdLog,
                        settings=EtcdLogSettings,
                        api_version="1.0",
                        help="Keeps the coordinator log in etcd.",
                    )
                ]
        """
        raise NotImplementedError

    @staticmethod
    @hookspec
    def diskless_coordinator_stores() -> list[CoordinatorStorePlugin]:
        """Local stores of coordinator state, chosen with `coordinator_store=<name>`.

        Example::

            @hookimpl
            def diskless_coordinator_stores() -> list[CoordinatorStorePlugin]:
                return [
                    CoordinatorStorePlugin(
                        name="lmdb",
                        factory=LmdbStore,
                        settings=LmdbStoreSettings,
                        api_version="1.0",
                        help="Keeps coordinator state in LMDB.",
                    )
                ]
        """
        raise NotImplementedError

    @staticmethod
    @hookspec
    def diskless_wal_object_stores() -> list[WalObjectStorePlugin]:
        """Object stores for WAL objects, chosen with `wal_object_store=<name>`.

        Example::

            @hookimpl
            def diskless_wal_object_stores() -> list[WalObjectStorePlugin]:
                return [
                    WalObjectStorePlugin(
                        name="azure",
                        factory=AzureObjectStore,
                        settings=AzureSettings,
                        api_version="1.0",
                        help="Keeps WAL objects in an Azure container.",
                    )
                ]
        """
        raise NotImplementedError

    @staticmethod
    @hookspec
    def diskless_offset_assignments() -> list[OffsetAssignmentPlugin]:
        """Ways to give offsets to the batches of a commit, chosen with `offset_assignment=<name>`.

        Example::

            @hookimpl
            def diskless_offset_assignments() -> list[OffsetAssignmentPlugin]:
                return [
                    OffsetAssignmentPlugin(
                        name="aligned",
                        factory=AlignedAssignment,
                        settings=AlignedSettings,
                        api_version="1.0",
                        help="Starts every commit at a multiple of a configured number.",
                    )
                ]
        """
        raise NotImplementedError

    @staticmethod
    @hookspec
    def diskless_gateway_placements() -> list[GatewayPlacementPlugin]:
        """Ways to choose produce gateways, chosen with `gateway_placement=<name>`.

        Example::

            @hookimpl
            def diskless_gateway_placements() -> list[GatewayPlacementPlugin]:
                return [
                    GatewayPlacementPlugin(
                        name="dedicated",
                        factory=DedicatedPlacement,
                        settings=DedicatedSettings,
                        api_version="1.0",
                        help="Makes gateways of the brokers that are set aside for it.",
                    )
                ]
        """
        raise NotImplementedError

    @staticmethod
    @hookspec
    def diskless_orphan_detections() -> list[OrphanDetectionPlugin]:
        """Ways to find objects that nobody committed, chosen with `orphan_detection=<name>`.

        Example::

            @hookimpl
            def diskless_orphan_detections() -> list[OrphanDetectionPlugin]:
                return [
                    OrphanDetectionPlugin(
                        name="inventory",
                        factory=InventoryDetection,
                        settings=InventorySettings,
                        api_version="1.0",
                        help="Reads the bucket's daily inventory instead of listing it.",
                    )
                ]
        """
        raise NotImplementedError

    @staticmethod
    @hookspec
    def diskless_remote_storages() -> list[RemoteStoragePlugin]:
        """Storages of segments, chosen with `remote_storage=<name>`.

        Example::

            @hookimpl
            def diskless_remote_storages() -> list[RemoteStoragePlugin]:
                return [
                    RemoteStoragePlugin(
                        name="tape",
                        factory=TapeStorage,
                        settings=TapeSettings,
                        api_version="1.0",
                        help="Keeps segments on tape.",
                    )
                ]
        """
        raise NotImplementedError

    @staticmethod
    @hookspec
    def diskless_remote_log_metadatas() -> list[RemoteLogMetadataPlugin]:
        """Keepers of the metadata of segments, chosen with `remote_log_metadata=<name>`.

        Example::

            @hookimpl
            def diskless_remote_log_metadatas() -> list[RemoteLogMetadataPlugin]:
                return [
                    RemoteLogMetadataPlugin(
                        name="postgres",
                        factory=PostgresMetadata,
                        settings=PostgresSettings,
                        api_version="1.0",
                        help="Keeps the metadata of segments in PostgreSQL.",
                    )
                ]
        """
        raise NotImplementedError

    @staticmethod
    @hookspec
    def diskless_segment_compactions() -> list[SegmentCompactionPlugin]:
        """Engines that make segments of WAL objects, chosen with `segment_compaction=<name>`.

        Example::

            @hookimpl
            def diskless_segment_compactions() -> list[SegmentCompactionPlugin]:
                return [
                    SegmentCompactionPlugin(
                        name="ray",
                        factory=RayCompaction,
                        settings=RaySettings,
                        api_version="1.0",
                        help="Compacts on a Ray cluster.",
                    )
                ]
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Noun(Generic[InterfaceT]):
    """One kind of backend.

    Attributes:
        name: the noun, also the property that selects a backend and the first part of its entry points' names.
        hook: the function that a plugin implements.
        descriptor: class of what the hook's list holds.
        interface: the abstract class that a factory's result must be an instance of.
        help: one line for lists and generated documentation.
        default: name of the backend that is used when none is configured.
    """

    name: str
    hook: str
    descriptor: type[Descriptor[InterfaceT]]
    interface: type[Any]
    help: str
    default: str


COORDINATOR_LOG = Noun(
    name="coordinator_log",
    hook="diskless_coordinator_logs",
    descriptor=CoordinatorLogPlugin,
    interface=CoordinatorLog,
    help="The replicated metadata log, source of truth of every coordinator shard.",
    default="local",
)
COORDINATOR_STORE = Noun(
    name="coordinator_store",
    hook="diskless_coordinator_stores",
    descriptor=CoordinatorStorePlugin,
    interface=CoordinatorStore,
    help="The local state that a shard materialises from its log; can be dropped at any time.",
    default="sqlite",
)
WAL_OBJECT_STORE = Noun(
    name="wal_object_store",
    hook="diskless_wal_object_stores",
    descriptor=WalObjectStorePlugin,
    interface=WalObjectStore,
    help="Where WAL objects live: put, ranged get, list and delete.",
    default="fsspec",
)
OFFSET_ASSIGNMENT = Noun(
    name="offset_assignment",
    hook="diskless_offset_assignments",
    descriptor=OffsetAssignmentPlugin,
    interface=OffsetAssignment,
    help="Which offsets the batches of a commit get.",
    default="sequential",
)
GATEWAY_PLACEMENT = Noun(
    name="gateway_placement",
    hook="diskless_gateway_placements",
    descriptor=GatewayPlacementPlugin,
    interface=GatewayPlacement,
    help="Which brokers are the produce gateways of a coordinator in each rack; for clusters of several brokers.",
    default="kip1164",
)
ORPHAN_DETECTION = Noun(
    name="orphan_detection",
    hook="diskless_orphan_detections",
    descriptor=OrphanDetectionPlugin,
    interface=OrphanDetection,
    help="Which objects may be orphans: uploaded and never committed.",
    default="listing",
)
REMOTE_STORAGE = Noun(
    name="remote_storage",
    hook="diskless_remote_storages",
    descriptor=RemoteStoragePlugin,
    interface=RemoteStorage,
    help="Where segments are kept: copy, fetch, delete (KIP-405).",
    default="fsspec",
)
REMOTE_LOG_METADATA = Noun(
    name="remote_log_metadata",
    hook="diskless_remote_log_metadatas",
    descriptor=RemoteLogMetadataPlugin,
    interface=RemoteLogMetadata,
    help="Which segments there are, and in what state (KIP-405).",
    default="coordinator",
)
SEGMENT_COMPACTION = Noun(
    name="segment_compaction",
    hook="diskless_segment_compactions",
    descriptor=SegmentCompactionPlugin,
    interface=SegmentCompaction,
    help="The engine that turns batches in WAL objects into segments.",
    default="inline",
)

NOUNS: Mapping[str, Noun[Any]] = {
    noun.name: noun
    for noun in (
        COORDINATOR_LOG,
        COORDINATOR_STORE,
        WAL_OBJECT_STORE,
        OFFSET_ASSIGNMENT,
        GATEWAY_PLACEMENT,
        ORPHAN_DETECTION,
        REMOTE_STORAGE,
        REMOTE_LOG_METADATA,
        SEGMENT_COMPACTION,
    )
}
"""All nouns, in the order in which lists and documentation show them."""

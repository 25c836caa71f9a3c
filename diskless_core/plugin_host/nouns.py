"""The one table of nouns. A new noun is one more entry, beside the module of its interface.

Everything else goes by the table: properties and their defaults, hooks, loading, checks, guards, lists, and the pages
and sections that `make docs` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from diskless_core.plugin import (
    coordinator_log,
    coordinator_store,
    gateway_placement,
    offset_assignment,
    orphan_detection,
    remote_log_metadata,
    remote_storage,
    segment_compaction,
    wal_object_store,
)
from diskless_core.plugin.descriptor import Descriptor

InterfaceT = TypeVar("InterfaceT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Noun(Generic[InterfaceT]):
    """One kind of backend.

    Attributes:
        descriptor: class of what the hook's list holds.
        interface: the abstract class that a factory's result must be an instance of.
        extensions: abstract classes with more methods, of which a backend may be an instance too.
        spec: specification of the hook that a plugin implements.
        error: what the interface's methods raise, where the core handles that: a guard lets nothing else out. None
            where the core takes whatever is raised.
        expected_s: a call that takes longer counts as slow and is logged, in seconds; None where there is no such
            limit. It ends no call.
        help: one line for lists and generated documentation.
        default: name of the backend that is used when none is configured.
    """

    descriptor: type[Descriptor[InterfaceT]]
    interface: type[Any]
    extensions: Sequence[type[Any]] = ()
    spec: Callable[[], list[Any]]
    error: type[Exception] | None = None
    expected_s: float | None = None
    help: str
    default: str

    @property
    def name(self) -> str:
        """The noun, also the property that selects a backend and the first part of its entry points' names."""
        return self.descriptor.noun

    def interface_of(self, implementation: type[Any]) -> type[Any]:
        """What a class implements: an extension of the interface, or the interface."""
        return next((one for one in self.extensions if issubclass(implementation, one)), self.interface)

    @property
    def hook(self) -> str:
        """Name of the function that a plugin implements."""
        return self.spec.__name__


_entered: dict[str, Noun[Any]] = {}

NOUNS: Mapping[str, Noun[Any]] = _entered
"""All nouns, in the order in which lists and documentation show them."""


def _enter(noun: Noun[InterfaceT]) -> Noun[InterfaceT]:
    _entered[noun.name] = noun
    return noun


COORDINATOR_LOG = _enter(
    Noun(
        descriptor=coordinator_log.CoordinatorLogPlugin,
        interface=coordinator_log.CoordinatorLog,
        spec=coordinator_log.diskless_coordinator_logs,
        error=coordinator_log.CoordinatorLogError,
        expected_s=10.0,
        help="The replicated metadata log, source of truth of every coordinator shard.",
        default="local",
    )
)
COORDINATOR_STORE = _enter(
    Noun(
        descriptor=coordinator_store.CoordinatorStorePlugin,
        interface=coordinator_store.CoordinatorStore,
        spec=coordinator_store.diskless_coordinator_stores,
        error=coordinator_store.CoordinatorStoreError,
        expected_s=5.0,
        help="The local state that a shard materialises from its log; can be dropped at any time.",
        default="sqlite",
    )
)
WAL_OBJECT_STORE = _enter(
    Noun(
        descriptor=wal_object_store.WalObjectStorePlugin,
        interface=wal_object_store.WalObjectStore,
        extensions=(wal_object_store.ConditionalObjectStore,),
        spec=wal_object_store.diskless_wal_object_stores,
        error=wal_object_store.WalObjectStoreError,
        expected_s=30.0,
        help="Where WAL objects live: put, ranged get, list and delete.",
        default="fsspec",
    )
)
OFFSET_ASSIGNMENT = _enter(
    Noun(
        descriptor=offset_assignment.OffsetAssignmentPlugin,
        interface=offset_assignment.OffsetAssignment,
        spec=offset_assignment.diskless_offset_assignments,
        expected_s=0.1,
        help="Which offsets the batches of a commit get.",
        default="sequential",
    )
)
GATEWAY_PLACEMENT = _enter(
    Noun(
        descriptor=gateway_placement.GatewayPlacementPlugin,
        interface=gateway_placement.GatewayPlacement,
        spec=gateway_placement.diskless_gateway_placements,
        expected_s=0.1,
        help="Which brokers are the produce gateways of a coordinator in each rack, to which clients are led.",
        default="kip1164",
    )
)
ORPHAN_DETECTION = _enter(
    Noun(
        descriptor=orphan_detection.OrphanDetectionPlugin,
        interface=orphan_detection.OrphanDetection,
        spec=orphan_detection.diskless_orphan_detections,
        help="Which objects may be orphans: uploaded and never committed.",
        default="listing",
    )
)
REMOTE_STORAGE = _enter(
    Noun(
        descriptor=remote_storage.RemoteStoragePlugin,
        interface=remote_storage.RemoteStorage,
        spec=remote_storage.diskless_remote_storages,
        error=remote_storage.RemoteStorageError,
        expected_s=300.0,
        help="Where segments are kept: copy, fetch, delete (KIP-405).",
        default="fsspec",
    )
)
REMOTE_LOG_METADATA = _enter(
    Noun(
        descriptor=remote_log_metadata.RemoteLogMetadataPlugin,
        interface=remote_log_metadata.RemoteLogMetadata,
        spec=remote_log_metadata.diskless_remote_log_metadatas,
        error=remote_log_metadata.RemoteLogMetadataError,
        expected_s=30.0,
        help="Which segments there are, and in what state (KIP-405).",
        default="coordinator",
    )
)
SEGMENT_COMPACTION = _enter(
    Noun(
        descriptor=segment_compaction.SegmentCompactionPlugin,
        interface=segment_compaction.SegmentCompaction,
        spec=segment_compaction.diskless_segment_compactions,
        help="The engine that turns batches in WAL objects into segments.",
        default="inline",
    )
)


def backend_errors() -> tuple[type[Exception], ...]:
    """What the backends of all nouns raise that the core handles: an operator can do something about it."""
    return tuple(noun.error for noun in NOUNS.values() if noun.error is not None)

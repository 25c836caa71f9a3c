"""Hook noun `orphan_detection`: which objects may be orphans, uploaded and never committed (KIP-1164, "Orphan files").

A detector names candidates, nothing more. The core says how old a candidate has to be, lets all coordinators refuse
what comes too late, asks them all for each candidate, and deletes. A detector that is wrong loses no data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.hookspecs import hookspec
from diskless_core.plugin.wal_object_store import ObjectInfo, WalObjectStore
from diskless_core.wal.format import is_object_key, is_older

ListObjects = Callable[[str], AsyncIterator[Sequence[ObjectInfo]]]
"""Lists the objects whose key begins with the argument; contract and errors as `WalObjectStore.list`."""


class OrphanDetectionError(Exception):
    """The search cannot be finished. The scan ends, and is done again when the next one is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanSearch:
    """What a detector is given for one search.

    Attributes:
        prefix: what the keys of all WAL objects of the cluster begin with, '/' at its end.
        threshold_ms: only objects created before, by their keys, are looked for; in milliseconds since the epoch.
            No coordinator has live batches in an object that is older than this by more than the grace period, so
            what is looked for and is no orphan is one grace period's worth of objects.
        list_objects: lists the WAL object store, whatever plugin that is, and counts what it lists.
        objects: makes a WAL object store that is not started, with every call another, also in other processes: it can
            be pickled where the store's factory can. For reading only. It holds the store's settings, secrets included.
        snapshot_prefix: what the keys of the coordinators' snapshots in that store begin with, without the '/' after
            it; see `diskless_core.snapshot`.
        note_listed: tells that so many objects have been looked at by other means than `list_objects`.
    """

    prefix: str
    threshold_ms: int
    list_objects: ListObjects
    objects: Callable[[], WalObjectStore] = field(repr=False)
    snapshot_prefix: str
    note_listed: Callable[[int], None]

    def is_candidate(self, key: str) -> bool:
        """Whether an object of this key is looked for, should nobody have committed it.

        Keys that no broker gives to its WAL objects never are: what somebody else has put there stays.
        """
        return is_object_key(self.prefix.removesuffix("/"), key) and is_older(key, self.threshold_ms)


class OrphanDetection(ABC):
    """Finds objects that may be orphans. It runs on the broker's event loop and must not block it."""

    @abstractmethod
    def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
        """Keys of objects in pages of any size and in any order, as soon as they are known.

        Every object for which `search.is_candidate` holds and that no coordinator ever knew is among them, if it was
        there before the call. Others may be, committed ones above all: the core passes over what is no candidate and
        asks the coordinators for the rest. While this goes on, the core deletes what was yielded before. It may give up
        the iteration at any time, and begin another one, on this node or elsewhere, whenever it wants.

        A detector that goes by a list which something else makes of the store, an inventory, finds what was there when
        that was made; a later search finds the rest. It says how old the list is, and refuses one that is older than
        its settings allow. It yields nothing that is only in the list: the core would count it as an orphan.

        Raises:
            WalObjectStoreError: the store failed to list.
            OrphanDetectionError: something else failed. To end early without an error would be to hide orphans.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanDetectionPlugin(Descriptor[OrphanDetection]):
    """Descriptor that `diskless_orphan_detections` yields."""

    noun = "orphan_detection"


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

"""Hook noun `orphan_detection`: which objects may be orphans, uploaded and never committed (KIP-1164, "Orphan files").

A detector names candidates, nothing more. The core says how old a candidate has to be, lets all coordinators refuse
what comes too late, asks them all for each candidate, and deletes. A detector that is wrong loses no data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.wal_object_store import ObjectInfo
from diskless_core.wal.format import is_older

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
        list_objects: lists the WAL object store, whatever plugin that is. Detectors cannot write to it, nor delete.
    """

    prefix: str
    threshold_ms: int
    list_objects: ListObjects

    def is_candidate(self, key: str) -> bool:
        """Whether an object of this key is looked for, should nobody have committed it."""
        return key.startswith(self.prefix) and is_older(key, self.threshold_ms)


class OrphanDetection(ABC):
    """Finds objects that may be orphans. It runs on the broker's event loop and must not block it."""

    @abstractmethod
    def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
        """Keys of objects in pages of any size and in any order, as soon as they are known.

        Every object for which `search.is_candidate` holds and that no coordinator has committed is among them, if it
        was there before the call. Others may be, committed ones above all: the core passes over what is no candidate
        and asks the coordinators for the rest. While this goes on, the core deletes what was yielded before. It may
        give up the iteration at any time, and begin another one, on this node or elsewhere, whenever it wants.

        Raises:
            WalObjectStoreError: the store failed to list.
            OrphanDetectionError: something else failed. To end early without an error would be to hide orphans.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanDetectionPlugin(Descriptor[OrphanDetection]):
    """Descriptor that `diskless_orphan_detections` yields."""

    noun = "orphan_detection"

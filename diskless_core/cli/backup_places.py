"""The places between which a backup is made, and which of them would harm one of the two clusters.

Two places are compared by what lies there: the same bucket can be configured in many ways.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from diskless_core.clock import Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore

_MARK = b"A command of Diskless looks for this object elsewhere. It can be deleted."


class BackupError(Exception):
    """There is no backup, or none that can be used; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a cluster's configuration says that its objects are.

    Attributes:
        segments: the same for `remote_storage`; None where that cannot be copied.
        shares_segments: whether `remote_storage` is a place that other clusters could have too, and no folder in a
            broker's `log.dirs`.
        records_segments: whether the coordinators know which segments there are: `remote_log_metadata=coordinator`.
    """

    config: BrokerConfig
    objects: WalObjectStore
    segments: WalObjectStore | None = None
    shares_segments: bool = False
    records_segments: bool = True

    def stores(self) -> dict[str, WalObjectStore]:
        """What the place consists of, by the names of the settings."""
        both = {"wal_object_store": self.objects, "remote_storage": self.segments}
        return {name: store for name, store in both.items() if store is not None}


def backups_prefix(config: BrokerConfig) -> str:
    """What the key of a backup's description begins with, without the '/' after it."""
    return f"{config.diskless_wal_object_prefix}-backup"


async def require_other_place(source: Place, target: Place, clock: Clock) -> None:
    """Refuse a target that is, or has a part that is, where the source is.

    An object is put into the target for a moment, and looked for in the source.

    Raises:
        BackupError: it was found there.
        WalObjectStoreError: a store failed.
    """
    key = f"{backups_prefix(target.config)}/place-{clock.new_uuid()}"
    for name, store in target.stores().items():
        try:
            await store.put(key, _MARK)
            for other_name, other in source.stores().items():
                if await _has(other, key):
                    raise BackupError(
                        f"the {name} of the configuration to restore with is the place of the cluster's own "
                        f"{other_name}: a restored cluster would delete what the original needs. Nothing was copied. "
                        f"Set {name} there to another bucket, or to another folder of it"
                    )
        finally:
            await store.delete([key])


def why_segments_are_lost(source: Place, target: Place) -> str | None:
    """Why segments that the cluster has must not be left behind, or would be; None: they can be.

    Segments that are in brokers' own folders are not copied, and nobody else can harm them.
    """
    if not (source.records_segments and target.records_segments):
        return (
            "the cluster has segments, and where they are is to be found in its coordinators only with "
            "remote_log_metadata=coordinator. Set that in both configurations: a backup has nothing of another "
            "remote_log_metadata"
        )
    if target.shares_segments and (source.segments is None or target.segments is None):
        return (
            "the cluster has segments that cannot be copied, and the configuration to restore with has a "
            "remote_storage that others may use: a restored cluster would delete there what it takes for its own. Set "
            "remote_storage.fsspec.url in both configurations, or leave remote_storage out of the one to restore with"
        )
    return None


def segments_mark(config: BrokerConfig, mark: str) -> str:
    """The key of the object that tells the place of a backup's segments from all others."""
    return f"{backups_prefix(config)}/segments-{mark}"


async def mark_segments(target: Place, mark: str) -> None:
    """Put the object that `require_marked` finds.

    Raises:
        WalObjectStoreError: the store failed.
    """
    if target.segments is not None:
        await target.segments.put(segments_mark(target.config, mark), _MARK)


async def remove_marks(target: Place, marks: Collection[str]) -> None:
    """Remove those of backups that are given up. Errors as before."""
    if target.segments is not None and marks:
        await target.segments.delete([segments_mark(target.config, mark) for mark in marks])


async def require_marked(place: Place, mark: str | None) -> None:
    """Refuse to restore a backup that has segments, or knows of some, elsewhere than it has them.

    Args:
        mark: of the backup's segments; None where they were not copied.

    Raises:
        BackupError: the segments are not there, or the place may be another cluster's.
        WalObjectStoreError: it cannot be found out.
    """
    if not place.records_segments:
        raise BackupError("the backup knows of segments: set remote_log_metadata=coordinator to restore it")
    if mark is None:
        if place.shares_segments:
            raise BackupError(
                "the backup has no segments, only knows of some, and remote_storage is a place that others may use: a "
                "restored cluster would delete there what it takes for its own. Leave remote_storage out of the "
                "configuration, or make the backup again with remote_storage.fsspec.url in both configurations"
            )
        return
    if place.segments is None or not await _has(place.segments, segments_mark(place.config, mark)):
        raise BackupError(
            "remote_storage is not where the backup has its segments. If it is that of the original, a restored "
            "cluster would delete the original's segments. Set remote_storage to what it was for the backup"
        )


async def _has(store: WalObjectStore, key: str) -> bool:
    try:
        await store.get(key, 0, len(_MARK))
    except ObjectNotFoundError:
        return False
    return True

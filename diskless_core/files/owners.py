"""Whether an object may be deleted that several shards have batches in (KIP-1164, "WAL file management").

All shards live on this node, so each asks the others when the object has died in itself; nothing is handed over. A
shard on another node never consents, which keeps the object.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from diskless_core.coordinator.client import DisklessShard
from diskless_core.coordinator.state import DEAD_FILES, FILES, DeadFile
from diskless_core.plugin.coordinator_store import ShardStore
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore


class Consent(Enum):
    """What may be done with an object that is dead in one of its owners."""

    WAIT = auto()
    DELETE = auto()
    DELETED_ALREADY = auto()


class _Knowledge(Enum):
    """What another owner knows of the object. UNKNOWN: not committed there yet, or forgotten already."""

    LIVE = auto()
    DEAD = auto()
    UNKNOWN = auto()


class Owners:
    """The other owners of the objects of one shard."""

    def __init__(self, index: int, shards: Mapping[int, DisklessShard], objects: WalObjectStore) -> None:
        self._index = index
        self._shards = shards
        self._objects = objects

    async def consent(self, object_key: str, dead: DeadFile, delete_delay_ms: int, now_ms: int) -> Consent:
        """Ask all other owners; the object is dead, and its grace period over, in the shard that asks.

        Raises:
            CoordinatorStoreError, WalObjectStoreError: it cannot be said now.
        """
        others = [owner for owner in dead.owner_ids if owner != self._index]
        if not others:
            return Consent.DELETE
        if any(owner not in self._shards for owner in others):
            return Consent.WAIT
        died_before_ms = now_ms - delete_delay_ms
        known = {await _knowledge(self._shards[owner], object_key, died_before_ms) for owner in others}
        if _Knowledge.LIVE in known:
            return Consent.WAIT
        if _Knowledge.UNKNOWN not in known:
            return Consent.DELETE
        return Consent.WAIT if await self._exists(object_key) else Consent.DELETED_ALREADY

    async def _exists(self, object_key: str) -> bool:
        """An object is there before its first commit is sent: one that is missing was deleted with consent of all."""
        try:
            await self._objects.get(object_key, 0, 1)
        except ObjectNotFoundError:
            return False
        return True


async def _knowledge(shard: DisklessShard, object_key: str, died_before_ms: int) -> _Knowledge:
    def look(store: ShardStore) -> _Knowledge:
        row = store.get(DEAD_FILES.name, (object_key,))
        if row is not None:
            return _Knowledge.DEAD if DEAD_FILES.decode(row).dead_at <= died_before_ms else _Knowledge.LIVE
        return _Knowledge.LIVE if store.get(FILES.name, (object_key,)) is not None else _Knowledge.UNKNOWN

    return await shard.shard.with_store(look)

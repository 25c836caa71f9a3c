"""Whether an object may be deleted that several shards have batches in (KIP-1164, "WAL file management").

All shards live on this node, so each asks the others when the object has died in itself; nothing is handed over. A
shard on another node never consents, which keeps the object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from diskless_core.coordinator.client import DisklessShard
from diskless_core.coordinator.schema import DEAD_FILES, HORIZON, LIVE_FILES, THE_HORIZON, DeadFile
from diskless_core.plugin.coordinator_store import ShardStore
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore
from diskless_core.wal.format import is_older


class Consent(Enum):
    """What may be done with an object that is dead in one of its owners."""

    WAIT = auto()
    DELETE = auto()
    DELETED_ALREADY = auto()


class _Knowledge(Enum):
    """What another owner knows of the object. UNKNOWN: not committed there yet, or forgotten already.

    One that is unknown and older than the shard's horizon never will be committed there: it counts as DEAD.
    """

    LIVE = auto()
    DEAD = auto()
    UNKNOWN = auto()


class Owners:
    """The other owners of the objects of one shard."""

    def __init__(self, index: int, shards: Mapping[int, DisklessShard], objects: WalObjectStore) -> None:
        self._index = index
        self._shards = shards
        self._objects = objects

    async def consents(self, files: Mapping[str, DeadFile], delete_delay_ms: int, now_ms: int) -> Mapping[str, Consent]:
        """Ask all other owners of these objects, which are dead, their grace period over, in the shard that asks.

        Raises:
            CoordinatorStoreError, WalObjectStoreError: it cannot be said now.
        """
        known: dict[str, set[_Knowledge]] = {object_key: set() for object_key in files}
        for owner, object_keys in self._by_other_owner(files).items():
            found = await _knowledge(self._shards.get(owner), object_keys, now_ms - delete_delay_ms)
            for object_key, knowledge in found.items():
                known[object_key].add(knowledge)
        return {object_key: await self._consent(object_key, answers) for object_key, answers in known.items()}

    def _by_other_owner(self, files: Mapping[str, DeadFile]) -> dict[int, list[str]]:
        object_keys: dict[int, list[str]] = {}
        for object_key, dead in files.items():
            for owner in dead.owner_ids:
                if owner != self._index:
                    object_keys.setdefault(owner, []).append(object_key)
        return object_keys

    async def _consent(self, object_key: str, answers: set[_Knowledge]) -> Consent:
        if _Knowledge.LIVE in answers:
            return Consent.WAIT
        if _Knowledge.UNKNOWN not in answers:
            return Consent.DELETE
        return Consent.WAIT if await self._exists(object_key) else Consent.DELETED_ALREADY

    async def _exists(self, object_key: str) -> bool:
        """An object is there before its first commit is sent: one that is missing was deleted with consent of all."""
        try:
            await self._objects.get(object_key, 0, 1)
        except ObjectNotFoundError:
            return False
        return True


async def _knowledge(
    shard: DisklessShard | None, object_keys: Sequence[str], died_before_ms: int
) -> Mapping[str, _Knowledge]:
    if shard is None:
        return dict.fromkeys(object_keys, _Knowledge.LIVE)

    def look(store: ShardStore) -> dict[str, _Knowledge]:
        row = store.get(HORIZON.name, THE_HORIZON)
        horizon_ms = HORIZON.decode(row) if row is not None else 0
        return {key: _stored_knowledge(store, key, died_before_ms, horizon_ms) for key in object_keys}

    return await shard.shard.with_store(look)


def _stored_knowledge(store: ShardStore, object_key: str, died_before_ms: int, horizon_ms: int) -> _Knowledge:
    row = store.get(DEAD_FILES.name, (object_key,))
    if row is not None:
        return _Knowledge.DEAD if DEAD_FILES.decode(row).dead_at <= died_before_ms else _Knowledge.LIVE
    if store.get(LIVE_FILES.name, (object_key,)) is not None:
        return _Knowledge.LIVE
    return _Knowledge.DEAD if is_older(object_key, horizon_ms) else _Knowledge.UNKNOWN

"""Snapshots of a node's shards in the object store, where every broker can fetch them (KIP-1164, "Snapshotting").

The manifest is put last and names every part, so a snapshot is whole or absent. One that was read back whole is what
allows the log to be pruned below it; older ones go then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Protocol

import structlog
from crc32c import crc32c

from diskless_core.clock import Clock
from diskless_core.coordinator import snapshot_format
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.shard_store import StoreThread
from diskless_core.coordinator.snapshot_format import Manifest, Part, SnapshotError
from diskless_core.plugin.coordinator_store import ShardStore, TableSpec
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError

MANIFEST_SUFFIX = ".checkpoint"
_MANIFEST_LIMIT_BYTES = 64 << 20

_log = structlog.get_logger(__name__)


class SnapshotSource(Protocol):
    """Where a shard gets its state from when its log no longer begins at the beginning."""

    async def restore(self, shard: ShardId, tables: Sequence[TableSpec], store: StoreThread) -> int:
        """Fill the store from the newest snapshot, and return the log offset that it reaches.

        Raises:
            CoordinatorError: there is none that can be used.
        """
        ...


class NoSnapshots:
    """For shards whose log is never pruned."""

    async def restore(self, shard: ShardId, tables: Sequence[TableSpec], store: StoreThread) -> int:
        del tables, store
        raise CoordinatorError(f"the log of {shard} was pruned, and there is no place for snapshots")


class Snapshots:
    """Takes, lists, restores and removes snapshots.

    Args:
        objects: where they are put.
        prefix: what their keys begin with; one cluster has it for itself.
    """

    def __init__(self, objects: WalObjectStore, prefix: str, clock: Clock) -> None:
        self._objects = objects
        self._prefix = prefix
        self._clock = clock

    async def take(self, shard: ShardId, tables: Sequence[TableSpec], store: StoreThread) -> Manifest:
        """Put a snapshot of the store as it is now, and read it back.

        Writes to the store go on meanwhile. What a failed attempt leaves is removed with the next one's predecessors.

        Raises:
            CoordinatorStoreError, WalObjectStoreError: it could not be read or written.
            SnapshotError: what was read back is not what was written.
        """
        with ExitStack() as stack:
            view = stack.enter_context(await store.read(lambda opened: opened.snapshot()))
            offset = await asyncio.to_thread(view.applied_offset)
            parts: list[Part] = []
            encoded = snapshot_format.encode_parts(view, tables)
            while (data := await asyncio.to_thread(next, encoded, None)) is not None:
                key = f"{self._folder(shard)}{offset:020d}-{self._clock.new_uuid()}/{len(parts):05d}"
                await self._objects.put(key, data)
                parts.append(Part(key=key, size=len(data), crc=crc32c(data)))
        manifest = Manifest(
            applied_offset=offset,
            taken_at=self._clock.now_ms(),
            tables=snapshot_format.declared(tables),
            parts=parts,
        )
        key = self._manifest_key(shard, offset)
        await self._objects.put(key, snapshot_format.encode_manifest(manifest))
        try:
            await self._verify(key, manifest)
        except SnapshotError:
            await self._objects.delete([key])
            raise
        return manifest

    async def newest(self, shard: ShardId) -> Manifest | None:
        """The manifest of the newest snapshot of a shard.

        Raises:
            WalObjectStoreError: the object store cannot be read.
            SnapshotError: the manifest is damaged.
        """
        manifests = [key for key in await self._keys(shard) if key.endswith(MANIFEST_SUFFIX)]
        return await self._manifest(max(manifests)) if manifests else None

    async def remove_all_but(self, shard: ShardId, kept: Manifest) -> None:
        """Remove all other objects below the shard's prefix, manifests first.

        Raises:
            WalObjectStoreError: some are left.
        """
        needed = {self._manifest_key(shard, kept.applied_offset), *(part.key for part in kept.parts)}
        others = [key for key in await self._keys(shard) if key not in needed]
        others.sort(key=lambda key: not key.endswith(MANIFEST_SUFFIX))
        if others:
            await self._objects.delete(others)

    async def restore(self, shard: ShardId, tables: Sequence[TableSpec], store: StoreThread) -> int:
        """See `SnapshotSource.restore`. A store that was filled in part counts as empty."""
        try:
            manifest = await self.newest(shard)
            if manifest is None:
                raise CoordinatorError(f"the log of {shard} was pruned, and no snapshot is in {self._folder(shard)}")
            if dict(manifest.tables) != snapshot_format.declared(tables):
                raise CoordinatorError(f"the snapshot of {shard} has other tables than this version of Diskless")
            await store.read(lambda opened: opened.clear())
            for part in manifest.parts:
                data = await self._objects.get(part.key, 0, part.size)
                await store.read(partial(_load, part, bytes(data)))
        except (SnapshotError, WalObjectStoreError) as error:
            raise CoordinatorError(f"the snapshot of {shard} cannot be loaded: {error}") from error
        await store.read(lambda opened: opened.write({}, manifest.applied_offset))
        _log.info("a shard was restored from its snapshot", shard=str(shard), applied_offset=manifest.applied_offset)
        return manifest.applied_offset

    async def _verify(self, key: str, manifest: Manifest) -> None:
        if await self._manifest(key) != manifest:
            raise SnapshotError(f"{key} is not what was written")
        for part in manifest.parts:
            if not snapshot_format.is_intact(part, await self._objects.get(part.key, 0, part.size)):
                raise SnapshotError(f"{part.key} is not what was written")

    async def _manifest(self, key: str) -> Manifest:
        return snapshot_format.decode_manifest(await self._objects.get(key, 0, _MANIFEST_LIMIT_BYTES))

    async def _keys(self, shard: ShardId) -> list[str]:
        return [found.key async for page in self._objects.list(self._folder(shard)) for found in page]

    def _folder(self, shard: ShardId) -> str:
        return f"{self._prefix}/{shard}/"

    def _manifest_key(self, shard: ShardId, offset: int) -> str:
        return f"{self._folder(shard)}{offset:020d}{MANIFEST_SUFFIX}"


def _load(part: Part, data: bytes, store: ShardStore) -> None:
    for changes in snapshot_format.decode_part(part, data):
        store.write(changes, 0)

"""Finds the newest snapshots in the object store, and reads their parts.

A snapshot that is taken while another is read takes its place: its manifest and parts can vanish at any time. Whoever
finds a part missing or damaged goes on with the next one of `newest_first`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Protocol, TypeVar

import structlog

from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore
from diskless_core.shards import DISKLESS, parse_shard
from diskless_core.snapshot import format as snapshot_format
from diskless_core.snapshot.format import Manifest, Part, SnapshotError, SnapshotTooNewError

MANIFEST_SUFFIX = ".checkpoint"

UNUSABLE = (SnapshotError, ObjectNotFoundError)
"""Why a snapshot cannot be used: it is damaged, or a newer one took its place."""

_MANIFEST_LIMIT_BYTES = 64 << 20


class PartReader(Protocol):
    """Makes something of the parts of one snapshot."""

    def take(self, part: Part, data: bytes) -> None:
        """The next part. Called on any thread, one part after the other.

        Raises:
            SnapshotError: it is damaged.
        """
        ...


ReaderT = TypeVar("ReaderT", bound=PartReader)

_log = structlog.get_logger(__name__)


def prefix_beside(wal_object_prefix: str) -> str:
    """What the keys of a cluster's snapshots begin with: they stand beside its WAL objects."""
    return f"{wal_object_prefix}-snapshots"


def folder(prefix: str, shard: ShardId) -> str:
    """What the keys of a shard's snapshots begin with; `prefix` is that of all snapshots of a cluster."""
    return f"{prefix}/{shard}/"


async def newest_first(objects: WalObjectStore, prefix: str, shard: ShardId) -> AsyncGenerator[Manifest, None]:
    """The manifests of a shard's snapshots that are not damaged. Each is looked for when it is asked for.

    Raises:
        SnapshotTooNewError: one is of a later version of Diskless: those before it are out of date.
        WalObjectStoreError: the object store cannot be read.
    """
    passed_over: set[str] = set()
    while keys := {key for key in await keys_of(objects, prefix, shard) if key.endswith(MANIFEST_SUFFIX)} - passed_over:
        key = max(keys)
        passed_over.add(key)
        try:
            manifest = await read_manifest(objects, key)
        except SnapshotTooNewError:
            raise
        except UNUSABLE as error:
            _log.warning("a snapshot is passed over", key=key, error=str(error))
        else:
            yield manifest


async def newest(objects: WalObjectStore, prefix: str, shard: ShardId) -> Manifest | None:
    """The first one of `newest_first`; errors as there."""
    async with aclosing(newest_first(objects, prefix, shard)) as manifests:
        async for manifest in manifests:
            return manifest
    return None


async def manifests(objects: WalObjectStore, prefix: str) -> Mapping[ShardId, Manifest]:
    """The newest snapshot of each diskless shard that has one, in the order of their indexes.

    Raises:
        SnapshotError: one is of a level that this build cannot read.
        WalObjectStoreError: the object store cannot be read.
    """
    folders = {
        found.key[len(prefix) + 1 :].partition("/")[0]
        async for page in objects.list(f"{prefix}/{DISKLESS.topic}-")
        for found in page
    }
    found = {shard: await newest(objects, prefix, shard) for shard in sorted(map(parse_shard, folders))}
    present = {shard: manifest for shard, manifest in found.items() if manifest is not None}
    for manifest in present.values():
        snapshot_format.require_supported(manifest.level)
    return present


async def read_newest(
    objects: WalObjectStore, prefix: str, shard: ShardId, reader_of: Callable[[Manifest], ReaderT]
) -> ReaderT:
    """Read the newest snapshot of a shard that can be read. Memory holds one part, and what the reader keeps.

    Args:
        reader_of: makes a reader for the snapshot with this manifest; errors as `PartReader.take`.

    Raises:
        SnapshotError: there is none, or it is of a level that this build cannot read.
        WalObjectStoreError: the object store cannot be read.
    """
    problem: Exception | str = "there is none"
    async with aclosing(newest_first(objects, prefix, shard)) as candidates:
        async for manifest in candidates:
            try:
                snapshot_format.require_supported(manifest.level)
                reader = reader_of(manifest)
                for part in manifest.parts:
                    await asyncio.to_thread(reader.take, part, await read_part(objects, part))
            except SnapshotTooNewError:
                raise
            except UNUSABLE as error:
                problem = error
            else:
                return reader
    raise SnapshotError(f"no snapshot of {shard} can be read: {problem}")


async def read_manifest(objects: WalObjectStore, key: str) -> Manifest:
    """Read the manifest of that key.

    Raises:
        SnapshotError: it is damaged.
        WalObjectStoreError: it cannot be read.
    """
    return snapshot_format.decode_manifest(await objects.get(key, 0, _MANIFEST_LIMIT_BYTES))


async def read_part(objects: WalObjectStore, part: Part) -> bytes:
    """All bytes of a part, some megabytes, unchecked: `snapshot_format.decode_part` does that.

    Raises:
        WalObjectStoreError: it cannot be read.
    """
    return bytes(await objects.get(part.key, 0, part.size))


async def keys_of(objects: WalObjectStore, prefix: str, shard: ShardId) -> list[str]:
    """The keys of everything that belongs to a shard's snapshots; errors as `newest_first`."""
    return [found.key async for page in objects.list(folder(prefix, shard)) for found in page]

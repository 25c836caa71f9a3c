"""Finds the newest snapshots in the object store, and reads their parts.

The keys of a snapshot say which log it is of and which attempt put it:

    <prefix>/<shard>/<log id>[-after-<id of the log before it>]/<offset>-<attempt>/<part>
    <prefix>/<shard>/<log id>[-after-<id of the log before it>]/<offset>-<attempt>.checkpoint

Each log has a folder, so a process that removes the snapshots of one log cannot hit those of another. A newer snapshot
takes the place of an older one: the manifest and the parts of the older one can vanish while they are read. A reader
that finds a part missing or damaged goes on with the next one of `newest_first`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import NamedTuple, Protocol, TypeVar

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
_AFTER = "-after-"
_UUID_LENGTH = 36


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


class FolderName(NamedTuple):
    """Which log a folder of snapshots belongs to.

    Attributes:
        moved_from: the id of the log that it took the place of; None where it was the first.
    """

    log_id: uuid.UUID
    moved_from: uuid.UUID | None


def log_folder(prefix: str, shard: ShardId, name: FolderName) -> str:
    """What the keys of the snapshots of one log of a shard begin with."""
    after = f"{_AFTER}{name.moved_from}" if name.moved_from is not None else ""
    return f"{folder(prefix, shard)}{name.log_id}{after}/"


def stem(prefix: str, shard: ShardId, name: FolderName, applied_offset: int, attempt: uuid.UUID) -> str:
    """What the keys of one snapshot begin with: within a log the greatest one is the newest."""
    return f"{log_folder(prefix, shard, name)}{applied_offset:020d}-{attempt}"


def folder_name_of(prefix: str, shard: ShardId, key: str) -> FolderName | None:
    """Which log a key in a shard's folder belongs to; None where it is no snapshot's."""
    found = key.removeprefix(folder(prefix, shard)).partition("/")[0]
    log_id, after, moved_from = found[:_UUID_LENGTH], found[_UUID_LENGTH:][: len(_AFTER)], found.partition(_AFTER)[2]
    try:
        return FolderName(uuid.UUID(log_id), uuid.UUID(moved_from) if after else None)
    except ValueError:
        return None


async def newest_first(
    objects: WalObjectStore, prefix: str, shard: ShardId, log_id: uuid.UUID | None = None
) -> AsyncGenerator[Manifest, None]:
    """The manifests of a shard's snapshots that are not damaged. Each is looked for when it is asked for.

    Args:
        log_id: the log whose snapshots are wanted. None: those of all logs that the shard was on or was to go to. Of
            two logs that one comes first whose newest snapshot was taken later: offsets of two logs say nothing of it.

    Raises:
        SnapshotTooNewError: one is of a later version of Diskless: those before it are out of date.
        WalObjectStoreError: the object store cannot be read.
    """
    passed_over: set[str] = set()
    read: dict[str, Manifest] = {}
    while keys := await _manifest_keys(objects, prefix, shard, log_id) - passed_over:
        heads = {key.rpartition("/")[0]: key for key in sorted(keys)}  # of each log the newest
        for key in set(heads.values()) - read.keys():
            try:
                read[key] = await read_manifest(objects, key)
            except SnapshotTooNewError:
                raise
            except UNUSABLE as error:
                passed_over.add(key)
                _log.warning("a snapshot is passed over", key=key, error=str(error))
        if passed_over.isdisjoint(heads.values()):
            newest_key = max(heads.values(), key=lambda key: (read[key].taken_at, key))
            passed_over.add(newest_key)
            yield read[newest_key]


async def _manifest_keys(objects: WalObjectStore, prefix: str, shard: ShardId, log_id: uuid.UUID | None) -> set[str]:
    return {key for key in await keys_of(objects, prefix, shard, log_id) if key.endswith(MANIFEST_SUFFIX)}


async def newest(
    objects: WalObjectStore, prefix: str, shard: ShardId, log_id: uuid.UUID | None = None
) -> Manifest | None:
    """The first one of `newest_first`; arguments and errors as there."""
    async with aclosing(newest_first(objects, prefix, shard, log_id)) as manifests:
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


async def keys_of(objects: WalObjectStore, prefix: str, shard: ShardId, log_id: uuid.UUID | None = None) -> list[str]:
    """The keys of everything that belongs to a shard's snapshots, or to those of one log; errors as `newest_first`."""
    below = folder(prefix, shard) + (str(log_id) if log_id is not None else "")
    return [found.key async for page in objects.list(below) for found in page]

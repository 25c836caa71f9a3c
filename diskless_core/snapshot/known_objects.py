"""Which WAL objects the coordinators knew when their newest snapshots were taken.

An object that is in here was committed, refused, or handed over. One that is not may have been committed since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing

from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStore
from diskless_core.snapshot import format as snapshot_format
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import Part, SnapshotError

FILE_TABLES = ("files", "live_files", "dead_files", "received_files", "gone_files")
"""The tables of a diskless shard with a row for each object."""

_KEY = ("object_key",)


def known_objects_of_part(tables: Mapping[str, Sequence[str]], part: Part, data: ObjectData) -> Iterator[Sequence[str]]:
    """The keys of the objects in one part of a snapshot, a thousand or so at a time. Pure.

    Args:
        tables: those of the part's manifest.

    Raises:
        SnapshotError: the data are not the part's, or the snapshot is of another version.
    """
    columns = {table: snapshot_format.positions(tables, table, _KEY)[0] for table in FILE_TABLES}
    for table, rows in snapshot_format.decode_part(part, data, FILE_TABLES):
        column = columns[table]
        yield [str(row[column]) for row in rows]


async def known_objects(objects: WalObjectStore, prefix: str) -> AsyncIterator[Sequence[str]]:
    """The keys of the objects in the newest snapshot of each diskless shard, in pages. Some may come more than once.

    Shards without a snapshot add nothing. Memory holds one part.

    Raises:
        SnapshotError: a shard's snapshots are all damaged, or of another version.
        WalObjectStoreError: the object store cannot be read.
    """
    for shard in await reading.shards(objects, prefix):
        async for keys in _known_objects_of_shard(objects, prefix, shard):
            yield keys


async def _known_objects_of_shard(objects: WalObjectStore, prefix: str, shard: ShardId) -> AsyncIterator[Sequence[str]]:
    problem: Exception | None = None
    async with aclosing(reading.newest_first(objects, prefix, shard)) as manifests:
        async for manifest in manifests:
            try:
                for part in manifest.parts:
                    data = await reading.read_part(objects, part)
                    for keys in known_objects_of_part(manifest.tables, part, data):
                        yield keys
            except reading.UNUSABLE as error:
                problem = error
            else:
                return
    if problem is not None:
        raise SnapshotError(f"no snapshot of {shard} can be read: {problem}") from problem

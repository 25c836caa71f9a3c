"""Snapshots of the shards of a small cluster in an object store, for whoever reads them there."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from crc32c import crc32c

from diskless_core.cluster.state_machine import ClusterMachine
from diskless_core.cluster.tables import PLACEMENTS, TOPICS, ClusterTopic
from diskless_core.plugin.coordinator_store import TableChanges
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.shards import CLUSTER_SHARD
from diskless_core.snapshot import format as snapshot_format
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import Manifest, Part
from diskless_core.snapshot.reading import FolderName
from diskless_core.testing.fakes.store import MemoryCoordinatorStore


async def put_cluster_snapshot(
    objects: WalObjectStore,
    prefix: str,
    topics: Mapping[tuple[uuid.UUID, str], Sequence[int]],
    *,
    taken_at_ms: int,
    applied_offset: int = 1,
) -> None:
    """Put a snapshot of the cluster shard with these topics, of which each partition is in the shard of that index."""
    tables = [table.spec for table in ClusterMachine().tables]
    store = MemoryCoordinatorStore().open(CLUSTER_SHARD, tables)
    placed = [PLACEMENTS.row((topic_id.bytes,), tuple(shards)) for (topic_id, _), shards in topics.items()]
    rows = [
        TOPICS.row((topic_id.bytes,), ClusterTopic(name, len(shards))) for (topic_id, name), shards in topics.items()
    ]
    changes = {
        TOPICS.name: TableChanges(put=rows),
        PLACEMENTS.name: TableChanges(put=placed),
    }
    store.write(changes, applied_offset)
    log_id, attempt = uuid.UUID(int=1), uuid.UUID(int=applied_offset)
    stem = reading.stem(prefix, CLUSTER_SHARD, FolderName(log_id, None), applied_offset, attempt)
    parts = []
    for number, data in enumerate(snapshot_format.encode_parts(store, tables)):
        key = f"{stem}/{number:05d}"
        await objects.put(key, data)
        parts.append(Part(key=key, size=len(data), crc=crc32c(data)))
    manifest = Manifest(
        applied_offset=applied_offset,
        taken_at=taken_at_ms,
        tables=snapshot_format.declared(tables),
        parts=parts,
        log_id=log_id,
    )
    await objects.put(f"{stem}{reading.MANIFEST_SUFFIX}", snapshot_format.encode_manifest(manifest))

"""Where the records of partitions lay when the newest snapshots of their coordinators were taken.

For whoever reads a bucket without asking a broker. The cluster's snapshot says which topics there are, those of the
Diskless coordinators where their records lie. Each is of a moment of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from diskless_core.layout.partition import PartitionLayout
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.protocol.names import partition_name
from diskless_core.remote_log import records, tiered
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.shards import CLUSTER_SHARD, DISKLESS
from diskless_core.snapshot import format as snapshot_format
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import Manifest, Part, SnapshotError
from diskless_core.snapshot.placements_layout import unpack
from diskless_core.wal.runs import Run

CLOCK_SKEW_MS = 60_000
"""A snapshot counts as younger than another one, of another broker perhaps, when it is so much younger by its time."""

_Key = tuple[bytes, int]
"""A partition: the topic's id and the index."""

_PARTITION = ("topic_id", "partition")
_RUN_COLUMNS = tuple(name for name in Run._fields if name != "bytes_before")
_CLUSTER_COLUMNS = {"topics": ("topic_id", "name"), "placements": ("topic_id", "shards")}
_DISKLESS_COLUMNS = {
    "partitions": (*_PARTITION, "log_start_offset", "local_start_offset", "next_offset"),
    "batches": (*_PARTITION, *_RUN_COLUMNS),
    "tiered": (*_PARTITION, "segments"),
    "remote_segments": (*_PARTITION, "segment_id", "event"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSnapshot:
    """Layouts by topic and partition. The oldest of the snapshots was taken `taken_at_ms` after the epoch."""

    layouts: Sequence[PartitionLayout]
    taken_at_ms: int


async def read_layouts(objects: WalObjectStore, prefix: str, wants: Callable[[str], bool]) -> LayoutSnapshot:
    """The layouts of topics by name, from the newest snapshots that can be read.

    Memory holds the layouts, and one part of a snapshot.

    Args:
        prefix: what the keys of all snapshots of the cluster begin with, without the '/' after it.

    Raises:
        SnapshotError: a shard has no snapshot that can be read, or only one that is too old for a topic, or the
            metadata of segments is kept elsewhere.
        WalObjectStoreError: the object store cannot be read.
    """
    cluster = await reading.read_newest(objects, prefix, CLUSTER_SHARD, _ClusterReader)
    names = {topic_id: name for topic_id, name in cluster.topics.items() if wants(name)}
    partitions: dict[ShardId, set[_Key]] = defaultdict(set)
    for key, index in cluster.placements.items():
        if key[0] in names:
            partitions[DISKLESS.shard(index)].add(key)
    taken_at_ms = cluster.manifest.taken_at
    layouts: list[PartitionLayout] = []
    gone: set[bytes] = set()
    for shard, keys in sorted(partitions.items()):
        reader = await reading.read_newest(objects, prefix, shard, partial(_DisklessReader, keys=keys))
        taken_at_ms = min(taken_at_ms, reader.manifest.taken_at)
        is_younger = reader.manifest.taken_at > cluster.manifest.taken_at + CLOCK_SKEW_MS
        present = {topic_id for topic_id, _ in reader.heads}
        for topic_id, partition in keys - reader.heads.keys():
            # A shard forgets the partitions of a topic all at once, but gets them one by one.
            if topic_id in present or not is_younger:
                raise SnapshotError(
                    f"{partition_name(names[topic_id], partition)} is not in the newest snapshot of {shard}, which may "
                    "be older than the partition: ask a broker, or wait for the next snapshot"
                )
            gone.add(topic_id)
        layouts += [reader.layout(key, names[key[0]]) for key in keys & reader.heads.keys()]
    return LayoutSnapshot(
        layouts=sorted(
            (layout for layout in layouts if layout.partition.topic_id.bytes not in gone),
            key=lambda layout: (layout.partition.topic, layout.partition.partition),
        ),
        taken_at_ms=taken_at_ms,
    )


class _Head(NamedTuple):
    start_offset: int
    local_start_offset: int
    end_offset: int


class _Reader(ABC):
    """Reads the columns that are wanted of some tables, whatever others there are."""

    def __init__(self, manifest: Manifest, columns: Mapping[str, Sequence[str]]) -> None:
        self.manifest = manifest
        self._columns = {
            table: itemgetter(*snapshot_format.positions(manifest.tables, table, names))
            for table, names in columns.items()
        }

    def take(self, part: Part, data: bytes) -> None:
        for table, rows in snapshot_format.decode_part(part, data, self._columns):
            for values in map(self._columns[table], rows):
                self.put(table, values)

    @abstractmethod
    def put(self, table: str, values: tuple[Any, ...]) -> None:
        """Take the wanted columns of a row."""


class _ClusterReader(_Reader):
    """Which topics there are, and which shards have their partitions."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest, _CLUSTER_COLUMNS)
        self.topics: dict[bytes, str] = {}
        self.placements: dict[_Key, int] = {}

    def put(self, table: str, values: tuple[Any, ...]) -> None:
        if table == "topics":
            topic_id, name = values
            self.topics[topic_id] = name
        else:
            topic_id, shards = values
            self.placements.update(((topic_id, number), shard) for number, shard in enumerate(unpack(shards)))


class _DisklessReader(_Reader):
    """Some of a shard's partitions. `heads` has those that are there."""

    def __init__(self, manifest: Manifest, *, keys: Collection[_Key]) -> None:
        super().__init__(manifest, _DISKLESS_COLUMNS)
        self.heads: dict[_Key, _Head] = {}
        self._keys = keys
        self._ranges: dict[_Key, list[Run]] = defaultdict(list)
        self._tiered: dict[_Key, tiered.TieredLog] = {}
        self._metadata: dict[bytes, RemoteLogSegmentMetadata] = {}
        self._object_keys: dict[str, str] = {}

    def put(self, table: str, values: tuple[Any, ...]) -> None:
        key, rest = values[:2], values[2:]
        if key not in self._keys:
            return
        match table:
            case "partitions":
                self.heads[key] = _Head._make(rest)
            case "batches":
                columns = dict(zip(_RUN_COLUMNS, rest, strict=True))
                # Partitions share objects: one string for each of them is enough.
                columns["object_key"] = self._object_keys.setdefault(columns["object_key"], columns["object_key"])
                self._ranges[key].append(Run(**columns))
            case "tiered":
                self._tiered[key] = tiered.unpack(rest[0])
            case "remote_segments":
                segment_id, event = rest
                metadata = records.decode(event)
                if isinstance(metadata, RemoteLogSegmentMetadata):
                    self._metadata[segment_id] = metadata

    def layout(self, key: _Key, topic: str) -> PartitionLayout:
        """The layout of a partition, when all parts were taken. What awaits its removal is left out.

        Raises:
            SnapshotError: nothing is known of a segment.
        """
        head = self.heads[key]
        unknown = [segment for segment in self._tiered.get(key, ()) if segment.segment_id not in self._metadata]
        if unknown:
            raise SnapshotError(
                f"the snapshot does not know where the segment {UUID(bytes=unknown[0].segment_id)} of "
                f"{partition_name(topic, key[1])} is: the coordinators keep that only with "
                f"remote_log_metadata=coordinator. Ask a broker"
            )
        return PartitionLayout(
            partition=TopicIdPartition(UUID(bytes=key[0]), topic, key[1]),
            start_offset=head.start_offset,
            end_offset=head.end_offset,
            segments=tuple(self._metadata[segment.segment_id] for segment in self._tiered.get(key, ())),
            ranges=tuple(found for found in self._ranges[key] if found.last_offset >= head.local_start_offset),
        )

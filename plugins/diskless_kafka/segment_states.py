"""What the metadata topic says of all partitions' remote segments, as far as it was read. Pure.

The topic is the truth, and any number of clusters may write to it: Diskless clusters, and Apache Kafkas. An event that
does not follow from those before it is refused, by every reader alike.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    partition_of,
)
from diskless_core.remote_log.partition_log import PartitionLog
from diskless_core.remote_log.records import metadata_partition
from diskless_core.remote_log.states import RemoteLogStateError, apply, apply_deletion
from diskless_kafka.snapshot_file import Deletion, PartitionSnapshot

_Key = tuple[uuid.UUID, int]
_EMPTY = PartitionLog()


class TopicRecord(NamedTuple):
    """A record of the metadata topic.

    Attributes:
        event: None where the record has no event that is understood.
        cluster_id: the Diskless cluster that wrote it; None for an Apache Kafka.
    """

    metadata_partition: int
    offset: int
    event: RemoteLogMetadataEvent | None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """All that there is to be kept, as of the offsets that `offsets` has by partition of the metadata topic.

    Attributes:
        changed: the partitions that have changed since the last time, and what is known of them.
        present: all partitions of which anything is known.
    """

    offsets: Mapping[int, int]
    changed: Sequence[PartitionSnapshot]
    present: Sequence[TopicIdPartition]


class SegmentStates:
    """The remote segments of all partitions.

    Args:
        cluster_id: this Diskless cluster, whose deletions `deletions` has.
        partitions: how many the metadata topic has.
    """

    def __init__(self, cluster_id: str, partitions: int) -> None:
        self.positions = dict.fromkeys(range(partitions), 0)
        self._cluster_id = cluster_id
        self._logs: dict[_Key, PartitionLog] = {}
        self._deletions: dict[_Key, Deletion] = {}
        self._known: dict[_Key, TopicIdPartition] = {}
        self._read_until: dict[_Key, int] = {}
        self._changed: set[_Key] = set()
        self._kept_positions: Mapping[int, int] = {}

    def metadata_partition(self, partition: TopicIdPartition) -> int:
        """The partition of the metadata topic that has a partition's events."""
        return metadata_partition(partition.topic_id, partition.partition, len(self.positions))

    def load(self, snapshots: Iterable[PartitionSnapshot], offsets: Mapping[int, int]) -> None:
        """Begin with what was kept. A snapshot may be newer than the offset from which the topic is read on."""
        self.positions.update(offsets)
        for snapshot in snapshots:
            key = _key(snapshot.partition)
            self._known[key] = snapshot.partition
            self._read_until[key] = snapshot.next_offset
            if snapshot.segments:
                self._logs[key] = PartitionLog(snapshot.segments)
            if snapshot.deletion is not None:
                self._deletions[key] = snapshot.deletion

    def take(self, record: TopicRecord) -> str | None:
        """Take in the next record of a partition of the topic. Returns why it was refused; None where it was not."""
        self.positions[record.metadata_partition] = record.offset + 1
        if record.event is None:
            return None
        partition = partition_of(record.event)
        key = _key(partition)
        if record.offset < self._read_until.get(key, 0):
            return None
        try:
            if not self._applied(key, record.event, record.cluster_id):
                return None
        except RemoteLogStateError as error:
            return str(error)
        self._changed.add(key)
        if key in self._logs or key in self._deletions:
            self._known[key] = partition
        else:
            self._known.pop(key, None)
        return None

    def changes(self, event: RemoteLogMetadataEvent) -> bool:
        """Whether an event of this cluster would change anything.

        Raises:
            RemoteLogStateError: it does not follow from what is known.
        """
        key = _key(partition_of(event))
        if isinstance(event, RemotePartitionDeleteMetadata):
            return self._deletion_after(key, event, self._cluster_id) != self._deletions.get(key)
        current = self._logs.get(key, _EMPTY).get(event.segment_id)
        return apply(current, event) is not current

    def forget(self, metadata_partition: int, start: int) -> None:
        """Know nothing of a partition of the topic any more: it is read anew, from the offset `start`.

        Nothing that was kept counts any more, and all that is still known has to be kept anew.
        """
        self.positions[metadata_partition] = start
        self._kept_positions = {}
        self._changed.update(self._known)
        for key, partition in list(self._known.items()):
            if self.metadata_partition(partition) == metadata_partition:
                for known in (self._logs, self._deletions, self._known, self._read_until):
                    known.pop(key, None)

    def log(self, partition: TopicIdPartition) -> PartitionLog:
        """The segments of a partition. Not to be changed."""
        return self._logs.get(_key(partition), _EMPTY)

    def deletions(self) -> Sequence[RemotePartitionDeleteMetadata]:
        """The partitions whose segments this cluster deletes."""
        return [deletion.metadata for deletion in self._deletions.values() if deletion.cluster_id == self._cluster_id]

    def take_snapshots(self) -> Snapshots | None:
        """What is to be kept now; from here on only later changes count. None where nothing was read since then."""
        if self.positions == self._kept_positions:
            return None
        self._kept_positions = dict(self.positions)
        changed = [self._snapshot(key) for key in self._changed if key in self._known]
        self._changed.clear()
        return Snapshots(offsets=self._kept_positions, changed=changed, present=list(self._known.values()))

    def put_back(self, snapshots: Snapshots) -> None:
        """These could not be kept: their changes still count."""
        self._changed.update(_key(snapshot.partition) for snapshot in snapshots.changed)
        self._kept_positions = {}

    def _snapshot(self, key: _Key) -> PartitionSnapshot:
        partition = self._known[key]
        return PartitionSnapshot(
            partition=partition,
            next_offset=self.positions[self.metadata_partition(partition)],
            segments=self._logs.get(key, _EMPTY).segments(),
            deletion=self._deletions.get(key),
        )

    def _applied(self, key: _Key, event: RemoteLogMetadataEvent, cluster_id: str | None) -> bool:
        if not isinstance(event, RemotePartitionDeleteMetadata):
            log = self._logs.get(key) or PartitionLog()
            changed = log.apply(event)
            if log:
                self._logs[key] = log
            else:
                self._logs.pop(key, None)
            return changed
        before = self._deletions.get(key)
        after = self._deletion_after(key, event, cluster_id)
        if after is None:
            self._deletions.pop(key, None)
        else:
            self._deletions[key] = after
        return after != before

    def _deletion_after(
        self, key: _Key, event: RemotePartitionDeleteMetadata, cluster_id: str | None
    ) -> Deletion | None:
        """A deletion remains a Diskless cluster's even where an Apache Kafka takes part in it."""
        before = self._deletions.get(key)
        metadata = apply_deletion(None if before is None else before.metadata, event)
        if metadata is None or metadata.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            return None
        return Deletion(metadata, cluster_id or (None if before is None else before.cluster_id))


def _key(partition: TopicIdPartition) -> _Key:
    return partition.topic_id, partition.partition

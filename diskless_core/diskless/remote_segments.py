"""What a coordinator keeps for `remote_log_metadata`: the segments of its partitions and their deletion. Pure.

(KIP-405, "RemoteLogMetadataManager".) All of it is resident: a row for each segment that is not deleted yet. It
outlives the partition, for the segments have to be deleted when the topic is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import Key, Table, Transaction
from diskless_core.diskless.records import DisklessRecord, RemoteLogMetadataChanged
from diskless_core.diskless.tables import PARTITIONS
from diskless_core.plugin.coordinator_store import Column, ColumnType, TableSpec
from diskless_core.remote_log import records, states
from diskless_core.remote_log.metadata import (
    NO_TIMESTAMP,
    RemoteLogMetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    partition_of,
)

_PARTITION = (Column("topic_id", ColumnType.BLOB), Column("partition", ColumnType.INTEGER))
_EVENT = (Column("event", ColumnType.BLOB),)

REMOTE_SEGMENTS: Table[RemoteLogSegmentMetadata] = Table(
    spec=TableSpec(name="remote_segments", key=(*_PARTITION, Column("segment_id", ColumnType.BLOB)), values=_EVENT),
    encode=lambda segment: (records.encode(segment),),
    decode=lambda row: cast("RemoteLogSegmentMetadata", records.decode(row[3])),
    grouped=True,
)
REMOTE_DELETIONS: Table[RemotePartitionDeleteMetadata] = Table(
    spec=TableSpec(name="remote_deletions", key=_PARTITION, values=_EVENT),
    encode=lambda deletion: (records.encode(deletion),),
    decode=lambda row: cast("RemotePartitionDeleteMetadata", records.decode(row[2])),
)

_NOBODY = -1

TABLES: Sequence[Table[Any]] = (REMOTE_SEGMENTS, REMOTE_DELETIONS)


def key_of(partition: TopicIdPartition) -> Key:
    """The partition as the first columns of its rows."""
    return partition.topic_id.bytes, partition.partition


def append(command: Command[DisklessRecord], event: RemoteLogMetadataEvent) -> None:
    """Take an event, if it follows from what is known; one that changes nothing is not written.

    Raises:
        RemoteLogStateError: it does not follow.
    """
    *_, current = _row(command, event)
    if current is None and isinstance(event, RemoteLogSegmentMetadata):
        _require_partition(command, partition_of(event))
    if _applied(current, event) != current:
        command.emit(RemoteLogMetadataChanged(event=records.encode(event)))


def replay(event: bytes, tx: Transaction) -> None:
    """Apply an event that was taken."""
    decoded = records.decode(event)
    table, key, current = _row(tx, decoded)
    value = _applied(current, decoded)
    if value is None or states.is_over(value):
        tx.delete(table, key)
    else:
        tx.put(table, key, value)


def partition_deleted(key: Key, tx: Transaction) -> None:
    """Have a partition's segments deleted, unless somebody has asked for it. Nobody can add any from now on."""
    segment = next((tx.get(REMOTE_SEGMENTS, segment) for segment in tx.keys(REMOTE_SEGMENTS, key)), None)
    if segment is not None and tx.get(REMOTE_DELETIONS, key) is None:
        marked = RemotePartitionDeleteMetadata(
            topic_id_partition=partition_of(segment),
            state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
            event_timestamp_ms=NO_TIMESTAMP,
            broker_id=_NOBODY,
        )
        tx.put(REMOTE_DELETIONS, key, marked)


def _require_partition(command: Command[DisklessRecord], partition: TopicIdPartition) -> None:
    """A copy that begins when its partition is gone, or its segments are on their way out, would stay for ever."""
    key = key_of(partition)
    if command.get(PARTITIONS, key) is None or command.get(REMOTE_DELETIONS, key) is not None:
        raise states.RemoteLogStateError(f"the partition {partition.name} is deleted")


def _row(reader: Any, event: RemoteLogMetadataEvent) -> tuple[Table[Any], Key, Any]:
    key = key_of(partition_of(event))
    if isinstance(event, RemotePartitionDeleteMetadata):
        return REMOTE_DELETIONS, key, reader.get(REMOTE_DELETIONS, key)
    key = (*key, event.segment_id.id.bytes)
    return REMOTE_SEGMENTS, key, reader.get(REMOTE_SEGMENTS, key)


def _applied(
    current: Any, event: RemoteLogMetadataEvent
) -> RemoteLogSegmentMetadata | RemotePartitionDeleteMetadata | None:
    if isinstance(event, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
        return states.apply(current, event)
    return states.apply_deletion(current, event)

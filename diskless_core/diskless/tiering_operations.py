"""The decisions that move records of a partition from WAL objects to segments. Pure.

(KIP-405; the swap is conditional, so that of two compactions of the same records one wins.)
"""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.coordinator.state_machine import Command
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.records import DisklessRecord, PartitionAdopted, RecordsTiered
from diskless_core.diskless.tables import PARTITIONS, TIERED, PartitionHead
from diskless_core.protocol.errors import ErrorCode
from diskless_core.remote_log.tiered import TieredSegment, follow_each_other

DisklessCommand = Command[DisklessRecord]


def tier(command: DisklessCommand, partition: PartitionKey, segment: TieredSegment, expected: int) -> bool:
    """Take a complete segment for the records from `expected` on, if that still is where WAL objects begin.

    Whether the segment is the one that has them, now or by the same command before. If not, its records are gone, or in
    another segment.
    """
    if segment in (command.get(TIERED, partition) or ()):
        return True
    head = command.get(PARTITIONS, partition)
    if head is None or head.local_start_offset != expected:
        return False
    if not segment.start_offset <= expected <= segment.end_offset < head.next_offset:
        return False
    command.emit(RecordsTiered(topic_id=partition.topic_id, partition=partition.partition, segment=segment))
    return True


def adopt(
    command: DisklessCommand, partition: PartitionKey, log_start_offset: int, segments: Sequence[TieredSegment]
) -> ErrorCode:
    """Give an empty partition the records of segments that follow each other; again, it changes nothing.

    INVALID_REQUEST where they don't, or where the log start does not lie in the first one; DUPLICATE_RESOURCE where the
    partition has, or had, other records.
    """
    head = command.get(PARTITIONS, partition)
    if head is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not segments or not follow_each_other(segments):
        return ErrorCode.INVALID_REQUEST
    if not segments[0].start_offset <= log_start_offset <= segments[0].end_offset:
        return ErrorCode.INVALID_REQUEST
    if command.get(TIERED, partition) == tuple(segments):
        return ErrorCode.NONE
    if head != PartitionHead():
        return ErrorCode.DUPLICATE_RESOURCE
    command.emit(
        PartitionAdopted(
            topic_id=partition.topic_id,
            partition=partition.partition,
            log_start_offset=log_start_offset,
            segments=tuple(segments),
        )
    )
    return ErrorCode.NONE

"""Which segments of an Apache Kafka a partition of Diskless can have. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from diskless_core.remote_log.partition_log import PartitionLog
from diskless_core.remote_log.states import RemoteLogStateError
from diskless_core.tiering.migration import coverage
from diskless_core.tiering.migration.coverage import GapError

_KEPT_CONFIG = ("max.message.bytes", "message.timestamp.type", "retention.bytes", "retention.ms")


class TopicImportError(Exception):
    """The topic cannot be imported like this; the message says why, and what to do."""


def finished_segments(
    partition: TopicIdPartition, events: Iterable[RemoteLogMetadataEvent]
) -> list[RemoteLogSegmentMetadata]:
    """The complete segments of a partition after all its events in `__remote_log_metadata`.

    Raises:
        TopicImportError: an event does not follow from those before.
    """
    log = PartitionLog()
    try:
        for event in events:
            if not isinstance(event, RemotePartitionDeleteMetadata):
                log.apply(event)
    except RemoteLogStateError as error:
        raise TopicImportError(f"what Kafka has noted of {partition.name} is not complete: {error}") from error
    return [segment for segment in log.segments() if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]


def importable(
    partition: TopicIdPartition,
    segments: Sequence[RemoteLogSegmentMetadata],
    log_start_offset: int,
    lineage: Mapping[int, int],
) -> list[RemoteLogSegmentMetadata]:
    """The segments that are the log of a partition from its start on, in order, each beginning where one ended.

    Args:
        segments: complete ones.
        lineage: the leader epochs of the partition, up to the end of its last segment.

    Raises:
        TopicImportError: they hold aborted transactions, overlap, or do not hold all records.
    """
    name = partition.name
    try:
        chain = coverage.chain(
            (segment for segment in segments if coverage.in_lineage(segment, lineage)), log_start_offset
        )
    except GapError as error:
        raise TopicImportError(f"{name} has no segment with offset {error.offset}") from error
    for segment in chain:
        if not segment.txn_index_empty:
            raise TopicImportError(
                f"the segment of {name} at offset {segment.start_offset} has records of aborted transactions, which "
                "Diskless would show to all consumers: copy the topic with clients instead"
            )
    for before, segment in pairwise(chain):
        if segment.start_offset != before.end_offset + 1:
            raise TopicImportError(
                f"the segments of {name} overlap at offset {segment.start_offset}, as after a change of the leader: "
                "copy the topic with clients instead"
            )
    return chain


def imported_metadata(segment: RemoteLogSegmentMetadata, partition: TopicIdPartition) -> RemoteLogSegmentMetadata:
    """What a segment is in Diskless: the same, as one of another topic."""
    return replace(segment, segment_id=RemoteLogSegmentId(partition, segment.segment_id.id), custom_metadata=None)


def topic_config(configured: Mapping[str, str]) -> dict[str, str]:
    """The configuration of the topic in Diskless, given what is set for it in Kafka."""
    return {name: configured[name] for name in _KEPT_CONFIG if name in configured}

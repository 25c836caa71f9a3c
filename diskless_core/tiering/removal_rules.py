"""Which copies and segments are to be removed, and when. Pure.

Two parts ask. A compaction clears away what earlier ones left of a partition (`leftovers`). The remover asks what lies
below the log start of a partition (`below_log_start`), and what there is of a deleted one (`of_deleted_partition`).
All use the same rule for a copy that is not complete: it stays until it `is_given_up`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass

from diskless_core.passed_time import Passed
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState
from diskless_core.wal.runs import Run

GRACE_MS = 24 * 3600 * 1000
"""Age of an unfinished copy of another broker from which on it counts as given up."""

IsGivenUp = Callable[[RemoteLogSegmentMetadata], bool]
"""`is_given_up`, as this node judges at the time of the call."""


def is_given_up(
    segment: RemoteLogSegmentMetadata, *, node_id: int, living: Container[RemoteLogSegmentId], passed: Passed
) -> bool:
    """Whether nobody works on an unfinished copy any more.

    A broker knows which of its own copies it works on, so neither their age nor its clock decides: a copy that takes
    longer than a day, or that was noted before the clock was set back, is not removed under the job that writes it, and
    one that a failed job left need not wait. A copy of an earlier process of the broker is in no job of this one. Of
    another broker's copies only the age is known.

    Args:
        node_id: this broker.
        living: the copies that this broker works on. A copy is in it before it is noted.
    """
    if segment.broker_id == node_id:
        return segment.segment_id not in living
    return passed.since(segment.event_timestamp_ms) > GRACE_MS


# --- what earlier compactions left -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What is to be done.

    Attributes:
        finish: a complete copy of what WAL objects begin with, to be taken if it `fits`; None where there is none.
        remove: copies that nobody will ever take.
    """

    finish: RemoteLogSegmentMetadata | None
    remove: Sequence[RemoteLogSegmentMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBounds:
    """What a partition's coordinator says of it.

    Attributes:
        taken: ids of the segments that have its older records.
        log_start_offset: segments below belong to the remover.
        local_start_offset: where its WAL objects begin.
        next_offset: the high watermark, as far as this node knows.
    """

    taken: Collection[bytes]
    log_start_offset: int
    local_start_offset: int
    next_offset: int


def leftovers(
    segments: Sequence[RemoteLogSegmentMetadata],
    bounds: PartitionBounds,
    is_given_up: IsGivenUp,
) -> Leftovers:
    """What is to be done with a partition's segments.

    No copy is removed that some coordinator could still take. A copy can be taken only where WAL objects begin, which
    moves in one direction: what ends before that, and was not taken, never will be. Nor will one that has WAL objects'
    first batches and ends where no run ends, or has another size: it was not made of this partition's runs, which never
    change. What else ends behind the beginning of WAL objects is left alone, whoever made it: the next compaction
    passes it.

    Args:
        segments: all that are known, by start offset, looked up before `bounds`.
    """
    finish: RemoteLogSegmentMetadata | None = None
    remove = []
    for segment in segments:
        if segment.segment_id.id.bytes in bounds.taken:
            continue
        if segment.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
            remove.append(segment)
        elif segment.end_offset < bounds.log_start_offset:
            continue
        elif segment.end_offset < bounds.local_start_offset:
            if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED or is_given_up(segment):
                remove.append(segment)
        elif (
            segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            and segment.start_offset <= bounds.local_start_offset
            and segment.end_offset < bounds.next_offset
        ):
            finish = segment
    return Leftovers(finish=finish, remove=remove)


def fits(segment: RemoteLogSegmentMetadata, local_start_offset: int, first: Run, last: Run) -> bool:
    """Whether a complete copy was made of a partition's runs.

    Args:
        first: the run that contains where WAL objects begin, or the next one.
        last: the run that contains the end of the copy, or the next one.
    """
    return (
        segment.start_offset == min(local_start_offset, first.base_offset)
        and segment.end_offset == last.last_offset
        and segment.segment_size_bytes == last.bytes_before + last.byte_size - first.bytes_before
    )


# --- what nobody can be told to read ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Removable:
    """What is to be removed now, and the unfinished copies that have to be waited for: they may be still written."""

    now: Sequence[RemoteLogSegmentMetadata]
    later: Sequence[RemoteLogSegmentMetadata]


def below_log_start(
    segments: Sequence[RemoteLogSegmentMetadata],
    taken: Collection[bytes],
    log_start_offset: int,
    is_given_up: IsGivenUp,
) -> Removable:
    """Of a partition that lives: what lies wholly below its log start, and what somebody began to remove.

    No coordinator takes a segment that ends below the log start, and readers are told of taken ones only.

    Args:
        taken: ids of the segments that have its records.
    """
    return _removable(
        [
            segment
            for segment in segments
            if segment.segment_id.id.bytes not in taken
            and (segment.end_offset < log_start_offset or segment.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
        ],
        is_given_up,
    )


def of_deleted_partition(segments: Sequence[RemoteLogSegmentMetadata], is_given_up: IsGivenUp) -> Removable:
    """Of a partition that is gone: all."""
    return _removable(segments, is_given_up)


def _removable(segments: Sequence[RemoteLogSegmentMetadata], is_given_up: IsGivenUp) -> Removable:
    later = [
        segment
        for segment in segments
        if segment.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED and not is_given_up(segment)
    ]
    return Removable([segment for segment in segments if segment not in later], later)

"""What the compactions before have left of a partition, and what is to be done with it. Pure.

No copy is removed that some coordinator could still take. A copy can be taken only where WAL objects begin, which moves
in one direction: what ends before that, and was not taken, never will be. Nor will one that has WAL objects' first
batches and ends where no run ends, or has another size: it was not made of this partition's runs, which never change.
What else ends behind the beginning of WAL objects is left alone, whoever made it: the next compaction passes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from diskless_core.wal.runs import Run

GRACE_MS = 24 * 3600 * 1000
"""Age of an unfinished copy of another broker from which on it counts as given up."""


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
    is_given_up: Callable[[RemoteLogSegmentMetadata], bool],
) -> Leftovers:
    """What is to be done with a partition's segments.

    Args:
        segments: all that are known, by start offset, looked up before `bounds`.
        is_given_up: whether nobody works on an unfinished copy any more.
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

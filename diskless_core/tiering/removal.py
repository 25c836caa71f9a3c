"""Which segments of a partition nobody can be told to read any more. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState

IsGivenUp = Callable[[RemoteLogSegmentMetadata], bool]
"""Whether nobody works on an unfinished copy any more."""


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

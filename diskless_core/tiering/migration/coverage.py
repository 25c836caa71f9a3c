"""Which segments hold a range of offsets without a gap. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState


class GapError(Exception):
    """Segments do not hold all records of a range.

    Attributes:
        offset: the first one that none of them has.
    """

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def chain(
    segments: Iterable[RemoteLogSegmentMetadata], start_offset: int, end_offset: int | None = None
) -> list[RemoteLogSegmentMetadata]:
    """The fewest complete segments that hold all offsets from `start_offset` to before `end_offset`, in order.

    Without an end, they go as far as they follow each other; a segment behind a gap is an error.

    Raises:
        GapError: an offset is in none of them.
    """
    finished = sorted(
        (
            segment
            for segment in segments
            if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            and segment.end_offset >= start_offset
            and (end_offset is None or segment.start_offset < end_offset)
        ),
        key=lambda segment: (segment.start_offset, -segment.end_offset, segment.segment_id.id),
    )
    found: list[RemoteLogSegmentMetadata] = []
    reached, position = start_offset, 0
    while end_offset is None or reached < end_offset:
        best = None
        while position < len(finished) and finished[position].start_offset <= reached:
            if best is None or finished[position].end_offset > best.end_offset:
                best = finished[position]
            position += 1
        if best is None or best.end_offset < reached:
            if end_offset is None and position == len(finished):
                return found
            raise GapError(f"no segment has offset {reached}", offset=reached)
        found.append(best)
        reached = best.end_offset + 1
    return found


def in_lineage(segment: RemoteLogSegmentMetadata, lineage: Mapping[int, int]) -> bool:
    """Whether a log has the records of a segment, and not others at the same offsets.

    After an unclean election of a leader, segments may stay behind whose records the log has lost.

    Args:
        lineage: at which offset each leader epoch of the log began, as in its leader-epoch checkpoint.
    """
    epochs = sorted(segment.segment_leader_epochs)
    if not epochs or any(epoch not in lineage for epoch in epochs):
        return False
    starts = [segment.segment_leader_epochs[epoch] for epoch in epochs]
    if starts[0] < lineage[epochs[0]] or any(
        start != lineage[epoch] for epoch, start in zip(epochs[1:], starts[1:], strict=True)
    ):
        return False
    between = [epoch for epoch in lineage if epochs[0] < epoch < epochs[-1] and epoch not in epochs]
    following = [start for epoch, start in lineage.items() if epoch > epochs[-1]]
    return not between and segment.end_offset < min(following, default=segment.end_offset + 1)


def latest(segments: Sequence[RemoteLogSegmentMetadata]) -> RemoteLogSegmentMetadata:
    """The segment that reaches furthest in the newest leader epoch. There has to be one."""
    return max(segments, key=lambda segment: (max(segment.segment_leader_epochs), segment.end_offset))

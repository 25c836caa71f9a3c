"""The remote segments of one partition, and which of them has a record. Pure, quick with 100,000 segments.

Several copies may have the same records: of two jobs that copied at once, or of small segments that were merged. The
answers are a function of the segments that there are, not of the order in which they came, so that a node that loads
them gives the same ones as a node that saw them come.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
)
from diskless_core.remote_log.states import apply, is_over

_Position = tuple[int, uuid.UUID]


class PartitionLog:
    """All segments of a partition that are not DELETE_SEGMENT_FINISHED.

    Args:
        segments: what there is already, in any order.
    """

    def __init__(self, segments: Iterable[RemoteLogSegmentMetadata] = ()) -> None:
        self._segments: dict[uuid.UUID, RemoteLogSegmentMetadata] = {}
        self._positions: list[_Position] = []
        self._in_order: list[RemoteLogSegmentMetadata] = []
        self._epochs: dict[int, _Epoch] = {}
        for metadata in sorted(segments, key=_position):
            self.put(metadata)

    def __len__(self) -> int:
        return len(self._segments)

    def get(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        """A segment by its id; None where it is not known, or deleted."""
        return self._segments.get(segment_id.id)

    def apply(self, event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> bool:
        """Take in an event of this partition. Returns whether it changed anything.

        Raises:
            RemoteLogStateError: it does not follow from what is known, and nothing has changed.
        """
        current = self.get(event.segment_id)
        changed = apply(current, event)
        if changed is None or changed is current:
            return False
        self.put(changed)
        return True

    def put(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Take over what `states.apply` gave: know it instead of what was known of this id, or forget it."""
        self.forget(metadata.segment_id)
        if is_over(metadata):
            return
        self._segments[metadata.segment_id.id] = metadata
        position = _position(metadata)
        index = bisect_left(self._positions, position)
        self._positions.insert(index, position)
        self._in_order.insert(index, metadata)
        for epoch, range_ in _readable(metadata):
            self._epochs.setdefault(epoch, _Epoch()).add(range_)

    def forget(self, segment_id: RemoteLogSegmentId) -> None:
        """Know a segment no more, if it was known."""
        known = self._segments.pop(segment_id.id, None)
        if known is None:
            return
        index = bisect_left(self._positions, _position(known))
        del self._positions[index], self._in_order[index]
        for epoch, range_ in _readable(known):
            self._epochs[epoch].remove(range_)
            if not self._epochs[epoch]:
                del self._epochs[epoch]

    def segments(self, leader_epoch: int | None = None) -> Sequence[RemoteLogSegmentMetadata]:
        """All segments, or those with records of a leader epoch, by start offset. Replaced ones are among them."""
        if leader_epoch is None:
            return list(self._in_order)
        return [metadata for metadata in self._in_order if leader_epoch in metadata.segment_leader_epochs]

    def find(self, leader_epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The COPY_SEGMENT_FINISHED segment that has this leader epoch at `offset`; None without one.

        Of several the one that reaches furthest into the epoch, and of these the one that was finished last.
        """
        found = self._epoch(leader_epoch).find(offset)
        return None if found is None else self._segments[found.copy]

    def highest_offset(self, leader_epoch: int) -> int | None:
        """The last offset of the leader epoch that a COPY_SEGMENT_FINISHED segment has; None without any."""
        return self._epoch(leader_epoch).highest_offset()

    def _epoch(self, leader_epoch: int) -> _Epoch:
        return self._epochs.get(leader_epoch, _NO_EPOCH)


class _Range(NamedTuple):
    """What a finished segment has of one leader epoch, both ends inclusive. Greater ones are preferred."""

    end: int
    finished_ms: int
    copy: uuid.UUID
    start: int


class _Epoch:
    """The finished segments of one leader epoch, as ranges of offsets.

    A range is hidden where a greater one has all its records. Those that are not hidden are in ascending order, and so
    are their starts: of all that begin at an offset or before, the last one reaches furthest.
    """

    def __init__(self) -> None:
        self._visible: list[_Range] = []
        self._hidden: list[_Range] = []

    def __bool__(self) -> bool:
        return bool(self._visible)

    def find(self, offset: int) -> _Range | None:
        index = bisect_right(self._visible, offset, key=_start) - 1
        return self._visible[index] if index >= 0 and offset <= self._visible[index].end else None

    def highest_offset(self) -> int | None:
        return self._visible[-1].end if self._visible else None

    def add(self, added: _Range) -> None:
        greater = bisect_right(self._visible, added)
        if greater < len(self._visible) and self._visible[greater].start <= added.start:
            insort(self._hidden, added, key=_start)
            return
        first = bisect_left(self._visible, added.start, key=_start)
        for replaced in self._visible[first:greater]:
            insort(self._hidden, replaced, key=_start)
        self._visible[first:greater] = [added]

    def remove(self, removed: _Range) -> None:
        index = bisect_left(self._visible, removed)
        if index == len(self._visible) or self._visible[index] != removed:
            del self._hidden[self._hidden.index(removed, bisect_left(self._hidden, removed.start, key=_start))]
            return
        del self._visible[index]
        first = bisect_left(self._hidden, removed.start, key=_start)
        behind = bisect_right(self._hidden, removed.end, key=_start)
        uncovered, self._hidden[first:behind] = self._hidden[first:behind], []
        for range_ in uncovered:
            self.add(range_)


_NO_EPOCH = _Epoch()


def _start(range_: _Range) -> int:
    return range_.start


def _position(metadata: RemoteLogSegmentMetadata) -> _Position:
    return metadata.start_offset, metadata.segment_id.id


def _readable(metadata: RemoteLogSegmentMetadata) -> Iterator[tuple[int, _Range]]:
    """What can be read in a segment, by leader epoch; an epoch without records is left out."""
    if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        return
    starts = metadata.segment_leader_epochs
    epochs = sorted(starts)
    ends = [*(starts[epoch] - 1 for epoch in epochs[1:]), metadata.end_offset]
    for epoch, end in zip(epochs, ends, strict=True):
        if starts[epoch] <= end:
            yield epoch, _Range(end, metadata.event_timestamp_ms, metadata.segment_id.id, starts[epoch])

"""One shard's committed log as the event loop sees it: segments, the newest batches in memory, and who waits."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from diskless_core.log.segment import SparseIndex, intact_batches, whole_batch_size
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBatch, LogBounds
from diskless_local_log.recovery import RecoveredShard, Segment, repair_command
from diskless_local_log.writer import Written

CHUNK_BYTES = 1024 * 1024


class ShardLog:
    """Everything here is committed, and is read and changed on the event loop only."""

    def __init__(self, segments: list[Segment], end: int, *, tail_bytes: int) -> None:
        self._segments = segments
        self._end = end
        self._tail: list[LogBatch] = []
        self._tail_bytes = 0
        self._tail_limit_bytes = tail_bytes
        self.changed = asyncio.Event()
        """Set, and replaced, whenever there is more to read or a reader has to look again."""

    @property
    def bounds(self) -> LogBounds:
        return LogBounds(self._segments[0].base_offset if self._segments else 0, self._end)

    def publish(self, written: Written) -> None:
        """Make durable batches visible."""
        if not self._segments or self._segments[-1].base_offset != written.segment_base_offset:
            self._segments.append(Segment(written.segment_base_offset, written.segment_path, 0, SparseIndex()))
        self._segments[-1].size = written.segment_size
        self._note_positions(self._segments[-1].index, written)
        self._end = written.batches[-1].next_offset
        self._remember(written.batches)
        self.wake()

    def take_found(self, found: RecoveredShard) -> None:
        """Go on with what was found in the folder, which another process writes to."""
        known = {segment.base_offset: segment for segment in self._segments}
        for segment in found.segments:
            kept = known.setdefault(segment.base_offset, segment)
            kept.size, kept.index = segment.size, segment.index or kept.index
        self._segments = [known[segment.base_offset] for segment in found.segments]
        self._end = found.next_offset
        self.wake()

    def wake(self) -> None:
        """Let every waiting reader look again."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def is_in_memory(self, offset: int) -> bool:
        """Whether a reader at `offset` needs no file."""
        return offset >= (self._tail[0].offset if self._tail else self._end)

    def tail_from(self, offset: int) -> Sequence[LogBatch]:
        """The batches in memory from the one that contains `offset` on."""
        return self._tail[bisect_right(self._tail, offset, key=lambda batch: batch.next_offset) :]

    def segment_of(self, offset: int) -> Segment:
        """The segment that has to contain an offset within the bounds."""
        return self._segments[bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1]

    def forget_before(self, offset: int) -> list[Segment]:
        """Take the segments that lie wholly below `offset` out of the log and return them, oldest first."""
        count = sum(1 for following in self._segments[1:] if following.base_offset <= offset)
        forgotten, self._segments = self._segments[:count], self._segments[count:]
        if forgotten:
            self.wake()
        return forgotten

    def restore(self, segments: list[Segment]) -> None:
        """Put back segments that could not be deleted."""
        self._segments = segments + self._segments

    @staticmethod
    def _note_positions(index: SparseIndex | None, written: Written) -> None:
        position = written.position
        for batch in written.batches:
            if index is not None:
                index.add(batch.offset, position)
            position += len(batch.data)

    def _remember(self, batches: list[LogBatch]) -> None:
        self._tail.extend(batches)
        self._tail_bytes += sum(len(batch.data) for batch in batches)
        if self._tail_bytes <= 2 * self._tail_limit_bytes:
            return
        surplus = 0
        while self._tail_bytes > self._tail_limit_bytes:
            self._tail_bytes -= len(self._tail[surplus].data)
            surplus += 1
        del self._tail[:surplus]


@dataclass(frozen=True, slots=True)
class FilePosition:
    """Where a reader is in a segment file: the batch at `position` has the base offset `offset`."""

    segment: Segment
    position: int
    offset: int


def read_chunk(segment: Segment, end: int, offset: int, at: FilePosition | None) -> tuple[list[LogBatch], FilePosition]:
    """Read at least one batch, and about `CHUNK_BYTES`, below the file position `end`. Blocks.

    Args:
        segment: where to read; it gets an index if it has none and needs one.
        end: the segment's committed size.
        offset: where to begin if `at` is None; batches shortly before it may be among those returned.
        at: where the chunk before ended.

    Returns:
        Batches, and where they end.

    Raises:
        CoordinatorLogError: the next batch is corrupt or missing.
    """
    if at is None:
        at = _floor(segment, offset)
    data = _read_at_least_one(at, end)
    batches = [
        LogBatch(header.base_offset, header.last_offset + 1, data[position : position + header.size])
        for position, header in intact_batches(data, 0, at.offset, gapless=True)
    ]
    if not batches:
        raise CoordinatorLogError(
            f"{segment.path} is damaged: there is no intact batch of offset {at.offset} at byte {at.position}. "
            f"Put back an intact copy of the file, or stop the broker and run {repair_command(segment.path)}: it "
            f"says what can be done, and what that gives up"
        )
    consumed_bytes = sum(len(batch.data) for batch in batches)
    return batches, FilePosition(segment, at.position + consumed_bytes, batches[-1].next_offset)


def _floor(segment: Segment, offset: int) -> FilePosition:
    if offset == segment.base_offset:
        return FilePosition(segment, 0, offset)
    if segment.index is None:
        segment.index = _index(segment)
    found, position = segment.index.floor(offset) or (segment.base_offset, 0)
    return FilePosition(segment, position, found)


def _index(segment: Segment) -> SparseIndex:
    index = SparseIndex()
    data = segment.path.read_bytes()
    for position, header in intact_batches(data, 0, segment.base_offset, gapless=True):
        index.add(header.base_offset, position)
    return index


def _read_at_least_one(at: FilePosition, end: int) -> bytes:
    with at.segment.path.open("rb", buffering=0) as file:
        file.seek(at.position)
        data = file.read(min(CHUNK_BYTES, end - at.position))
        size = whole_batch_size(data, 0)
        if size is not None and len(data) < size <= end - at.position:
            file.seek(at.position)
            data = file.read(size)
        return data

"""Builds a segment's indexes from its batches, equal to those that Kafka's recovery builds from the same log. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from diskless_core.log import offset_index, producer_snapshot, time_index
from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.log.time_index import NO_TIMESTAMP
from diskless_core.protocol.record_batch import BatchHeader

DEFAULT_INDEX_INTERVAL_BYTES = 4096
"""Kafka's default of `index.interval.bytes`."""

MAX_OFFSETS = 2**31 - 1
"""How far a segment's last offset may lie from its first: indexes have offsets of 32 bit relative to it."""


class SegmentFullError(Exception):
    """The batch does not belong into this segment any more: its offset or position would not fit an index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIndexes:
    """What goes beside a segment's `.log`.

    Attributes:
        end_offset: last offset of the segment, inclusive.
        max_timestamp: the greatest of its batches, -1 where none has any.
    """

    end_offset: int
    max_timestamp: int
    size_bytes: int
    offset_index: bytes
    time_index: bytes


class SegmentIndexer:
    """Give it every batch of a segment, in order.

    Attributes:
        producers: state of the idempotent producers seen, on top of the one that it began with.
    """

    def __init__(
        self,
        base_offset: int,
        *,
        interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
        producers: ProducerState | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.producers: ProducerState = dict(producers or {})
        self._interval_bytes = interval_bytes
        self._size = 0
        self._indexed_at = 0
        self._end_offset = base_offset - 1
        self._latest = NO_TIMESTAMP
        self._latest_offset = NO_TIMESTAMP
        self._noted_timestamp = NO_TIMESTAMP
        self._offsets = bytearray()
        self._times = bytearray()

    @property
    def size_bytes(self) -> int:
        return self._size

    def add(self, header: BatchHeader) -> None:
        """Note the next batch.

        Raises:
            SegmentFullError: it has to begin another segment.
            ValueError: its offsets do not lie behind those of the batch before.
        """
        last_offset = header.last_offset
        if header.base_offset <= self._end_offset:
            raise ValueError(f"a batch at offset {header.base_offset} comes after offset {self._end_offset}")
        if last_offset - self.base_offset > MAX_OFFSETS or self._size + header.size > MAX_OFFSETS:
            raise SegmentFullError(f"offset {last_offset} does not fit the segment at {self.base_offset}")
        if header.max_timestamp > self._latest:
            self._latest, self._latest_offset = header.max_timestamp, last_offset
        if self._size - self._indexed_at > self._interval_bytes:
            self._offsets += offset_index.pack(last_offset, self._size, self.base_offset)
            self._note_time()
            self._indexed_at = self._size
        self._size += header.size
        self._end_offset = last_offset
        producer_snapshot.note(self.producers, header)

    def finish(self) -> SegmentIndexes:
        """The indexes of all that was added."""
        self._note_time()
        return SegmentIndexes(
            end_offset=self._end_offset,
            max_timestamp=self._latest,
            size_bytes=self._size,
            offset_index=bytes(self._offsets),
            time_index=bytes(self._times),
        )

    def _note_time(self) -> None:
        if self._latest > self._noted_timestamp:
            self._times += time_index.pack(self._latest, self._latest_offset, self.base_offset)
            self._noted_timestamp = self._latest

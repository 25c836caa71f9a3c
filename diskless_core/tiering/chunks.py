"""How a segment's log is cut into chunks of whole batches, and what is found in one. Pure.

A chunk begins where the offset index has the first batch at or behind a multiple of `CHUNK_BYTES`, so that all readers
of a segment share the same ones, and no batch lies in two.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from diskless_core.log import offset_index
from diskless_core.log.offset_index import CorruptIndexError
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import Buffer, CorruptBatchError, TornBatchError

CHUNK_BYTES = 960 << 10
"""A Fetch takes a mebibyte of a partition by default: a whole chunk, unless its batches have more than 64 KiB."""

MAX_CHUNK_BYTES = 16 << 20
"""A chunk larger than this comes from an index with too few entries, or has a batch as large."""

AHEAD_CHUNKS = 4

SLICE_BATCHES = 128
"""So many batches are looked at before others have their turn: well below a millisecond."""

SLICE_BYTES = 4 << 20
"""As much is checked before others have their turn."""

LEADER_EPOCH = 0

_WRONG_CHECKSUM = "its checksum is wrong"


class ChunkRange(NamedTuple):
    """Bytes `start` (inclusive) to `end` (exclusive) of a segment's log.

    Its first batch ends at the offset `first_last_offset` or before it: an index entry of Apache Kafka before 4.0 is
    of all batches of one append, and names the last offset of these. -1 at the beginning of the segment.
    """

    start: int
    end: int
    first_last_offset: int


def range_around(index: Buffer, base_offset: int, size_bytes: int, position: int) -> ChunkRange:
    """The chunk that has the byte at `position`.

    Raises:
        CorruptIndexError: the index cannot be of a segment of this size.
    """
    start, first_last_offset = _beginning(index, base_offset, position)
    following = offset_index.first_from(index, base_offset, (start // CHUNK_BYTES + 1) * CHUNK_BYTES)
    end = size_bytes if following is None else following.position
    if not start <= position < end <= size_bytes:
        raise CorruptIndexError(f"the offset index leads to the bytes {start} to {end} of {size_bytes}")
    return ChunkRange(start, end, first_last_offset)


def _beginning(index: Buffer, base_offset: int, position: int) -> tuple[int, int]:
    for number in range(position // CHUNK_BYTES, 0, -1):
        first = offset_index.first_from(index, base_offset, number * CHUNK_BYTES)
        if first is not None and first.position <= position:
            return first.position, first.offset
    return 0, -1


@dataclass(slots=True, eq=False)
class Chunk:
    """Batches as consumers get them, up to the first that is damaged.

    Attributes:
        start, end: what it has of the segment's log, in bytes; `end` is behind the last sound batch.
        last_offsets, ends: of each batch, its last offset and the byte behind it, counted from `start`.
        damaged: by the byte where a batch begins, counted from `start`: its checksum is wrong, but its header leads to
            the next batch, so that readers can go on there.
        failure: what is wrong with the batch behind the last one.
    """

    start: int
    data: memoryview
    last_offsets: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    damaged: dict[int, CorruptBatchError] = field(default_factory=dict)
    failure: CorruptBatchError | None = None

    @property
    def is_sound(self) -> bool:
        return self.failure is None and not self.damaged

    @property
    def end(self) -> int:
        return self.start + (self.ends[-1] if self.ends else 0)

    @property
    def last_offset(self) -> int:
        return self.last_offsets[-1] if self.last_offsets else -1

    def forget_damaged(self) -> None:
        """Take the last batch back, which is damaged."""
        self.last_offsets.pop()
        self.ends.pop()
        del self.damaged[self.end - self.start]

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return len(self.data) + 16 * len(self.ends)

    def position_of(self, offset: int) -> int | None:
        """Where the batch begins that contains `offset`, or else the next one, counted from `start`."""
        batch = bisect_left(self.last_offsets, offset)
        if batch == len(self.last_offsets):
            return None
        return self.ends[batch - 1] if batch else 0

    def cut(self, offset: int, max_bytes: int) -> tuple[memoryview, int]:
        """Whole batches from the one that contains `offset`, or the next one, on, and the offset behind them.

        They have at most `max_bytes`, but one of them is there in any case. The chunk has one. What is less than half
        of it is a copy, for a view keeps the whole chunk in memory.

        Raises:
            CorruptBatchError: the first one is damaged. Those before one that is damaged are returned.
        """
        first = bisect_left(self.last_offsets, offset)
        begin = self.ends[first - 1] if first else 0
        if begin in self.damaged:
            raise self.damaged[begin]
        last = max(bisect_right(self.ends, begin + max_bytes) - 1, first)
        for damaged_at in self.damaged:
            if damaged_at > begin:
                last = min(last, bisect_right(self.ends, damaged_at) - 1)
        found = self.data[begin : self.ends[last]]
        return memoryview(bytes(found)) if 2 * len(found) < len(self.data) else found, self.last_offsets[last] + 1


def worth_loading(chunk: Chunk, reads_between: int, *, at_once: int, cache_bytes: int) -> dict[int, int]:
    """A byte of each chunk that somebody who has read `chunk` is going to want, by the chunk's number; maybe too many.

    As many as are still there when they are wanted: each of the `reads_between` that there are from one read of the
    same reader to the next brings another chunk into the cache, and half of that is for what is read already. Of the
    loads that are possible `at_once`, each reader has its share.
    """
    count = min(AHEAD_CHUNKS, max(1, at_once // reads_between), cache_bytes // (2 * CHUNK_BYTES * reads_between))
    following = chunk.end // CHUNK_BYTES
    middles = {number: number * CHUNK_BYTES + CHUNK_BYTES // 2 for number in range(following, following + count)}
    return middles | {following: chunk.end} if count else {}


def check(
    chunk: Chunk, wanted: ChunkRange, base_offset: int, end_offset: int, *, index_is_rebuilt: bool
) -> Iterator[None]:
    """Check the batches of a chunk that has nothing but its data yet, a slice at a time.

    Leader epochs become 0, in the data itself if it can be written to.

    Raises:
        CorruptIndexError: the chunk does not begin or end with a batch, as it should by an index that was not built
            from the same log.
    """
    next_offset = base_offset
    in_slice = slice_began = 0
    damaged_end = -1
    try:
        for position, header in record_batch.walk(chunk.data):
            last_offset = header.last_offset
            if header.magic != record_batch.MAGIC:
                raise CorruptBatchError(f"it has magic {header.magic}, not {record_batch.MAGIC}")
            if position == damaged_end and header.base_offset != next_offset:
                chunk.forget_damaged()  # its header does not lead to the next batch after all
                raise CorruptBatchError(_WRONG_CHECKSUM)
            if not next_offset <= header.base_offset <= last_offset <= end_offset:
                raise CorruptBatchError(f"it has the offsets {header.base_offset} to {last_offset}")
            if position == 0 and -1 < wanted.first_last_offset < last_offset:
                raise CorruptBatchError(f"it ends with the offset {last_offset}, not {wanted.first_last_offset}")
            if not record_batch.crc_is_valid(chunk.data, position, header):
                if position == 0 and not index_is_rebuilt:
                    raise CorruptBatchError(_WRONG_CHECKSUM)  # the index may lead to no batch at all
                words = f"the batch at byte {chunk.end} of the segment: {_WRONG_CHECKSUM}"
                chunk.damaged[position] = CorruptBatchError(words)
                damaged_end = position + header.size
            if header.partition_leader_epoch != LEADER_EPOCH:
                if chunk.data.readonly:
                    chunk.data = memoryview(bytearray(chunk.data))
                record_batch.patch_base_offset(chunk.data, position, header.base_offset, LEADER_EPOCH)
            next_offset = last_offset + 1
            chunk.last_offsets.append(last_offset)
            chunk.ends.append(position + header.size)
            in_slice += 1
            if in_slice == SLICE_BATCHES or position - slice_began >= SLICE_BYTES:
                in_slice, slice_began = 0, position
                yield
        if len(chunk.data) < wanted.end - wanted.start:
            raise CorruptBatchError(f"only {len(chunk.data)} of {wanted.end - wanted.start} bytes are there")
    except CorruptBatchError as error:
        is_cut_wrongly = not chunk.ends or isinstance(error, TornBatchError)
        if is_cut_wrongly and len(chunk.data) == wanted.end - wanted.start and not index_is_rebuilt:
            raise CorruptIndexError(f"the offset index does not lead to a batch: {error}") from error
        chunk.failure = CorruptBatchError(f"the batch at byte {chunk.end} of the segment: {error}")

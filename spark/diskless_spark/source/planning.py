"""Cuts what a query reads into tasks: ranges of WAL objects and parts of segments, as many bytes in each. Pure.

A WAL object holds batches of many partitions, next to each other. Tasks are cut along the objects, so that one task
reads an object for all partitions that share it. Within a task, the records of a partition are in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from diskless_core.layout.partition import PartitionLayout
from diskless_core.plugin.wal_object_store import MAX_GAP_BYTES
from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.wal.runs import Run
from diskless_spark.source.decoding import Place
from diskless_spark.source.offsets import Extent, Position, Span

MAX_GET_BYTES = 8 << 20


class WalPiece(NamedTuple):
    """Batches in a WAL object, of which the records from `start` to before `end` are wanted."""

    place: Place
    start: int
    end: int
    batches: Run
    topic_id: UUID

    @property
    def size_bytes(self) -> int:
        return self.batches.byte_size


class SegmentPiece(NamedTuple):
    """Records of a segment from `start` to before `end`, in about `size_bytes`."""

    place: Place
    start: int
    end: int
    segment: RemoteLogSegmentMetadata
    size_bytes: int

    @property
    def topic_id(self) -> UUID:
        return self.segment.segment_id.topic_id_partition.topic_id


Piece = WalPiece | SegmentPiece


class WalGet(NamedTuple):
    """Bytes of a WAL object that are read at once, for pieces in the order of their bytes."""

    object_key: str
    start: int
    end: int
    pieces: tuple[WalPiece, ...]


def place_of(layout: PartitionLayout) -> Place:
    return Place(layout.partition.topic, layout.partition.partition)


def extent_of(layout: PartitionLayout) -> Extent:
    return Extent(layout.start_offset, layout.end_offset)


def extents_of(layouts: Iterable[PartitionLayout]) -> dict[Place, Extent]:
    return {place_of(layout): extent_of(layout) for layout in layouts}


def topic_ids_of(layouts: Iterable[PartitionLayout]) -> dict[str, str]:
    """Ids of topics, by name, in Kafka's text form."""
    return {layout.partition.topic: uuid_text(layout.partition.topic_id) for layout in layouts}


def pieces(layout: PartitionLayout, span: Span, min_timestamp_ms: int | None = None) -> Iterator[Piece]:
    """Where the records of a span are, in order; without what has no record of `min_timestamp_ms` or later."""
    place = place_of(layout)
    for segment in layout.segments:
        start, end = max(span.start, segment.start_offset), min(span.end, segment.end_offset + 1)
        if start < end and not _is_before(segment.max_timestamp_ms, min_timestamp_ms):
            offsets = segment.end_offset + 1 - segment.start_offset
            size = max(1, segment.segment_size_bytes * (end - start) // offsets)
            yield SegmentPiece(place, start, end, segment, size)
    for batches in layout.ranges:
        start, end = max(span.start, batches.base_offset), min(span.end, batches.last_offset + 1)
        if start < end and not _is_before(latest_ms(batches), min_timestamp_ms):
            yield WalPiece(place, start, end, batches, layout.partition.topic_id)


def latest_ms(batches: Run) -> int:
    """The greatest timestamp that consumers see of a range."""
    return batches.append_time if batches.timestamp_type else batches.max_timestamp


def _is_before(greatest_ms: int, wanted_ms: int | None) -> bool:
    return wanted_ms is not None and greatest_ms < wanted_ms


def plan(
    layouts: Sequence[PartitionLayout],
    wanted: Mapping[Place, Span],
    *,
    max_task_bytes: int,
    min_tasks: int,
    min_timestamp_ms: int | None = None,
) -> list[tuple[Piece, ...]]:
    """What each task reads, in this order: at most about `max_task_bytes`, in about `min_tasks` tasks at least."""
    chosen = ((layout, [span]) for layout in layouts if (span := wanted.get(place_of(layout))) is not None)
    found_pieces = in_order(chosen, min_timestamp_ms)
    total = sum(piece.size_bytes for piece in found_pieces)
    target = max(1, min(max_task_bytes, -(-total // min_tasks)))
    return [tuple(some) for some in _packed([part for one in found_pieces for part in _cut(one, target)], target)]


def in_order(
    wanted: Iterable[tuple[PartitionLayout, Sequence[Span]]], min_timestamp_ms: int | None = None
) -> list[Piece]:
    """Where the records of spans are, those of each partition in order, and neighbours in an object together."""
    segments: list[SegmentPiece] = []
    ranges: list[tuple[_Moment, WalPiece]] = []
    for layout, some in wanted:
        found = [piece for span in some for piece in pieces(layout, span, min_timestamp_ms)]
        segments += [piece for piece in found if isinstance(piece, SegmentPiece)]
        ranges += _in_time([piece for piece in found if isinstance(piece, WalPiece)])
    ranges.sort(key=lambda one: one[0])
    return [*segments, *(piece for _, piece in ranges)]


def beginning_of(found: Iterable[Piece]) -> Position:
    """The position before all of these pieces."""
    offsets: dict[Place, int] = {}
    topic_ids: dict[str, str] = {}
    for piece in found:
        offsets[piece.place] = min(piece.start, offsets.get(piece.place, piece.start))
        topic_ids[piece.place.topic] = uuid_text(piece.topic_id)
    return Position(topic_ids=topic_ids, offsets=offsets)


def runs(found: Iterable[Piece]) -> dict[tuple[Place, UUID], list[Span]]:
    """The offsets that pieces have, by partition and topic id: one span where they follow each other."""
    spans: dict[tuple[Place, UUID], list[Span]] = defaultdict(list)
    for piece in found:
        known = spans[piece.place, piece.topic_id]
        if known and known[-1].end == piece.start:
            known[-1] = Span(known[-1].start, piece.end)
        else:
            known.append(Span(piece.start, piece.end))
    return dict(spans)


_Moment = tuple[int, str, int]


def _in_time(found: Sequence[WalPiece]) -> Iterator[tuple[_Moment, WalPiece]]:
    """Pieces of a partition with what orders them among all: neighbours in an object are neighbours there.

    Their own order is kept, also where two objects were committed in the same millisecond or a clock went back.
    """
    moment, object_key = -1, ""
    for piece in found:
        batches = piece.batches
        moment = max(moment if batches.object_key == object_key else moment + 1, batches.append_time)
        object_key = batches.object_key
        yield (moment, object_key, batches.byte_offset), piece


def _cut(piece: Piece, max_bytes: int) -> Iterator[Piece]:
    """Equal parts of a piece that is too large. Those of a range of a WAL object are each read with all of it."""
    parts = min(-(-piece.size_bytes // max_bytes), piece.end - piece.start)
    edges = [piece.start + (piece.end - piece.start) * part // parts for part in range(parts + 1)]
    for start, end in pairwise(edges):
        if isinstance(piece, SegmentPiece):
            yield piece._replace(start=start, end=end, size_bytes=max(1, piece.size_bytes // parts))
        else:
            yield piece._replace(start=start, end=end)


def _packed(found: Sequence[Piece], target: int) -> Iterator[list[Piece]]:
    task: list[Piece] = []
    size = 0
    for piece in found:
        if task and size + piece.size_bytes > target:
            yield task
            task, size = [], 0
        task.append(piece)
        size += piece.size_bytes
    if task:
        yield task


def gets(found: Sequence[WalPiece]) -> Iterator[WalGet]:
    """Requests for pieces in order: neighbours in an object together."""
    together: list[WalPiece] = []
    for piece in found:
        if together and not _is_near(together, piece.batches):
            yield _get(together)
            together = []
        together.append(piece)
    if together:
        yield _get(together)


def _is_near(before: Sequence[WalPiece], batches: Run) -> bool:
    last = before[-1].batches
    gap = batches.byte_offset - (last.byte_offset + last.byte_size)
    size = batches.byte_offset + batches.byte_size - before[0].batches.byte_offset
    return batches.object_key == last.object_key and 0 <= gap <= MAX_GAP_BYTES and size <= MAX_GET_BYTES


def _get(together: list[WalPiece]) -> WalGet:
    first, last = together[0].batches, together[-1].batches
    return WalGet(first.object_key, first.byte_offset, last.byte_offset + last.byte_size, tuple(together))

"""Looks up the first record of some time or later, as Kafka's ListOffsets does: in time indexes and batches."""

from __future__ import annotations

from diskless_core.layout.partition import PartitionLayout
from diskless_core.log import time_index
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.protocol import record_stream
from diskless_core.protocol.record_batch import CorruptBatchError, UnsupportedCompressionError
from diskless_spark.source import planning
from diskless_spark.source.decoding import wanted_offsets
from diskless_spark.source.offsets import Span
from diskless_spark.source.planning import Piece, SegmentPiece
from diskless_spark.source.reading import BatchReader
from diskless_spark.source.stores import NOT_FOUND, Stores


def first_offset_from(layout: PartitionLayout, timestamp_ms: int, stores: Stores, reader: BatchReader) -> int | None:
    """The offset of the first record whose timestamp is `timestamp_ms` or later; None without one.

    Raises what `BatchReader.read` raises.
    """
    everything = Span(layout.start_offset, layout.end_offset)
    for piece in planning.pieces(layout, everything, timestamp_ms):
        for batch in reader.read([_from_time(piece, timestamp_ms, stores)]):
            # The first batch may begin before what is read of it, and all its records of the piece count.
            try:
                found = record_stream.finished(record_stream.first_at_or_after(batch.data, timestamp_ms, piece.start))
            except (CorruptBatchError, UnsupportedCompressionError) as error:
                skipped = wanted_offsets(batch.start, batch.end, batch.header)
                reader.damage.report(batch.place, *skipped, CorruptBatchError(str(error)))
                continue
            if found is not None:
                return found.offset
    return None


def _from_time(piece: Piece, timestamp_ms: int, stores: Stores) -> Piece:
    """A piece without batches that are earlier. In segments, their time indexes say where to begin."""
    if not isinstance(piece, SegmentPiece):
        return piece
    try:
        index = stores.run(stores.read_index(piece.segment, IndexType.TIMESTAMP))
    except NOT_FOUND:
        return piece  # it was moved, and is found by its offsets
    begin = time_index.lookup(index, piece.segment.start_offset, timestamp_ms).offset
    return piece._replace(start=max(piece.start, min(begin, piece.end - 1)))

"""Reads the batches of pieces in order: several reads in flight, whole batches, nothing left out without a word."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from diskless_core.log import offset_index
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import BatchHeader, CorruptBatchError
from diskless_core.wal import batches as wal_batches
from diskless_core.wal.batches import Committed
from diskless_spark.source import planning
from diskless_spark.source.decoding import Place
from diskless_spark.source.layouts import Layouts
from diskless_spark.source.offsets import Losses, spans
from diskless_spark.source.options import SnapshotKind, Subscription
from diskless_spark.source.planning import MAX_GET_BYTES, Piece, SegmentPiece, WalGet, WalPiece
from diskless_spark.source.stores import NOT_FOUND, Stores

PARALLEL_GETS = 4
_ATTEMPTS = 3

_log = logging.getLogger(__name__)


class LostRecordsError(Exception):
    """Records that were asked for are gone. With failOnDataLoss=false, the query goes on without them."""


class MisplacedRecordsError(Exception):
    """Nothing is where records are said to be."""


class SegmentGet(NamedTuple):
    """Whole batches of a segment that are read at once."""

    piece: SegmentPiece
    start: int
    end: int


class ReadBatch(NamedTuple):
    """A batch as consumers get it, of which the records from `start` to before `end` are wanted."""

    place: Place
    start: int
    end: int
    header: BatchHeader
    data: memoryview


class Vanished(NamedTuple):
    """A segment whose index is gone."""

    piece: SegmentPiece
    error: Exception


_Get = WalGet | SegmentGet | Vanished


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPolicy:
    """What becomes of a query whose records are gone."""

    fail: bool

    def report(self, losses: Losses) -> None:
        """Raises:
        LostRecordsError: the policy is to fail, and something is lost.
        """
        if not losses.found:
            return
        words = "; ".join(losses.found)
        if self.fail:
            raise LostRecordsError(f"{words}. With failOnDataLoss=false, the query goes on with what there is")
        _log.warning("records are lost, and the query goes on without them: %s", words)


class BatchReader:
    """Reads pieces.

    Args:
        layouts: where to look for what is not at its place any more.
    """

    def __init__(self, stores: Stores, layouts: Layouts, policy: LossPolicy) -> None:
        self._stores = stores
        self._layouts = layouts
        self._policy = policy

    def read(self, pieces: Sequence[Piece], attempt: int = 1) -> Iterator[ReadBatch]:
        """The batches of pieces, one piece after the other. Control batches, which have no records, are left out.

        Raises:
            LostRecordsError: records are gone, and the policy is to fail.
            MisplacedRecordsError: they are not where the broker says.
            CorruptBatchError: something is damaged.
            WalObjectStoreError, RemoteStorageError: it cannot be read.
            LayoutError: it cannot be found out where something is that was moved.
        """
        waiting: deque[tuple[_Get, Future[memoryview]]] = deque()
        gets = self._gets(pieces)
        while True:
            while len(waiting) < PARALLEL_GETS and (get := next(gets, None)) is not None:
                waiting.append((get, self._stores.begin(self._read(get))))
            if not waiting:
                return
            get, answer = waiting.popleft()
            try:
                data = answer.result()
            except NOT_FOUND as error:
                yield from self._elsewhere(_pieces_of(get), attempt, error)
            else:
                yield from _batches(get, data)

    def _gets(self, pieces: Sequence[Piece]) -> Iterator[_Get]:
        for is_segment, some in groupby(pieces, lambda piece: isinstance(piece, SegmentPiece)):
            if not is_segment:
                yield from planning.gets([piece for piece in some if isinstance(piece, WalPiece)])
                continue
            for piece in some:
                if isinstance(piece, SegmentPiece):
                    yield from self._segment_gets(piece)

    def _segment_gets(self, piece: SegmentPiece) -> Iterator[_Get]:
        try:
            index = self._stores.run(self._stores.read_index(piece.segment, IndexType.OFFSET))
        except NOT_FOUND as error:
            yield Vanished(piece, error)
        else:
            yield from segment_gets(piece, bytes(index))

    async def _read(self, get: _Get) -> memoryview:
        match get:
            case WalGet():
                return await self._stores.read_object(get.object_key, get.start, get.end)
            case SegmentGet():
                return await self._stores.read_segment(get.piece.segment, get.start, get.end)
            case Vanished():
                raise get.error

    def _elsewhere(self, pieces: Sequence[Piece], attempt: int, error: Exception) -> Iterator[ReadBatch]:
        """Read pieces that are not at their place from where they are now: compaction may have moved them."""
        if attempt == _ATTEMPTS:
            piece = pieces[0]
            where = f"{piece.place.topic}-{piece.place.partition} from offset {piece.start} on"
            raise MisplacedRecordsError(
                f"{error}, where the broker says that records are, those of {where}: have the query use the same "
                "wal_object_store and remote_storage as the broker"
            ) from error
        if self._layouts.kind is SnapshotKind.BUCKET:
            losses = Losses()
            for piece in pieces:
                losses.add(
                    piece.place, f"offsets {piece.start} to {piece.end - 1} are not at their place any more: {error}"
                )
            self._policy.report(losses)
            return
        for piece in pieces:
            for layout in self._layouts.of(Subscription(places=frozenset({piece.place}))):
                losses = Losses()
                is_same_topic = layout.partition.topic_id == piece.topic_id
                extents = {piece.place: planning.extent_of(layout)} if is_same_topic else {}
                wanted = spans({piece.place: piece.start}, {piece.place: piece.end}, extents, losses)
                self._policy.report(losses)
                for span in wanted.values():
                    yield from self.read(list(planning.pieces(layout, span)), attempt + 1)


def segment_gets(piece: SegmentPiece, index: bytes) -> Iterator[SegmentGet]:
    """Requests for the wanted part of a segment's log, each of whole batches, as its offset index tells them.

    Raises:
        CorruptIndexError: the index does not consist of whole entries.
    """
    segment = piece.segment
    base, size = segment.start_offset, segment.segment_size_bytes
    position = offset_index.lookup(index, base, piece.start).position
    end = _end_of(offset_index.entries(index, base), piece.end, size)
    while position < end:
        following = offset_index.first_from(index, base, position + MAX_GET_BYTES)
        behind = min(end, size if following is None else following.position)
        yield SegmentGet(piece, position, behind)
        position = behind


def _end_of(entries: Sequence[offset_index.OffsetPosition], wanted_end: int, size: int) -> int:
    """A position behind the last batch that begins before the offset `wanted_end`: where an entry's batch begins."""
    last = bisect_left(entries, wanted_end - 1, key=lambda entry: entry.offset)
    return entries[last + 1].position if last + 1 < len(entries) else size


def _pieces_of(get: _Get) -> Sequence[Piece]:
    return get.pieces if isinstance(get, WalGet) else (get.piece,)


def _batches(get: _Get, data: memoryview) -> Iterator[ReadBatch]:
    match get:
        case WalGet():
            for piece in get.pieces:
                at = piece.batches.byte_offset - get.start
                yield from _of_object(piece, data[at : at + piece.batches.byte_size])
        case SegmentGet():
            yield from _of_segment(get, data)


def _of_object(piece: WalPiece, view: memoryview) -> Iterator[ReadBatch]:
    batches = piece.batches
    append_time_ms = batches.append_time_ms if batches.timestamp_type else None
    committed = Committed(batches.base_offset, batches.last_offset, batches.byte_size, append_time_ms)
    prepared = wal_batches.prepare(view, committed)
    if prepared.problem is not None:
        raise CorruptBatchError(
            f"the batches at byte {batches.byte_offset} of {batches.object_key}: {prepared.problem}"
        )
    yield from _wanted(piece, view)


def _of_segment(get: SegmentGet, view: memoryview) -> Iterator[ReadBatch]:
    where = f"the segment {get.piece.segment.segment_id.id} at byte {get.start}"
    try:
        for position, header in record_batch.walk(view):
            if not record_batch.crc_is_valid(view, position, header):
                raise CorruptBatchError(f"the checksum of the batch {position} bytes on is wrong")
    except CorruptBatchError as error:
        raise CorruptBatchError(f"{where}: {error}") from error
    yield from _wanted(get.piece, view)


def _wanted(piece: Piece, view: memoryview) -> Iterator[ReadBatch]:
    for position, header in record_batch.walk(view):
        if header.last_offset >= piece.start and header.base_offset < piece.end and not header.is_control:
            yield ReadBatch(piece.place, piece.start, piece.end, header, view[position : position + header.size])

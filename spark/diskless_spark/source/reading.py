"""Reads the batches of pieces in order: several reads in flight, whole batches, nothing left out without a word."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from diskless_core.log import offset_index
from diskless_core.log.offset_index import CorruptIndexError
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import BatchHeader, CorruptBatchError
from diskless_core.wal import batches as wal_batches
from diskless_core.wal.runs import Run
from diskless_spark.source import planning
from diskless_spark.source.decoding import Place
from diskless_spark.source.layouts import Layouts, still_there
from diskless_spark.source.offsets import Losses, spans
from diskless_spark.source.options import SnapshotKind
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
    """Whole batches of a segment that are read at once; `is_last` of those for its piece."""

    piece: SegmentPiece
    start: int
    end: int
    is_last: bool


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


class _NotFound(NamedTuple):
    """What is not at its place: the first so many pieces."""

    pieces: int
    error: Exception


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagePolicy:
    """What becomes of a query that comes to a damaged batch."""

    skip: bool = False

    def report(self, place: Place, first_offset: int, last_offset: int, error: CorruptBatchError) -> None:
        """Say that records from `first_offset` to `last_offset`, inclusive, are skipped.

        Raises:
            CorruptBatchError: the policy is not to skip them.
        """
        words = f"{place.name}, offsets {first_offset} to {last_offset}: {error}"
        if not self.skip:
            raise CorruptBatchError(
                f"{words}. With diskless.skipDamaged=true, the query goes on without these records"
            ) from error
        _log.warning("a damaged batch is skipped: %s", words)


class BatchReader:
    """Reads pieces.

    Args:
        layouts: where to look for what is not at its place any more.
        damage: for batches that are damaged; for their records, see `decoding`.
    """

    def __init__(self, stores: Stores, layouts: Layouts, policy: LossPolicy, damage: DamagePolicy) -> None:
        self.damage = damage
        self._stores = stores
        self._layouts = layouts
        self._policy = policy

    def read(self, pieces: Sequence[Piece]) -> Iterator[ReadBatch]:
        """The batches of pieces, one piece after the other. Control batches, which have no records, are left out.

        What is not at its place is looked for with all that is still to be read: what moved some of it moved more.

        Raises:
            LostRecordsError: records are gone, and the policy is to fail.
            MisplacedRecordsError: they are not where the broker says.
            CorruptBatchError: a batch is damaged, and the policy is to fail.
            CorruptIndexError: an index is damaged.
            WalObjectStoreError, RemoteStorageError: it cannot be read.
            LayoutError: it cannot be found out where something is that was moved.
        """
        unread = deque(pieces)
        planned_anew: deque[Piece] | None = None
        failures = 0
        while (missing := (yield from self._read_on(unread))) is not None:
            if self._layouts.kind is SnapshotKind.BUCKET:
                self._report_lost([unread.popleft() for _ in range(missing.pieces)], missing.error)
                continue
            failures = failures + 1 if unread == planned_anew else 1
            if failures == _ATTEMPTS:
                raise _misplaced(unread[0], missing.error)
            unread = deque(self._planned_anew(list(unread), missing.pieces))
            planned_anew = unread.copy()

    def _read_on(self, unread: deque[Piece]) -> Generator[ReadBatch, None, _NotFound | None]:
        """Read pieces, and take from `unread` what was read, up to what is not at its place."""
        waiting: deque[tuple[_Get, Future[memoryview]]] = deque()
        gets = self._gets(list(unread))
        try:
            while True:
                while len(waiting) < PARALLEL_GETS and (get := next(gets, None)) is not None:
                    waiting.append((get, self._stores.begin(self._read(get))))
                if not waiting:
                    return None
                get, answer = waiting.popleft()
                try:
                    data = answer.result()
                except NOT_FOUND as error:
                    return _NotFound(_pieces_of(get), error)
                behind = 0
                for batch in _batches(get, data, self.damage):
                    yield batch
                    behind = batch.header.last_offset + 1
                _take(unread, get, behind)
        finally:
            for _, answer in waiting:
                answer.cancel()

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

    def _report_lost(self, pieces: Iterable[Piece], error: Exception) -> None:
        losses = Losses()
        for piece in pieces:
            losses.add(
                piece.place, f"offsets {piece.start} to {piece.end - 1} are not at their place any more: {error}"
            )
        self._policy.report(losses)

    def _planned_anew(self, unread: Sequence[Piece], missing: int) -> list[Piece]:
        """Where the records of pieces are now: compaction may have moved them.

        Of the first `missing` pieces, what no layout tells of is lost. The others are then still tried at their places.
        """
        layouts = still_there(self._layouts, planning.beginning_of(unread))
        there = {(planning.place_of(layout), layout.partition.topic_id): layout for layout in layouts}

        def is_told(piece: Piece) -> bool:
            layout = there.get((piece.place, piece.topic_id))
            return layout is not None and layout.start_offset <= piece.start and piece.end <= layout.end_offset

        others = unread[missing:]
        losses = Losses()
        wanted = []
        runs = planning.runs([*unread[:missing], *filter(is_told, others)])
        for (place, topic_id), asked in runs.items():
            layout = there.get((place, topic_id))
            extents = {} if layout is None else {place: planning.extent_of(layout)}
            found = [spans({place: span.start}, {place: span.end}, extents, losses) for span in asked]
            if layout is not None:
                wanted.append((layout, [one[place] for one in found if one]))
        self._policy.report(losses)
        return [*(piece for piece in others if not is_told(piece)), *planning.in_order(wanted)]


def _misplaced(piece: Piece, error: Exception) -> MisplacedRecordsError:
    where = f"{piece.place.name} from offset {piece.start} on"
    misplaced = MisplacedRecordsError(
        f"{error}, where the broker says that records are, those of {where}: have the query use the same "
        "wal_object_store and remote_storage as the broker"
    )
    misplaced.__cause__ = error
    return misplaced


def _take(unread: deque[Piece], get: _Get, behind: int) -> None:
    """Take what was read from the beginning of `unread`; `behind` is the offset behind the last wanted batch."""
    if isinstance(get, SegmentGet) and not get.is_last:
        unread[0] = unread[0]._replace(start=max(unread[0].start, behind))
        return
    for _ in range(_pieces_of(get)):
        unread.popleft()


def segment_gets(piece: SegmentPiece, index: bytes) -> Iterator[SegmentGet]:
    """Requests for the wanted part of a segment's log, each of whole batches, as its offset index tells them.

    Raises:
        CorruptIndexError: the index does not consist of whole entries in order.
    """
    segment = piece.segment
    base, size = segment.start_offset, segment.segment_size_bytes
    position = offset_index.lookup(index, base, piece.start).position
    end = _end_of(offset_index.entries(index, base), piece.end, size)
    if position >= end:
        raise CorruptIndexError(f"the offset index of the segment {segment.segment_id.id} has positions out of order")
    while position < end:
        following = offset_index.first_from(index, base, position + MAX_GET_BYTES)
        behind = min(end, size if following is None else following.position)
        yield SegmentGet(piece, position, behind, behind == end)
        position = behind


def _end_of(entries: Sequence[offset_index.OffsetPosition], wanted_end: int, size: int) -> int:
    """A position behind the last batch that begins before the offset `wanted_end`: where an entry's batch begins."""
    last = bisect_left(entries, wanted_end - 1, key=lambda entry: entry.offset)
    return entries[last + 1].position if last + 1 < len(entries) else size


def _pieces_of(get: _Get) -> int:
    return len(get.pieces) if isinstance(get, WalGet) else 1


def _batches(get: _Get, data: memoryview, damage: DamagePolicy) -> Iterator[ReadBatch]:
    match get:
        case WalGet():
            for piece in get.pieces:
                at = piece.batches.byte_offset - get.start
                yield from _of_object(piece, data[at : at + piece.batches.byte_size], damage)
        case SegmentGet():
            yield from _of_segment(get, data, damage)


def _of_object(piece: WalPiece, view: memoryview, damage: DamagePolicy) -> Iterator[ReadBatch]:
    run: Run | None = piece.batches
    while run is not None:
        prepared = wal_batches.prepare(view, run)
        rest: Run | None = None
        if prepared.problem is not None:
            found = wal_batches.damage(view, run, prepared)
            rest = found.rest
            where = f"the batches at byte {run.byte_offset} of {run.object_key}"
            error = CorruptBatchError(f"{where}: {prepared.problem}")
            _report(piece, found.damaged.base_offset, found.damaged.last_offset, error, damage)
        yield from _wanted(piece, view[: prepared.size_bytes])
        view = view[rest.byte_offset - run.byte_offset :] if rest is not None else view
        run = rest


def _of_segment(get: SegmentGet, view: memoryview, damage: DamagePolicy) -> Iterator[ReadBatch]:
    where = f"the segment {get.piece.segment.segment_id.id} at byte {get.start}"
    next_offset = get.piece.start
    sound = end = 0
    torn: CorruptBatchError | None = None
    batches = record_batch.walk(view)
    while True:
        try:
            position, header = next(batches)
        except StopIteration:
            break
        except CorruptBatchError as error:
            torn = CorruptBatchError(f"{where}: {error}")
            break
        next_offset, end = header.last_offset + 1, position + header.size
        if not record_batch.crc_is_valid(view, position, header):
            wrong = CorruptBatchError(f"{where}: the checksum of the batch {position} bytes on is wrong")
            _report(get.piece, header.base_offset, header.last_offset, wrong, damage)
            yield from _wanted(get.piece, view[sound:position])
            sound = end
    if torn is not None:
        _report(get.piece, next_offset, get.piece.end - 1, torn, damage)
    yield from _wanted(get.piece, view[sound:end])


def _report(piece: Piece, first_offset: int, last_offset: int, error: CorruptBatchError, damage: DamagePolicy) -> None:
    if first_offset < piece.end and last_offset >= piece.start:
        damage.report(piece.place, max(first_offset, piece.start), min(last_offset, piece.end - 1), error)


def _wanted(piece: Piece, view: memoryview) -> Iterator[ReadBatch]:
    for position, header in record_batch.walk(view):
        if header.last_offset >= piece.start and header.base_offset < piece.end and not header.is_control:
            yield ReadBatch(piece.place, piece.start, piece.end, header, view[position : position + header.size])

"""A segment as it goes by: batches from WAL objects, prepared on a thread, their indexes built on the way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor

from diskless_core.log import leader_epochs, producer_snapshot
from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.log.segment_indexer import SegmentFullError, SegmentIndexer
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.segment_building.reads import Piece, SharedReads, pieces
from diskless_core.plugin.segment_compaction import SegmentCompactionError, SegmentPlan
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStoreError
from diskless_core.protocol import record_batch
from diskless_core.wal import batches
from diskless_core.wal.runs import Run

SLICE_BYTES = 1 << 20
"""What the thread does in one go. The event loop gets its turn in between."""

ANNOUNCED = 64
"""Pieces that are announced ahead, so that neighbours can bring them along."""

_LEADER_EPOCHS = {0: 0}


class SegmentStream:
    """One segment. `log` can be begun anew, as often as the copy is.

    Args:
        producers: those before its first batch; None where they are not known, so that there is no producer snapshot.
    """

    def __init__(
        self,
        plan: SegmentPlan,
        producers: ProducerState | None,
        reads: SharedReads,
        executor: Executor,
        *,
        parallel_reads: int,
        read_max_bytes: int,
        progressed: Callable[[int], None],
        producer_id_expiration_ms: int,
    ) -> None:
        self._plan = plan
        self._before = producers
        self._progressed = progressed
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._reads = reads
        self._executor = executor
        self._parallel_reads = parallel_reads
        self._read_max_bytes = read_max_bytes
        self._indexer = self._new_indexer()
        self._told_bytes = 0
        self._ahead: _ReadAhead | None = None
        self.failure: Exception | None = None

    @property
    def producers(self) -> ProducerState | None:
        """The idempotent producers behind the segment's end, if those before it are known."""
        if self._before is None:
            return None
        kept = producer_snapshot.without_expired(
            self._indexer.producers, self._plan.max_timestamp_ms, self._producer_id_expiration_ms
        )
        return dict(kept)

    @property
    def noted(self) -> ProducerState:
        """The idempotent producers that the segment has batches of."""
        producers = self._indexer.producers
        return {key: entry for key, entry in producers.items() if entry.last_offset >= self._plan.start_offset}

    def indexes(self) -> Mapping[IndexType, bytes]:
        """What goes beside the log, once all of it went by."""
        built, producers = self._indexer.finish(), self.producers
        indexes = {
            IndexType.OFFSET: built.offset_index,
            IndexType.TIMESTAMP: built.time_index,
            IndexType.LEADER_EPOCH: leader_epochs.encode(_LEADER_EPOCHS),
        }
        if producers is not None:
            indexes[IndexType.PRODUCER_SNAPSHOT] = producer_snapshot.encode(producers.values())
        return indexes

    async def log(self) -> AsyncIterator[ObjectData]:
        """The bytes of the `.log`.

        Raises:
            SegmentCompactionError: batches cannot be read, or are not what was planned; `failure` has it too.
        """
        await self.close()
        self._progressed(-self._told_bytes)
        self._told_bytes = 0
        self._indexer = self._new_indexer()
        source = pieces(self._plan.ranges, self._read_max_bytes)
        ahead = self._ahead = _ReadAhead(source, self._reads, parallel_reads=self._parallel_reads)
        try:
            while (found := await ahead.next()) is not None:
                piece, view = found
                await self._prepare(piece, view)
                yield view
                self._told_bytes += len(view)
                self._progressed(len(view))
            self._require_whole()
        except WalObjectStoreError as error:
            self.failure = error
            raise SegmentCompactionError(f"batches cannot be read: {error}") from error
        except SegmentCompactionError as error:
            self.failure = error
            raise

    async def close(self) -> None:
        """Let go of all memory."""
        if self._ahead is not None:
            await self._ahead.close()

    def _new_indexer(self) -> SegmentIndexer:
        return SegmentIndexer(
            self._plan.start_offset, interval_bytes=self._plan.index_interval_bytes, producers=self._before
        )

    async def _prepare(self, piece: Piece, view: memoryview) -> None:
        """On the thread; a slice that was begun is ended there even when this is cancelled."""
        loop = asyncio.get_running_loop()
        for ranges in _slices(piece.ranges):
            work = loop.run_in_executor(self._executor, self._prepare_slice, piece, view, ranges)
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])
                raise

    def _prepare_slice(self, piece: Piece, view: memoryview, ranges: Sequence[Run]) -> None:
        for one in ranges:
            at = one.byte_offset - piece.start
            part = view[at : at + one.byte_size]
            prepared = batches.prepare(part, one)
            if prepared.problem is not None:
                raise SegmentCompactionError(
                    f"the batches at byte {one.byte_offset} of {one.object_key}: {prepared.problem}. The partition is "
                    "compacted no further until the object is restored, or its records are deleted: "
                    f"`diskless wal verify --topic {self._plan.partition.topic}` tells the offsets"
                )
            try:
                for _, header in record_batch.walk(part):
                    self._indexer.add(header)
            except (SegmentFullError, ValueError) as error:
                raise SegmentCompactionError(f"the plan cannot be kept: {error}") from error

    def _require_whole(self) -> None:
        built = self._indexer.finish()
        if (built.size_bytes, built.end_offset) != (self._plan.size_bytes, self._plan.end_offset):
            raise SegmentCompactionError(
                f"{built.size_bytes} bytes up to offset {built.end_offset} were there, and not {self._plan.size_bytes} "
                f"up to {self._plan.end_offset}"
            )


class _ReadAhead:
    """Pieces in their order, some of them read ahead."""

    def __init__(self, source: Iterator[Piece], reads: SharedReads, *, parallel_reads: int) -> None:
        self._source = source
        self._reads = reads
        self._parallel_reads = parallel_reads
        self._announced: deque[Piece] = deque()
        self._reading: deque[tuple[Piece, asyncio.Task[memoryview]]] = deque()
        self._turn = asyncio.Lock()
        self._held: Piece | None = None

    async def next(self) -> tuple[Piece, memoryview] | None:
        """The next piece and its bytes, which are valid until the next one is asked for; None at the end.

        Raises:
            WalObjectStoreError: it cannot be read.
        """
        self._release()
        while len(self._announced) < ANNOUNCED and (piece := next(self._source, None)) is not None:
            self._reads.announce(piece)
            self._announced.append(piece)
        while self._announced and len(self._reading) < self._parallel_reads:
            piece = self._announced.popleft()
            self._reading.append((piece, asyncio.create_task(self._reads.read(piece, self._turn))))
        if not self._reading:
            return None
        piece, task = self._reading[0]
        view = await asyncio.shield(task)
        self._reading.popleft()
        self._held = piece
        return piece, view

    async def close(self) -> None:
        """Give back all memory. Idempotent."""
        self._release()
        for _, task in self._reading:
            task.cancel()
        await asyncio.gather(*(task for _, task in self._reading), return_exceptions=True)
        for piece, task in self._reading:
            if not task.cancelled() and task.exception() is None:
                self._reads.release(piece)
            self._reads.give_up(piece)
        for piece in self._announced:
            self._reads.give_up(piece)
        self._reading.clear()
        self._announced.clear()
        self._source = iter(())

    def _release(self) -> None:
        if self._held is not None:
            self._reads.release(self._held)
            self._held = None


def _slices(ranges: Sequence[Run]) -> Iterator[Sequence[Run]]:
    begin, size = 0, 0
    for index, one in enumerate(ranges):
        size += one.byte_size
        if size >= SLICE_BYTES:
            yield ranges[begin : index + 1]
            begin, size = index + 1, 0
    if begin < len(ranges):
        yield ranges[begin:]

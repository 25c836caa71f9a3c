"""Reads runs of batches through the cache: each range is fetched once at a time, checked and prepared once.

Prepared means: base offsets as the coordinator assigned them, leader epoch 0, and for LogAppendTime the commit's
time. Objects in the store keep what the producers sent. What another broker of the rack sends is prepared anew, from
this broker's own coordinates, and what does not fit these is read from the object store. What that sends short or
damaged is read once more: an answer can be damaged where the object is sound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

import structlog

from diskless_core.fetch import planner
from diskless_core.fetch.object_cache import Chunk, ObjectCache
from diskless_core.fetch.peer_objects import PeerObjects
from diskless_core.fetch.planner import ObjectRange
from diskless_core.fetch.store_reads import StoreReads
from diskless_core.fetch.widening import Widening
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.wal import batches
from diskless_core.wal.runs import Run

ReadError = WalObjectStoreError | CorruptBatchError

_log = structlog.get_logger(__name__)


class ReadRun(NamedTuple):
    """What could be read of a run.

    Attributes:
        data: its batches up to the first that is damaged, all of them where there is no failure.
        next_offset: the offset behind them.
        failure: what keeps the rest from being read.
        is_cold: whether they came from elsewhere, now or when they entered the cache: not from this broker's uploads.
        rest: the batches that follow one with a wrong checksum, as a run; None where they cannot be told apart.
    """

    data: memoryview
    next_offset: int
    failure: ReadError | None = None
    is_cold: bool = True
    rest: Run | None = None


class ObjectReader:
    """All reads of WAL objects for Fetch and ListOffsets."""

    def __init__(
        self, store: StoreReads, cache: ObjectCache, metrics: Metrics, peers: PeerObjects | None = None
    ) -> None:
        self._store = store
        self._cache = cache
        self._metrics = metrics
        self._peers = peers
        self._widening = Widening()
        self._from_cache = metrics.fetch_bytes.labels("cache")
        self._from_peer = metrics.fetch_bytes.labels("peer")
        self._from_store = metrics.fetch_bytes.labels("store")

    def uploaded(self, object_key: str, data: memoryview) -> None:
        """Keep what was just uploaded: whoever reads the tail wants it next. From now on the reader owns `data`."""
        self._cache.put(Chunk(object_key, 0, data, is_sound=True))

    def deleted(self, object_key: str) -> None:
        """Let go of an object that is no more."""
        self._cache.forget(object_key)

    def _cached(self, run: Run) -> ReadRun | None:
        """A run's batches, if they are in memory and sound."""
        chunk = self._cache.find(run.object_key, *_bytes_of(run))
        if chunk is None:
            return None
        read = _prepared(chunk, run)
        if read.failure is None:
            return read
        if chunk.lender is not None:
            self._refuse(chunk, read.failure)
        return None

    async def read(self, runs: Sequence[Run]) -> list[ReadRun]:
        """What can be read of each run. The views stay valid, and must not be written to."""
        found: dict[int, ReadRun] = {}
        missing = []
        for index, run in enumerate(runs):
            cached = self._cached(run)
            if cached is None:
                missing.append(index)
            else:
                found[index] = cached
                self._from_cache.inc(run.byte_size)
        if missing:
            outcomes = await self._read_anew([runs[index] for index in missing])
            found |= dict(zip(missing, outcomes, strict=True))
        return [found[index] for index in range(len(runs))]

    async def read_past_damage(self, read: Sequence[tuple[Run, ReadRun]], offset: int) -> list[tuple[Run, ReadRun]]:
        """What can be read from `offset` on of runs whose batches before that are damaged; `read` where it is not so.

        A consumer that was set behind a damaged batch goes on there: the batch is none of its business.
        """
        while True:
            failed = next((index for index, (_, content) in enumerate(read) if content.failure is not None), len(read))
            sound, broken = read[:failed], read[failed:]
            rest = broken[0][1].rest if broken else None
            if rest is None or rest.base_offset > offset or any(content.next_offset > offset for _, content in sound):
                return list(read)
            read = [(rest, (await self.read([rest]))[0]), *broken[1:]]

    async def _read_anew(self, runs: Sequence[Run]) -> list[ReadRun]:
        """What can be read of runs that the cache does not have."""
        chunks = await asyncio.gather(*map(self._fetch, planner.ranges(runs)))
        outcomes: list[ReadRun] = []
        doubtful: list[int] = []
        for index, run in enumerate(runs):
            outcome, chunk = _outcome(run, chunks)
            outcomes.append(outcome)
            is_lent = chunk is not None and chunk.lender is not None
            if chunk is not None and is_lent and outcome.failure is not None:
                doubtful.append(index)
                self._refuse(chunk, outcome.failure)
            else:
                (self._from_peer if is_lent else self._from_store).inc(run.byte_size)
                if chunk is not None and outcome.failure is not None:
                    self._cache.discard(chunk)  # or readers would find it before what is read again
        await self._read_again(runs, doubtful, outcomes)
        damaged = [index for index, outcome in enumerate(outcomes) if isinstance(outcome.failure, CorruptBatchError)]
        if damaged:
            _log.warning("what was read of objects is damaged, and is read once more", runs=len(damaged))
            self._metrics.store_read_failures.inc(len(damaged))
            await self._read_again(runs, damaged, outcomes)
        return outcomes

    async def _read_again(self, runs: Sequence[Run], which: Collection[int], outcomes: list[ReadRun]) -> None:
        """Read some of the runs from the object store, whatever there is in memory, and note what comes of it."""
        chunks = await asyncio.gather(*map(self._fetch_from_store, planner.ranges([runs[index] for index in which])))
        for index in which:
            outcomes[index], _ = _outcome(runs[index], chunks)
            self._from_store.inc(runs[index].byte_size)

    def _refuse(self, chunk: Chunk, failure: ReadError) -> None:
        self._cache.discard(chunk)
        if self._peers is not None and chunk.lender is not None:
            self._peers.sent_wrong_bytes(
                chunk.lender, ObjectRange(chunk.object_key, chunk.start, chunk.end), str(failure)
            )

    async def load(self, runs: Sequence[Run]) -> None:
        """Bring runs into the cache that it does not have. What cannot be read is left to whoever wants it."""
        missing = [run for run in runs if not self._cache.holds(run.object_key, *_bytes_of(run))]
        await asyncio.gather(*map(self._fetch, planner.ranges(missing)))

    def cached(self, wanted: ObjectRange) -> memoryview | None:
        """A range for another broker, if it is in memory."""
        chunk = self._cache.find(*wanted)
        return chunk.view(wanted.start, wanted.end) if chunk is not None else None

    async def stored(self, wanted: ObjectRange) -> memoryview:
        """A range for another broker from the object store; it is kept. Shorter where the object ends before.

        Raises:
            WalObjectStoreError: it cannot be read.
        """
        chunk = await self._read_directly(wanted)
        return chunk.view(wanted.start, min(wanted.end, max(chunk.end, wanted.start)))

    async def stop(self) -> None:
        """End the reads under way."""
        await self._cache.stop()

    async def _fetch(self, wanted: ObjectRange) -> Chunk | ReadError:
        peers = self._peers
        if peers is None or not peers.is_lent(wanted):
            return await self._fetch_from_store(wanted)
        try:
            return await self._cache.load(wanted, partial(self._borrow, peers, wanted))
        except WalObjectStoreError as error:
            return error

    async def _fetch_from_store(self, wanted: ObjectRange) -> Chunk | ReadError:
        try:
            return await self._read_directly(wanted)
        except WalObjectStoreError as error:
            return error

    async def _borrow(self, peers: PeerObjects, wanted: ObjectRange) -> Chunk:
        found = await peers.read(wanted, partial(self._get, wanted))
        if isinstance(found, Chunk):
            return found
        return Chunk(wanted.object_key, wanted.start, _writable(found.data), lender=found.node_id)

    async def _read_directly(self, wanted: ObjectRange) -> Chunk:
        widen = self._peers is not None and self._peers.reads_for_others and not self._cache.reads_much
        return await self._cache.load_directly(wanted, self._get, self._widening.widened if widen else _as_it_is)

    async def _get(self, wanted: ObjectRange) -> Chunk:
        self._metrics.store_reads.inc()
        with self._metrics.store_read_seconds.time(), self._metrics.store_read_failures.count_exceptions():
            data = await self._store.get(wanted.object_key, wanted.start, wanted.end)
        self._metrics.store_bytes_read.inc(len(data))
        return Chunk(wanted.object_key, wanted.start, _writable(data))


def _bytes_of(run: Run) -> tuple[int, int]:
    return run.byte_offset, run.byte_offset + run.byte_size


def _writable(data: bytes | bytearray | memoryview) -> memoryview:
    view = memoryview(data)
    return memoryview(bytearray(view)) if view.readonly else view


def _as_it_is(wanted: ObjectRange) -> ObjectRange:
    return wanted


def _outcome(run: Run, chunks: Sequence[Chunk | ReadError]) -> tuple[ReadRun, Chunk | None]:
    """What the chunks have of a run, and which of them has it."""
    failure: ReadError = CorruptBatchError(f"the object {run.object_key} ends before byte {run.byte_offset}")
    for chunk in chunks:
        if not isinstance(chunk, Chunk):
            failure = chunk
        elif chunk.object_key == run.object_key and chunk.start <= run.byte_offset < chunk.end:
            return _prepared(chunk, run), chunk
    return ReadRun(memoryview(b""), run.base_offset, failure), None


def _prepared(chunk: Chunk, run: Run) -> ReadRun:
    """What the chunk has of a run that begins in it."""
    view = chunk.view(run.byte_offset, min(run.byte_offset + run.byte_size, chunk.end))
    is_cold = not chunk.is_sound
    if run.byte_offset in chunk.prepared and len(view) == run.byte_size:
        return ReadRun(view, run.last_offset + 1, is_cold=is_cold)
    prepared = batches.prepare(view, run, verify=is_cold)
    if prepared.problem is None and chunk.lender is not None and batches.is_of_another_time(view, run):
        prepared = batches.Prepared(0, run.base_offset, "they are of another time")
    failure, rest = None, None
    if prepared.problem is None:
        chunk.prepared.add(run.byte_offset)
    else:
        failure = CorruptBatchError(f"the batches at byte {run.byte_offset} of {run.object_key}: {prepared.problem}")
        rest = batches.damage(view, run, prepared).rest
    return ReadRun(view[: prepared.size_bytes], prepared.next_offset, failure, is_cold, rest)

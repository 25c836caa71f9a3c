"""Reads runs of batches through the cache: each range is fetched once at a time, checked and prepared once.

Prepared means: base offsets as the coordinator assigned them, leader epoch 0, and for LogAppendTime the commit's
time. Objects in the store keep what the producers sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from diskless_core.fetch import planner
from diskless_core.fetch.object_cache import Chunk, ObjectCache
from diskless_core.fetch.planner import ObjectRange
from diskless_core.fetch.store_reads import StoreReads
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.wal import batches
from diskless_core.wal.runs import Run

ReadError = WalObjectStoreError | CorruptBatchError


class ReadRun(NamedTuple):
    """What could be read of a run.

    Attributes:
        data: its batches up to the first that is damaged, all of them where there is no failure.
        next_offset: the offset behind them.
        failure: what keeps the rest from being read.
        is_cold: whether they came from the object store, now or when they entered the cache.
    """

    data: memoryview
    next_offset: int
    failure: ReadError | None = None
    is_cold: bool = True


class ObjectReader:
    """All reads of WAL objects for Fetch and ListOffsets."""

    def __init__(self, store: StoreReads, cache: ObjectCache, metrics: Metrics) -> None:
        self._store = store
        self._cache = cache
        self._metrics = metrics
        self._from_cache = metrics.fetch_bytes.labels("cache")
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
        return read if read.failure is None else None

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
        wanted = planner.ranges(runs[index] for index in missing)
        chunks = await asyncio.gather(*map(self._fetch, wanted))
        for index in missing:
            found[index] = _outcome(runs[index], chunks)
            self._from_store.inc(runs[index].byte_size)
        return [found[index] for index in range(len(runs))]

    async def load(self, runs: Sequence[Run]) -> None:
        """Bring runs into the cache that it does not have. What cannot be read is left to whoever wants it."""
        missing = [run for run in runs if not self._cache.holds(run.object_key, *_bytes_of(run))]
        await asyncio.gather(*map(self._fetch, planner.ranges(missing)))

    async def _fetch(self, wanted: ObjectRange) -> Chunk | ReadError:
        try:
            return await self._cache.load(wanted, partial(self._get, wanted))
        except WalObjectStoreError as error:
            return error

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


def _outcome(run: Run, chunks: Sequence[Chunk | ReadError]) -> ReadRun:
    failure: ReadError = CorruptBatchError(f"the object {run.object_key} ends before byte {run.byte_offset}")
    for chunk in chunks:
        if not isinstance(chunk, Chunk):
            failure = chunk
        elif chunk.object_key == run.object_key and chunk.start <= run.byte_offset < chunk.end:
            return _prepared(chunk, run)
    return ReadRun(memoryview(b""), run.base_offset, failure)


def _prepared(chunk: Chunk, run: Run) -> ReadRun:
    """What the chunk has of a run that begins in it."""
    view = chunk.view(run.byte_offset, min(run.byte_offset + run.byte_size, chunk.end))
    is_cold = not chunk.is_sound
    if run.byte_offset in chunk.prepared and len(view) == run.byte_size:
        return ReadRun(view, run.last_offset + 1, is_cold=is_cold)
    prepared = batches.prepare(view, run, verify=is_cold)
    failure = None
    if prepared.problem is None:
        chunk.prepared.add(run.byte_offset)
    else:
        failure = CorruptBatchError(f"the batches at byte {run.byte_offset} of {run.object_key}: {prepared.problem}")
    return ReadRun(view[: prepared.size_bytes], prepared.next_offset, failure, is_cold)

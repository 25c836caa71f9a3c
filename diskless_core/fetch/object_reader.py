"""Reads runs of batches through the cache: each range is fetched once at a time, checked and prepared once.

Prepared means: base offsets as the coordinator assigned them, leader epoch 0, and for LogAppendTime the commit's
time. Objects in the store keep what the producers sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from diskless_core.coordinator.commands import Run, TimestampType
from diskless_core.fetch import planner
from diskless_core.fetch.object_cache import Chunk, ObjectCache
from diskless_core.fetch.planner import ObjectRange
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import CorruptBatchError

ReadError = WalObjectStoreError | CorruptBatchError


class ObjectReader:
    """All reads of WAL objects for Fetch and ListOffsets."""

    def __init__(self, store: WalObjectStore, cache: ObjectCache, metrics: Metrics) -> None:
        self._store = store
        self._cache = cache
        self._metrics = metrics
        self._from_cache = metrics.fetch_bytes.labels("cache")
        self._from_store = metrics.fetch_bytes.labels("store")
        self._in_flight: dict[ObjectRange, asyncio.Task[Chunk]] = {}

    def uploaded(self, object_key: str, data: memoryview) -> None:
        """Keep what was just uploaded: whoever reads the tail wants it next. From now on the reader owns `data`."""
        self._cache.put(Chunk(object_key, 0, data, is_sound=True))

    def deleted(self, object_key: str) -> None:
        """Let go of an object that is no more."""
        self._cache.forget(object_key)

    def cached(self, run: Run) -> memoryview | None:
        """A run's batches, if they are in memory and sound."""
        chunk = self._cache.find(run.object_key, run.byte_offset, run.byte_offset + run.byte_size)
        if chunk is None:
            return None
        try:
            return _prepared(chunk, run)
        except CorruptBatchError:
            return None

    async def read(self, runs: Sequence[Run]) -> list[memoryview | ReadError]:
        """Each run's batches, or what kept them from being read. The views stay valid, and must not be written to."""
        found: dict[int, memoryview | ReadError] = {}
        missing = []
        for index, run in enumerate(runs):
            view = self.cached(run)
            if view is None:
                missing.append(index)
            else:
                found[index] = view
                self._from_cache.inc(run.byte_size)
        wanted = planner.ranges(runs[index] for index in missing)
        chunks = await asyncio.gather(*map(self._fetch, wanted))
        for index in missing:
            found[index] = _outcome(runs[index], chunks)
            self._from_store.inc(runs[index].byte_size)
        return [found[index] for index in range(len(runs))]

    async def _fetch(self, wanted: ObjectRange) -> Chunk | ReadError:
        task = self._under_way(wanted)
        if task is None:
            task = self._in_flight[wanted] = asyncio.create_task(self._get(wanted))
            task.add_done_callback(lambda _: self._in_flight.pop(wanted))
        try:
            return await asyncio.shield(task)
        except WalObjectStoreError as error:
            return error

    def _under_way(self, wanted: ObjectRange) -> asyncio.Task[Chunk] | None:
        for other, task in self._in_flight.items():
            if other.object_key == wanted.object_key and other.start <= wanted.start and wanted.end <= other.end:
                return task
        return None

    async def _get(self, wanted: ObjectRange) -> Chunk:
        self._metrics.store_reads.inc()
        with self._metrics.store_read_seconds.time(), self._metrics.store_read_failures.count_exceptions():
            data = await self._store.get(wanted.object_key, wanted.start, wanted.end)
        self._metrics.store_bytes_read.inc(len(data))
        chunk = Chunk(wanted.object_key, wanted.start, _writable(data))
        self._cache.put(chunk)
        return chunk


def _writable(data: bytes | bytearray | memoryview) -> memoryview:
    view = memoryview(data)
    return memoryview(bytearray(view)) if view.readonly else view


def _outcome(run: Run, chunks: Sequence[Chunk | ReadError]) -> memoryview | ReadError:
    start, end = run.byte_offset, run.byte_offset + run.byte_size
    failure: ReadError = CorruptBatchError(f"the object {run.object_key} ends before byte {end}")
    for chunk in chunks:
        if not isinstance(chunk, Chunk):
            failure = chunk
        elif chunk.object_key == run.object_key and chunk.covers(start, end):
            try:
                return _prepared(chunk, run)
            except CorruptBatchError as error:
                return error
    return failure


def _prepared(chunk: Chunk, run: Run) -> memoryview:
    view = chunk.view(run.byte_offset, run.byte_offset + run.byte_size)
    if run.byte_offset not in chunk.prepared:
        _prepare(view, run, verify=not chunk.is_sound)
        chunk.prepared.add(run.byte_offset)
    return view


def _prepare(view: memoryview, run: Run, *, verify: bool) -> None:
    """Check all batches of a run before the first is changed, so that a second look finds the same."""
    batches = list(record_batch.walk(view))
    offset = run.base_offset
    for position, header in batches:
        if verify and not record_batch.crc_is_valid(view, position, header):
            raise CorruptBatchError(
                f"the checksum of the batch at byte {run.byte_offset + position} of {run.object_key} is wrong"
            )
        offset += header.last_offset_delta + 1
    if offset != run.last_offset + 1:
        raise CorruptBatchError(
            f"the batches at byte {run.byte_offset} of {run.object_key} have offsets up to {offset - 1}, "
            f"not {run.last_offset} as committed"
        )
    offset = run.base_offset
    for position, header in batches:
        record_batch.patch_base_offset(view, position, offset)
        if run.timestamp_type == TimestampType.LOG_APPEND_TIME:
            record_batch.patch_log_append_time(view, position, run.append_time)
        offset += header.last_offset_delta + 1

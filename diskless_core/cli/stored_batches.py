"""Walks the batches of WAL objects and of segments, and tells which of them consumers cannot read, and why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from diskless_core.cli.wal_objects import read_index
from diskless_core.layout.partition import PartitionLayout
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.segment_building.reads import pieces
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, WalObjectStore
from diskless_core.protocol import record_batch, record_stream
from diskless_core.protocol.record_batch import HEADER_BYTES, BatchHeader, CorruptBatchError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.wal.format import IndexEntry

READ_BYTES = 8 << 20
"""What is read at once; a batch that is larger is read as a whole."""


class FoundBatch(NamedTuple):
    """A batch that was checked.

    Attributes:
        place: the object's key, or the segment's id.
        byte_offset: where in it the batch begins.
        size: of the batch in bytes. Where it cannot be told where it ends, all that follows it.
        first_offset, last_offset: of its records, inclusive; None in an object that was walked without its coordinator,
            which alone knows them.
        problem: why consumers cannot read it; None where they can.
    """

    place: str
    byte_offset: int
    size: int
    first_offset: int | None
    last_offset: int | None
    problem: str | None


_Read = Callable[[int, int], Awaitable[ObjectData]]
"""Reads bytes from a position (inclusive) to another (exclusive)."""


async def in_object(store: WalObjectStore, found: ObjectInfo) -> AsyncIterator[tuple[IndexEntry, FoundBatch]]:
    """All batches of an object, with its index' entry for their partition.

    Raises:
        WalFormatError: it is no WAL object, or its index is damaged.
        WalObjectStoreError: the store can't be read.
    """

    async def read(start: int, end: int) -> ObjectData:
        return await store.get(found.key, start, end)

    for entry in await read_index(store, found):
        async for position, size, _, problem in _walked(read, entry.byte_offset, entry.byte_offset + entry.size):
            yield entry, FoundBatch(found.key, position, size, None, None, problem)


async def in_partition(
    layout: PartitionLayout,
    store: WalObjectStore,
    open_storage: Callable[[], AbstractAsyncContextManager[RemoteStorage]],
) -> AsyncIterator[FoundBatch]:
    """All batches of a partition that have records at its log start or later: of segments, then of WAL objects.

    Args:
        open_storage: opens the remote storage; only called when there are segments.

    Raises:
        RemoteStorageError, WalObjectStoreError: batches can't be read, or have been moved or deleted meanwhile.
    """
    start_offset = layout.start_offset
    if layout.segments:
        async with open_storage() as storage:
            for segment in layout.segments:
                async for batch in _in_segment(storage, segment):
                    if batch.last_offset is None or batch.last_offset >= start_offset:
                        yield batch
        start_offset = max(start_offset, layout.segments[-1].end_offset + 1)
    async for batch in _in_runs(layout, store):
        if batch.last_offset is None or batch.last_offset >= start_offset:
            yield batch


async def _in_segment(storage: RemoteStorage, segment: RemoteLogSegmentMetadata) -> AsyncIterator[FoundBatch]:
    async def read(start: int, end: int) -> ObjectData:
        return await storage.fetch(segment, start, end)

    place = f"segment {segment.segment_id.id}"
    next_offset = segment.start_offset
    async for position, size, header, problem in _walked(read, 0, segment.segment_size_bytes):
        if header is None:
            yield FoundBatch(place, position, size, next_offset, segment.end_offset, problem)
        else:
            next_offset = header.last_offset + 1
            yield FoundBatch(place, position, size, header.base_offset, header.last_offset, problem)


async def _in_runs(layout: PartitionLayout, store: WalObjectStore) -> AsyncIterator[FoundBatch]:
    for piece in pieces(layout.ranges, READ_BYTES):
        data = memoryview(await store.get(piece.object_key, piece.start, piece.end))
        for run in piece.ranges:
            part = data[run.byte_offset - piece.start : run.byte_offset - piece.start + run.byte_size]

            async def read(start: int, end: int, part: memoryview = part, begin: int = run.byte_offset) -> memoryview:
                return part[start - begin : end - begin]

            next_offset = run.base_offset
            end = run.byte_offset + run.byte_size
            async for position, size, header, problem in _walked(read, run.byte_offset, end):
                first = next_offset
                # The coordinator's offsets: in an object, batches have those that their producers sent.
                next_offset = run.last_offset + 1 if header is None else first + header.last_offset_delta + 1
                yield FoundBatch(run.object_key, position, size, first, next_offset - 1, problem)


async def _walked(read: _Read, start: int, end: int) -> AsyncIterator[tuple[int, int, BatchHeader | None, str | None]]:
    """Position, size, header and problem of each batch between two bytes.

    After one whose header does not say where it ends, the rest is one batch without a header.
    """
    position, began, window = start, start, memoryview(b"")
    while position < end:
        if position + HEADER_BYTES > began + len(window):
            began, window = position, memoryview(await read(position, min(end, position + READ_BYTES)))
        try:
            if position + HEADER_BYTES > began + len(window):
                raise CorruptBatchError(f"only {began + len(window) - position} of its bytes are there")
            header = record_batch.read_header(window, position - began, end - began)
        except CorruptBatchError as error:
            yield position, end - position, None, str(error)
            return
        if position + header.size > began + len(window):
            size = max(header.size, min(end - position, READ_BYTES))
            began, window = position, memoryview(await read(position, position + size))
        batch = window[position - began : position - began + header.size]
        yield position, header.size, header, record_stream.problem_of(batch)
        position += header.size

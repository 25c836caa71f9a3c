"""Compares the copy of a segment with what its storage was given: the size and the checksum of the log and each index.

The bytes are read back from the storage. A segment counts, and its batches in WAL objects are forgotten, only when all
of them are the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TypeVar

import structlog
from crc32c import crc32c

from diskless_core.plugin.forwarding import ForwardingRemoteStorage
from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
)
from diskless_core.plugin.segment_compaction import SegmentCompactionError, WrittenCopy, WrittenFile
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata

T = TypeVar("T")

READ_BYTES = 8 << 20
"""How much of a log is read at once: as much as a part of an upload has."""

READS_AT_ONCE = 2
"""Reads of one log that are under way at once. With `READ_BYTES` this bounds the memory of a comparison."""

_log = structlog.get_logger(__name__)


class CopyDiffersError(SegmentCompactionError):
    """What the storage has is not what it was given. The copy must not be finished."""


class CopyMissingError(CopyDiffersError):
    """The storage has no such segment."""


class NotingRemoteStorage(ForwardingRemoteStorage):
    """Notes the sizes and checksums of what it hands to the storage behind it. It is started and stopped elsewhere."""

    def __init__(self, storage: RemoteStorage) -> None:
        super().__init__(storage)
        self._written: dict[RemoteLogSegmentId, WrittenCopy] = {}

    async def start(self) -> None:
        """The storage behind it has been started."""

    async def stop(self) -> None:
        """Others still use it."""

    async def _ask(self, step: Callable[[RemoteStorage], Awaitable[T]]) -> T:
        return await step(self._storage)

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        notes = _Notes(data)
        custom_metadata = await self._storage.copy(metadata, LogSegmentData(log=notes.log, indexes=notes.indexes))
        self._written[metadata.segment_id] = notes.written(metadata)
        return custom_metadata

    async def replace_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType, data: bytes) -> None:
        await super().replace_index(metadata, index, data)
        written = self._written.get(metadata.segment_id)
        if written is not None:
            self._written[metadata.segment_id] = written.with_index(index, data)

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._written.pop(metadata.segment_id, None)
        await super().delete(metadata)

    def written(self, segment_id: RemoteLogSegmentId) -> WrittenCopy:
        """What was noted of a segment that this has copied."""
        return self._written[segment_id]

    def take_written(self, segment_id: RemoteLogSegmentId) -> WrittenCopy | None:
        """What was noted of a segment, which is then forgotten; None where this did not copy it."""
        return self._written.pop(segment_id, None)


class _Notes:
    """The data of one copy as they go by. Asking for either again starts the copy from the beginning."""

    def __init__(self, data: LogSegmentData) -> None:
        self._data = data
        self._log: WrittenFile | None = None
        self._indexes: Mapping[IndexType, WrittenFile] | None = None

    async def log(self) -> AsyncIterator[ObjectData]:
        size_bytes = checksum = 0
        self._log = None
        source = self._data.log()
        async with aclosing(source if isinstance(source, AsyncGenerator) else _closable(source)) as pieces:
            async for piece in pieces:
                size_bytes += len(piece)
                checksum = crc32c(piece, checksum)  # before the storage has it: it may reuse the memory
                yield piece
        self._log = WrittenFile(size_bytes=size_bytes, crc32c=checksum)

    def indexes(self) -> Mapping[IndexType, bytes]:
        indexes = self._data.indexes()
        self._indexes = {index: WrittenFile.of(content) for index, content in indexes.items()}
        return indexes

    def written(self, metadata: RemoteLogSegmentMetadata) -> WrittenCopy:
        """What the storage has been given.

        Raises:
            RemoteStorageError: it did not take all of it, and says that it has copied the segment.
        """
        if self._log is None or self._indexes is None:
            raise RemoteStorageError(
                f"the storage says that it has copied {metadata.segment_id.id}, and has not read all of its data",
                retriable=False,
            )
        return WrittenCopy(log=self._log, indexes=self._indexes)


async def compare(
    storage: RemoteStorage,
    metadata: RemoteLogSegmentMetadata,
    written: WrittenCopy,
    *,
    with_log: bool = True,
    with_indexes: bool = True,
) -> None:
    """Read a copy back, in bounded memory, and compare it with what was written.

    What differs is read once more: a read can be damaged where the copy is sound.

    Args:
        metadata: with the custom metadata that the storage wants to have.
        with_log: False compares only the log's size, for a log that was read back elsewhere.
        with_indexes: False leaves the indexes to another comparison.

    Raises:
        CopyMissingError: there is no such segment.
        CopyDiffersError: the copy has other bytes.
        RemoteStorageError: it cannot be read.
    """
    partition = metadata.segment_id.topic_id_partition
    copy = f"the copy {metadata.segment_id.id} of {partition.name} at offset {metadata.start_offset}"

    async def look() -> str | None:
        difference = await (_log_difference if with_log else _size_difference)(storage, metadata, written.log)
        if difference is None and with_indexes:
            difference = await _index_difference(storage, metadata, written.indexes)
        return difference

    try:
        difference = await look()
        if difference is not None:
            _log.warning("a copy is not what was written, and is read once more", copy=copy, difference=difference)
            difference = await look()
    except RemoteResourceNotFoundError as error:
        raise CopyMissingError(f"{copy} is not in remote storage: {error}") from error
    if difference is not None:
        raise CopyDiffersError(
            f"{copy} is not what was written to remote storage: {difference}. Its records are still in WAL "
            "objects, and the next compaction copies them again. If this goes on, look for a fault of the storage."
        )


async def _index_difference(
    storage: RemoteStorage, metadata: RemoteLogSegmentMetadata, written: Mapping[IndexType, WrittenFile]
) -> str | None:
    for index, expected in written.items():
        try:
            found = WrittenFile.of(await storage.fetch_index(metadata, index))
        except RemoteResourceNotFoundError:
            return f"it has no {index}"
        if found != expected:
            return f"its {index} has {_words(found)}, and not {_words(expected)}"
    return None


async def _size_difference(
    storage: RemoteStorage, metadata: RemoteLogSegmentMetadata, expected: WrittenFile
) -> str | None:
    if expected.size_bytes != metadata.segment_size_bytes:
        return _not_planned(expected, metadata)
    tail = await storage.fetch(metadata, expected.size_bytes - 1, expected.size_bytes + 1)
    return None if len(tail) == 1 else _wrong_size(expected.size_bytes - 1 + len(tail), expected)


async def _log_difference(
    storage: RemoteStorage, metadata: RemoteLogSegmentMetadata, expected: WrittenFile
) -> str | None:
    if expected.size_bytes != metadata.segment_size_bytes:
        return _not_planned(expected, metadata)
    size_bytes, checksum = expected.size_bytes, 0
    waiting = deque(range(0, size_bytes, READ_BYTES))
    reading: deque[tuple[int, asyncio.Task[ObjectData]]] = deque()

    async def read(start: int) -> ObjectData:
        is_last = start + READ_BYTES >= size_bytes
        return await storage.fetch(metadata, start, size_bytes + 1 if is_last else start + READ_BYTES)

    try:
        while waiting or reading:
            while waiting and len(reading) < READS_AT_ONCE:
                start = waiting.popleft()
                reading.append((start, asyncio.create_task(read(start))))
            start, task = reading[0]
            piece = await task
            reading.popleft()
            if len(piece) != min(READ_BYTES, size_bytes - start):
                return _wrong_size(start + len(piece), expected)
            checksum = crc32c(piece, checksum)
    finally:
        for _, task in reading:
            task.cancel()
        await asyncio.gather(*(task for _, task in reading), return_exceptions=True)
    found = WrittenFile(size_bytes=size_bytes, crc32c=checksum)
    return None if found == expected else f"its log has {_words(found)}, and not {_words(expected)}"


def _not_planned(expected: WrittenFile, metadata: RemoteLogSegmentMetadata) -> str:
    return f"its log has {expected.size_bytes} bytes, and {metadata.segment_size_bytes} were planned"


def _wrong_size(found_bytes: int, expected: WrittenFile) -> str:
    if found_bytes < expected.size_bytes:
        return f"its log ends at byte {found_bytes}, and {expected.size_bytes} were written"
    return f"its log goes on behind the {expected.size_bytes} bytes that were written"


def _words(file: WrittenFile) -> str:
    return f"{file.size_bytes} bytes with the checksum {file.crc32c:08x}"


async def _closable(data: AsyncIterator[ObjectData]) -> AsyncGenerator[ObjectData, None]:
    async for piece in data:
        yield piece

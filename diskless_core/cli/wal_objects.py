"""Reads WAL objects piece by piece: trailer and index first, then batch headers, as few bytes as will do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from diskless_core.plugin.wal_object_store import ObjectInfo, ObjectNotFoundError, WalObjectStore
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import HEADER_BYTES, MAGIC, BatchHeader, CorruptBatchError
from diskless_core.wal import format as wal_format
from diskless_core.wal.format import IndexEntry, WalFormatError

TAIL_BYTES = 64 * 1024
"""What is read from an object's end at first: trailer and index of more than a thousand partitions."""

WINDOW_BYTES = 64 * 1024
"""What is read of the batches at once: many small ones, or no more than this of a large one."""


async def find_object(store: WalObjectStore, key: str) -> ObjectInfo:
    """The object of exactly this key.

    Raises:
        ObjectNotFoundError: there is none.
        WalObjectStoreError: the store can't be read.
    """
    async for page in store.list(key):
        for found in page:
            if found.key == key:
                return found
    raise ObjectNotFoundError(key)


async def read_index(store: WalObjectStore, found: ObjectInfo) -> Sequence[IndexEntry]:
    """The object's index, in two or three ranged gets.

    Raises:
        WalFormatError: it is no WAL object, or a damaged one.
        WalObjectStoreError: the store can't be read.
    """
    wal_format.check_header(await store.get(found.key, 0, wal_format.HEADER_BYTES))
    tail_start = max(0, found.size_bytes - TAIL_BYTES)
    tail = await store.get(found.key, tail_start, found.size_bytes)
    trailer = wal_format.read_trailer(tail, found.size_bytes)
    index_end = found.size_bytes - wal_format.TRAILER_BYTES
    if trailer.index_position >= tail_start:
        index = memoryview(tail)[trailer.index_position - tail_start : index_end - tail_start]
    else:
        index = memoryview(await store.get(found.key, trailer.index_position, index_end))
    entries = wal_format.decode_index(index, trailer)
    for entry in entries:
        if not wal_format.HEADER_BYTES <= entry.byte_offset <= entry.byte_offset + entry.size <= trailer.index_position:
            raise WalFormatError(f"the index puts partition {entry.partition} where no batches can be: {entry}")
    return entries


async def read_headers(
    store: WalObjectStore, key: str, entry: IndexEntry, *, verify: bool
) -> AsyncIterator[tuple[int, BatchHeader]]:
    """Byte offset and header of each batch of one partition; with `verify` the batches are read too, and their CRCs.

    Raises:
        WalFormatError: the bytes are not the batches that the index promises, at the first that differs or at the end.
        WalObjectStoreError: the store can't be read.
    """
    position, end = entry.byte_offset, entry.byte_offset + entry.size
    start, window = position, memoryview(b"")
    batches = records = 0
    while position < end:
        if not start <= position <= position + HEADER_BYTES <= start + len(window):
            start, window = position, memoryview(await store.get(key, position, min(end, position + WINDOW_BYTES)))
        header = _header_at(window, position - start, end - start, position)
        if verify:
            if position + header.size > start + len(window):
                start, window = position, memoryview(await store.get(key, position, position + header.size))
            if len(window) < position - start + header.size or not record_batch.crc_is_valid(
                window, position - start, header
            ):
                raise WalFormatError(f"the batch at byte {position} is damaged: its CRC is wrong")
        yield position, header
        position += header.size
        batches, records = batches + 1, records + header.record_count
    if (batches, records) != (entry.batch_count, entry.record_count):
        raise WalFormatError(
            f"partition {entry.partition} has {batches} batches with {records} records, "
            f"but the index says {entry.batch_count} with {entry.record_count}"
        )


def _header_at(window: memoryview, at: int, limit: int, position: int) -> BatchHeader:
    if len(window) - at < HEADER_BYTES <= limit - at:
        raise WalFormatError(f"the object ends within the batch at byte {position}")
    try:
        header = record_batch.read_header(window, at, limit)
    except CorruptBatchError as error:
        raise WalFormatError(f"there is no batch at byte {position}: {error}") from error
    if header.magic != MAGIC:
        raise WalFormatError(f"there is no batch at byte {position}: it would have magic {header.magic}")
    return header

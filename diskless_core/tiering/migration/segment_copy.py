"""Copies segments from one remote storage to another, and checks every batch on its way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from crc32c import crc32c

from diskless_core.log import leader_epochs
from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
)
from diskless_core.plugin.segment_building.comparing import CopyDiffersError, NotingRemoteStorage, compare
from diskless_core.plugin.segment_compaction import WrittenCopy, WrittenFile
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import HEADER_BYTES, MAGIC, CorruptBatchError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.side_by_side import in_thread

CHUNK_BYTES = 8 * 1024 * 1024


class SegmentDamagedError(Exception):
    """A segment is not what its metadata says. It is not copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCopy:
    """A segment to be copied: what it is in the one storage, and what it is to be in the other.

    If it has other leader epochs there, it has a single one, which is written into its batches.
    """

    source: RemoteLogSegmentMetadata
    target: RemoteLogSegmentMetadata

    @property
    def leader_epoch(self) -> int | None:
        """The leader epoch that the batches get; None where they keep theirs."""
        if self.source.segment_leader_epochs == self.target.segment_leader_epochs:
            return None
        (epoch,) = self.target.segment_leader_epochs
        return epoch


async def copy_segment(copy: SegmentCopy, source: RemoteStorage, target: RemoteStorage) -> bytes | None:
    """Copy a segment, whatever is there already.

    Returns:
        The custom metadata that the other storage wants.

    Raises:
        SegmentDamagedError: the source is.
        RemoteStorageError: a storage could not do it.
    """
    return await _copy(copy, await _read_indexes(copy, source), source, target)


async def ensure_copied(copy: SegmentCopy, source: RemoteStorage, target: RemoteStorage) -> None:
    """Copy a segment to a storage that wants no custom metadata, unless it has all of it already. Raises as above."""
    indexes = await _read_indexes(copy, source)
    if not await _is_complete(copy, indexes, source, target):
        await _copy(copy, indexes, source, target)


async def check_segment(metadata: RemoteLogSegmentMetadata, storage: RemoteStorage) -> None:
    """Read a segment's log, and check every batch of it.

    Raises:
        SegmentDamagedError: it is not what its metadata says.
        RemoteStorageError: it cannot be read.
    """
    async for _ in _checked_log(SegmentCopy(source=metadata, target=metadata), storage):
        pass


async def _copy(
    copy: SegmentCopy, indexes: Mapping[IndexType, bytes], source: RemoteStorage, target: RemoteStorage
) -> bytes | None:
    noting = NotingRemoteStorage(target)
    custom_metadata = await noting.copy(
        copy.target, LogSegmentData(log=lambda: _checked_log(copy, source), indexes=lambda: indexes)
    )
    written = noting.take_written(copy.target.segment_id)
    if written is not None:
        try:
            await compare(target, replace(copy.target, custom_metadata=custom_metadata), written)
        except CopyDiffersError as error:
            raise SegmentDamagedError(str(error)) from error
    return custom_metadata


async def _read_indexes(copy: SegmentCopy, source: RemoteStorage) -> dict[IndexType, bytes]:
    indexes = {}
    for index in IndexType:
        if index is IndexType.TRANSACTION and copy.source.txn_index_empty:
            continue
        indexes[index] = bytes(await source.fetch_index(copy.source, index))
    if copy.leader_epoch is not None:
        indexes[IndexType.LEADER_EPOCH] = leader_epochs.encode({copy.leader_epoch: copy.target.start_offset})
    return indexes


async def _is_complete(
    copy: SegmentCopy, indexes: Mapping[IndexType, bytes], source: RemoteStorage, target: RemoteStorage
) -> bool:
    """Whether the target has all of a segment. What an earlier run has copied and not compared counts for nothing."""
    try:
        await target.fetch(copy.target, 0, 1)
    except RemoteResourceNotFoundError:
        return False
    size_bytes = checksum = 0
    async for piece in _checked_log(copy, source):
        size_bytes, checksum = size_bytes + len(piece), crc32c(piece, checksum)
    wanted = WrittenCopy(
        log=WrittenFile(size_bytes=size_bytes, crc32c=checksum),
        indexes={index: WrittenFile.of(content) for index, content in indexes.items()},
    )
    try:
        await compare(target, copy.target, wanted)
    except CopyDiffersError:
        return False
    return True


async def _checked_log(copy: SegmentCopy, source: RemoteStorage) -> AsyncIterator[ObjectData]:
    """The log in pieces of whole batches, each intact, in order and within the segment's offsets."""
    name = _name(copy.source)
    rest, position, next_offset = bytearray(), 0, copy.source.start_offset
    try:
        while position < copy.source.segment_size_bytes:
            end = min(position + CHUNK_BYTES, copy.source.segment_size_bytes)
            piece = await source.fetch(copy.source, position, end)
            if len(piece) != end - position:
                raise SegmentDamagedError(f"{name} has {position + len(piece)} bytes, less than its metadata says")
            position = end
            rest += piece
            size, next_offset = await in_thread(partial(_check_batches, rest, next_offset, copy))
            yield bytes(memoryview(rest)[:size])
            del rest[:size]
    except CorruptBatchError as error:
        raise SegmentDamagedError(f"{name} is damaged: {error}") from error
    if rest:
        raise SegmentDamagedError(f"{name} ends within a batch")


def _name(metadata: RemoteLogSegmentMetadata) -> str:
    return f"the segment {metadata.segment_id.id} of {metadata.segment_id.topic_id_partition.topic}"


def _check_batches(data: bytearray, next_offset: int, copy: SegmentCopy) -> tuple[int, int]:
    """Check the whole batches at the beginning, and give them their leader epoch. Their size, and the next offset."""
    position = 0
    while len(data) - position >= HEADER_BYTES:
        try:
            header = record_batch.read_header(data, position)
        except record_batch.TornBatchError:
            break
        if header.magic != MAGIC:
            raise CorruptBatchError(f"the batch at offset {header.base_offset} has the old format {header.magic}")
        if not record_batch.crc_is_valid(data, position, header):
            raise CorruptBatchError(f"the checksum of the batch at offset {header.base_offset} is wrong")
        if header.base_offset < next_offset or header.last_offset > copy.source.end_offset:
            raise CorruptBatchError(f"it has a batch at offset {header.base_offset} where {next_offset} comes next")
        if copy.leader_epoch is not None:
            record_batch.patch_base_offset(data, position, header.base_offset, copy.leader_epoch)
        position += header.size
        next_offset = header.last_offset + 1
    return position, next_offset

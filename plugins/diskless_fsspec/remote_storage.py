"""Segments in whatever place fsspec reaches: the steps of a copy, common to all of them, and errors in our words."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager

from diskless_core.pages import PagePool
from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
)
from diskless_core.plugin.wal_object_store import ObjectData, ObjectNotFoundError, WalObjectStoreError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_fsspec.parts import in_parts, to_the_end
from diskless_fsspec.segments import LOG, SegmentStore, SegmentUpload, segment_key

logger = logging.getLogger(__name__)

IDLE_PARTS = 4
_BEYOND_ANY_INDEX = 1 << 40


class FsspecRemoteStorage(RemoteStorage):
    """Segments in a store. It needs no custom metadata."""

    can_replace_index = True

    def __init__(
        self,
        store: SegmentStore,
        *,
        node_local: bool = False,
        process_local: bool = False,
        broker_local: bool = False,
    ) -> None:
        self.store = store
        self.is_node_local = node_local
        self.is_broker_local = broker_local
        self.copies_may_overlap = store.uploads_may_overlap
        self.is_process_local = process_local
        self._memory = PagePool(IDLE_PARTS * store.part_bytes)

    async def start(self) -> None:
        with _translated():
            await self.store.start()

    async def stop(self) -> None:
        await self.store.stop()

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        key = segment_key(metadata)
        upload = self.store.upload(key, metadata.segment_size_bytes)
        try:
            await self._write_log(upload, metadata, data)
            indexes = data.indexes()
        except BaseException:
            await to_the_end(_discard(upload, key))
            raise
        with _translated():
            await to_the_end(_publish(upload, key, indexes))

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        return await self._read(segment_key(metadata) + LOG, start, end)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        return await self._read(segment_key(metadata) + index, 0, _BEYOND_ANY_INDEX)

    async def replace_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType, data: bytes) -> None:
        with _translated():
            await to_the_end(self.store.replace(segment_key(metadata), index, data))

    async def discard_unfinished(self, metadata: RemoteLogSegmentMetadata) -> None:
        with _translated():
            await to_the_end(self.store.forget_uploads(segment_key(metadata)))

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        with _translated():
            await to_the_end(self.store.delete(segment_key(metadata)))

    async def _write_log(self, upload: SegmentUpload, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        """Errors of the log itself are raised as they are."""
        with _translated():
            await to_the_end(upload.open())
        size = 0
        async with aclosing(in_parts(data.log(), self.store.part_bytes, self._memory)) as parts:
            async for part in parts:
                size += len(part)
                with _translated():
                    await upload.write(part)
        if size != metadata.segment_size_bytes:
            raise RemoteStorageError(
                f"the log of {segment_key(metadata)} has {size} bytes, its metadata say {metadata.segment_size_bytes}",
                retriable=False,
            )

    async def _read(self, key: str, start: int, end: int) -> ObjectData:
        try:
            with _translated():
                return await self.store.read(key, start, end)
        except RemoteStorageError as error:
            if isinstance(error.__cause__, ObjectNotFoundError):
                raise RemoteResourceNotFoundError(f"there is no {key} in remote storage") from None
            raise


async def _publish(upload: SegmentUpload, key: str, indexes: Mapping[IndexType, bytes]) -> None:
    try:
        await upload.publish(indexes)
    except BaseException:
        await _discard(upload, key)
        raise


async def _discard(upload: SegmentUpload, key: str) -> None:
    """What made the copy fail is what the caller hears of; the rest of it goes when the segment is deleted."""
    try:
        await upload.discard()
    except WalObjectStoreError as error:
        logger.warning("cannot clear away an unfinished copy of %s: %s", key, error)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except WalObjectStoreError as error:
        raise RemoteStorageError(str(error), retriable=error.retriable) from error

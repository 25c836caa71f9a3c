"""Segments as block blobs, each file of a segment one blob.

The layout is that of Apache Kafka's `LocalTieredStorage`, as with `remote_storage=fsspec`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial

from diskless_azure.blocks import BLOCK_BYTES, BLOCKS_AT_ONCE, in_blocks, new_block_ids
from diskless_azure.object_store import AzureObjectStore
from diskless_azure.tasks import InFlight, settled
from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
)
from diskless_core.plugin.wal_object_store import ObjectData, ObjectNotFoundError, WalObjectStoreError
from diskless_core.protocol.names import partition_name, uuid_text
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata

FOLDER = "kafka-tiered-storage"

LOG = ".log"

_BEYOND_ANY_INDEX = 1 << 40


class AzureRemoteStorage(RemoteStorage):
    """Segments in a container. A copy holds a few blocks in memory, whatever the size of its log."""

    is_node_local = False
    is_process_local = False
    can_replace_index = True
    copies_may_overlap = True

    def __init__(self, objects: AzureObjectStore) -> None:
        self.objects = objects

    async def start(self) -> None:
        with _translated():
            await self.objects.start()

    async def stop(self) -> None:
        await self.objects.stop()

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        upload = _LogUpload(self.objects, segment_key(metadata) + LOG)
        try:
            await self._write_log(upload, metadata, data)
            # The log comes last: who finds a log finds its indexes.
            with _translated():
                await settled(self._put_indexes(metadata, data.indexes()))
                await settled(upload.publish())
        finally:
            await upload.abandon()

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        return await self._read(segment_key(metadata) + LOG, start, end)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        return await self._read(segment_key(metadata) + index, 0, _BEYOND_ANY_INDEX)

    async def replace_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType, data: bytes) -> None:
        with _translated():
            await settled(self.objects.put(segment_key(metadata) + index, data))

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        keys = [segment_key(metadata) + suffix for suffix in (LOG, *IndexType)]
        with _translated():
            left = set(keys).difference(await settled(_delete(self.objects, keys)))
        if left:
            raise RemoteStorageError(f"cannot delete {', '.join(sorted(left))}; the log of this broker says why")

    @staticmethod
    async def _write_log(upload: _LogUpload, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        """Errors of the log itself are raised as they are."""
        size = 0
        async with aclosing(in_blocks(data.log(), BLOCK_BYTES)) as blocks:
            async for block in blocks:
                size += len(block)
                with _translated():
                    await upload.write(block)
        if size != metadata.segment_size_bytes:
            raise RemoteStorageError(
                f"the log of {segment_key(metadata)} has {size} bytes, its metadata say {metadata.segment_size_bytes}",
                retriable=False,
            )
        with _translated():
            await upload.drain()

    async def _put_indexes(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        key = segment_key(metadata)
        puts = (self.objects.put(key + index, content) for index, content in indexes.items())
        # If one fails the others still end: what is cut off could show up after the copy has been deleted.
        for outcome in await asyncio.gather(*puts, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _read(self, key: str, start: int, end: int) -> ObjectData:
        try:
            with _translated():
                return await self.objects.get(key, start, end)
        except RemoteStorageError as error:
            if isinstance(error.__cause__, ObjectNotFoundError):
                raise RemoteResourceNotFoundError(f"there is no {key} in remote storage") from None
            raise


class _LogUpload:
    """Holds each block until another follows: what is alone goes in one request, and has no blocks."""

    def __init__(self, objects: AzureObjectStore, key: str) -> None:
        self._objects = objects
        self._key = key
        self._ids = new_block_ids(objects.container.clock)
        self._sent: list[str] = []
        self._in_flight = InFlight(BLOCKS_AT_ONCE)
        self._held = b""

    async def write(self, block: bytes) -> None:
        if self._held:
            await self._send()
        self._held = block

    async def drain(self) -> None:
        """Return when all has been sent that is not for `publish`."""
        if self._sent:
            await self._send()
        await self._in_flight.drain()

    async def publish(self) -> None:
        if self._sent:
            await self._objects.container.commit_blocks(self._key, self._sent)
        else:
            await self._objects.put(self._key, self._held)

    async def abandon(self) -> None:
        """End what is under way. The service forgets blocks that were not committed after a week."""
        await self._in_flight.abandon()

    async def _send(self) -> None:
        self._sent.append(next(self._ids))
        await self._in_flight.add(partial(self._objects.container.put_block, self._key, self._sent[-1], self._held))


def segment_key(metadata: RemoteLogSegmentMetadata) -> str:
    """What the keys of all files of a segment begin with; their suffixes follow."""
    topic_id, topic, partition = metadata.segment_id.topic_id_partition
    name = f"{metadata.start_offset:020}-{uuid_text(metadata.segment_id.id)}"
    return f"{FOLDER}/{partition_name(topic, partition)}-{uuid_text(topic_id)}/{name}"


async def _delete(objects: AzureObjectStore, keys: list[str]) -> list[str]:
    return list(await objects.delete(keys))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except WalObjectStoreError as error:
        raise RemoteStorageError(str(error), retriable=error.retriable) from error

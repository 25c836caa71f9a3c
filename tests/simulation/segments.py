"""Segments in the object store of a simulated world, with all that goes wrong there."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from diskless_core.broker.storage_probe import SEGMENT_TOPIC
from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
)
from diskless_core.plugin.wal_object_store import ObjectData, ObjectNotFoundError, WalObjectStoreError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from tests.simulation.bucket import BucketClient

SEGMENT_PREFIX = "segments"
WHOLE = 1 << 30
_CUSTOM_METADATA = b"where it is"


class BucketSegments(RemoteStorage):
    """One broker's plugin. A segment is two objects, the log first: a copy that fails may leave one of them."""

    is_node_local = False
    is_process_local = False

    def __init__(self, objects: BucketClient) -> None:
        self._objects = objects

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        log, indexes = keys_of(metadata)
        content = b"".join([bytes(piece) async for piece in data.log()])
        assert len(content) == metadata.segment_size_bytes
        try:
            await self._objects.put(log, content)
            await self._objects.put(indexes, pickle.dumps(dict(data.indexes())))
        except WalObjectStoreError as error:
            raise RemoteStorageError(str(error)) from error
        return _CUSTOM_METADATA

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        return await self._read(metadata, keys_of(metadata)[0], start, end)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        indexes: dict[IndexType, bytes] = pickle.loads(
            bytes(await self._read(metadata, keys_of(metadata)[1], 0, WHOLE))
        )
        if index not in indexes:
            raise RemoteResourceNotFoundError(f"{metadata.segment_id} has no {index}")
        return indexes[index]

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        keys = keys_of(metadata)
        try:
            gone = await self._objects.delete(keys)
        except WalObjectStoreError as error:
            raise RemoteStorageError(str(error)) from error
        if len(gone) < len(keys):
            raise RemoteStorageError(f"only {gone} are deleted")

    async def _read(self, metadata: RemoteLogSegmentMetadata, key: str, start: int, end: int) -> ObjectData:
        assert metadata.custom_metadata == _CUSTOM_METADATA, f"{key} is read without what its copy returned"
        try:
            return await self._objects.get(key, start, end)
        except ObjectNotFoundError as error:
            raise RemoteResourceNotFoundError(str(error)) from error
        except WalObjectStoreError as error:
            raise RemoteStorageError(str(error)) from error


def keys_of(metadata: RemoteLogSegmentMetadata) -> Sequence[str]:
    """The objects of a segment: its log and its indexes. The probe of remote storage is no segment of a topic."""
    if metadata.segment_id.topic_id_partition.topic == SEGMENT_TOPIC:
        return f"probe/{metadata.segment_id.id}.log", f"probe/{metadata.segment_id.id}.indexes"
    return objects_of(metadata.segment_id.id.bytes)


def objects_of(segment_id: bytes) -> Sequence[str]:
    """The same for an id."""
    stem = f"{SEGMENT_PREFIX}/{segment_id.hex()}"
    return f"{stem}.log", f"{stem}.indexes"


def is_segment(key: str) -> bool:
    """Whether an object belongs to a segment."""
    return key.startswith(f"{SEGMENT_PREFIX}/")


def segment_of(key: str) -> bytes:
    """The id of the segment that an object belongs to."""
    return bytes.fromhex(key.removeprefix(f"{SEGMENT_PREFIX}/").partition(".")[0])

"""A remote storage in memory that fails, waits and loses answers when told to. No thread: any event loop will do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
)
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata
from diskless_core.testing.fakes.faults import Misbehaving


class Operation(StrEnum):
    """What of the storage can be made to misbehave. `COPY` is the last step of a copy, when its log has gone by."""

    COPY = "copy"
    FETCH = "fetch"
    FETCH_INDEX = "fetch_index"
    REPLACE_INDEX = "replace_index"
    DELETE = "delete"


def unavailable() -> RemoteStorageError:
    """What a storage says that is overloaded or cannot be reached: retriable."""
    return RemoteStorageError("503 Service Unavailable")


def access_denied() -> RemoteStorageError:
    """An error that no retry helps."""
    return RemoteStorageError("403 AccessDenied", retriable=False)


@dataclass(slots=True)
class StoredSegment:
    """What is there of a segment; `is_complete` is whether its copy came to its end."""

    log: bytes
    indexes: dict[IndexType, bytes] = field(default_factory=dict)
    is_complete: bool = False


class MemoryRemoteStorage(Misbehaving[Operation], RemoteStorage):
    """Segments in `segments`, which a test may read and change. Several brokers of one process may share an instance.

    A copy that fails leaves the part of the log that has gone by, until it is replaced or deleted; what an earlier copy
    has completed it leaves whole.

    Args:
        custom_metadata: what every copy returns. Who fetches or replaces has to bring it back, or gets an
            `AssertionError`.

    Attributes:
        segments: what is stored, by the id of the copy.
    """

    is_node_local = False
    is_process_local = True
    can_replace_index = True
    copies_may_overlap = True

    def __init__(self, *, custom_metadata: bytes | None = None) -> None:
        super().__init__(Operation, unavailable)
        self.segments: dict[RemoteLogSegmentId, StoredSegment] = {}
        self._custom_metadata = custom_metadata

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do: what was stored is there for the next start, and for others meanwhile."""

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        segment_id, log = metadata.segment_id, bytearray()
        try:
            async for piece in data.log():
                log += piece
            indexes = _checked(metadata, log, data.indexes())
            async with self._called(Operation.COPY):
                there = self.segments.get(segment_id, StoredSegment(b""))
                self.segments[segment_id] = StoredSegment(bytes(log), there.indexes | indexes, is_complete=True)
        finally:
            if segment_id not in self.segments or not self.segments[segment_id].is_complete:
                self.segments[segment_id] = StoredSegment(bytes(log))
        return self._custom_metadata

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        async with self._called(Operation.FETCH):
            return self._found(metadata).log[start:end]

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        async with self._called(Operation.FETCH_INDEX):
            try:
                return self._found(metadata).indexes[index]
            except KeyError:
                raise RemoteResourceNotFoundError(f"{metadata.segment_id} has no {index}") from None

    async def replace_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType, data: bytes) -> None:
        async with self._called(Operation.REPLACE_INDEX):
            try:
                stored = self._found(metadata)
            except RemoteResourceNotFoundError:
                raise AssertionError(f"{metadata.segment_id} has not been copied") from None
            stored.indexes[index] = data

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        async with self._called(Operation.DELETE):
            self.segments.pop(metadata.segment_id, None)

    def _found(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        stored = self.segments.get(metadata.segment_id)
        if stored is None or not stored.is_complete:
            raise RemoteResourceNotFoundError(f"there is no {metadata.segment_id}")
        if metadata.custom_metadata != self._custom_metadata:
            raise AssertionError(f"{metadata.segment_id} comes without what its copy returned")
        return stored


def _checked(
    metadata: RemoteLogSegmentMetadata, log: bytearray, indexes: Mapping[IndexType, bytes]
) -> dict[IndexType, bytes]:
    if len(log) != metadata.segment_size_bytes:
        raise AssertionError(f"the log has {len(log)} bytes, its metadata say {metadata.segment_size_bytes}")
    return {index: bytes(data) for index, data in indexes.items()}

"""What the remote storage needs of a place for segments, and how the files of a segment are called there.

The layout is that of Apache Kafka's `LocalTieredStorage`, which finds the segments when its `dir` names the same place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.protocol.names import partition_name, uuid_text
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata

FOLDER = "kafka-tiered-storage"
"""First part of every key; `LocalTieredStorage` puts it below its `dir`."""

LOG = ".log"
ALL_SUFFIXES = (LOG, *IndexType)


def segment_key(metadata: RemoteLogSegmentMetadata) -> str:
    """What the keys of all files of a segment begin with; their suffixes follow."""
    topic_id, topic, partition = metadata.segment_id.topic_id_partition
    name = f"{metadata.start_offset:020}-{uuid_text(metadata.segment_id.id)}"
    return f"{FOLDER}/{partition_name(topic, partition)}-{uuid_text(topic_id)}/{name}"


class SegmentUpload(ABC):
    """A segment on its way into a store. The calls are `open`, `write` for each part, then `publish` or `discard`.

    All raise `WalObjectStoreError`. Only `write` may be cancelled.
    """

    @abstractmethod
    async def open(self) -> None:
        """Make room for the log. Nobody can see it yet, in stores that are able to hide it."""

    @abstractmethod
    async def write(self, part: memoryview) -> None:
        """Take the next part of the log: `part_bytes`, or fewer for the last one. The upload keeps the memory."""

    @abstractmethod
    async def publish(self, indexes: Mapping[IndexType, bytes]) -> None:
        """Give everything its name, durably, the log last: who finds a log finds its indexes.

        Indexes that an earlier copy of the segment had and this one has not stay.
        """

    @abstractmethod
    async def discard(self) -> None:
        """Give up, and leave nothing that has no name yet. May be called in any state but after `publish`."""


class SegmentStore(ABC):
    """A place for segments. Its methods raise `WalObjectStoreError`."""

    part_bytes: ClassVar[int]
    """How large the parts are that uploads take."""

    uploads_may_overlap: ClassVar[bool]
    """Whether uploads of one segment at once leave it whole, also when some are ended."""

    @abstractmethod
    async def start(self) -> None:
        """Connect, and find out whether the place can be used."""

    @abstractmethod
    async def stop(self) -> None:
        """Release connections and threads. Idempotent."""

    @abstractmethod
    def upload(self, key: str, size_bytes: int) -> SegmentUpload:
        """Prepare to store a segment with a log of this size."""

    @abstractmethod
    async def read(self, key: str, start: int, end: int) -> ObjectData:
        """A range of a file, as many bytes of it as there are.

        Raises:
            ObjectNotFoundError: there is no such file.
        """

    @abstractmethod
    async def replace(self, key: str, index: IndexType, data: bytes) -> None:
        """Write an index of a segment that has been published, durably, whether or not it is there."""

    @abstractmethod
    async def forget_uploads(self, key: str) -> None:
        """Throw away what unfinished uploads of a segment left. Files that have been published stay."""

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Delete all files of a segment, and what unfinished uploads of it left. They may be gone already."""

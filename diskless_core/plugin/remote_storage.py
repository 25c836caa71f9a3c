"""Hook noun `remote_storage`: where segments are kept, KIP-405's RemoteStorageManager. Copy, fetch, delete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.hookspecs import hookspec
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata


class RemoteStorageError(Exception):
    """The storage could not do it. `retriable` says whether the same call can succeed later."""

    def __init__(self, message: str, *, retriable: bool = True) -> None:
        super().__init__(message)
        self.retriable = retriable


class RemoteResourceNotFoundError(RemoteStorageError):
    """There is no such segment, or it has no such index."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retriable=False)


class IndexType(StrEnum):
    """What lies beside a segment's log; the value is the suffix of Kafka's own file."""

    OFFSET = ".index"
    TIMESTAMP = ".timeindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    TRANSACTION = ".txnindex"
    LEADER_EPOCH = ".leader_epoch_checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegmentData:
    """What is to be copied. Nothing of a segment's log has to fit into memory at once.

    Attributes:
        log: begins the log's bytes anew, in order, `segment_size_bytes` of them in all. What it yields is valid until
            the next one is asked for.
        indexes: the indexes that there are, whole. They are made while the log goes by: to be called behind its end.
    """

    log: Callable[[], AsyncIterator[ObjectData]]
    indexes: Callable[[], Mapping[IndexType, bytes]]


class RemoteStorage(ABC):
    """Segments, each under the id of its copy. All is found by the segment's metadata alone.

    All methods run on an event loop, any number at once, and must not block it. They do not retry: the core does, with
    back-off. Time-outs are the storage's own matter.
    """

    is_node_local: bool
    """Whether only this node sees the segments, or they are lost with its disk or its process. It has to be set.

    The broker does not move records there from WAL objects that are safer.
    """

    is_process_local: bool
    """Whether only this process sees the segments, and they are lost when it ends. It has to be set."""

    is_broker_local: bool = False
    """Whether only this broker has the place, as a folder in its `PluginContext.log_dir`: no other one of its machine.

    The broker does not move records there where other brokers share its coordinator log.
    """

    can_replace_index: bool = False
    """Whether `replace_index` is there. An engine that builds parts of a partition at once needs it."""

    copies_may_overlap: bool = False
    """Whether copies of one segment by several processes at once, some of which are ended at any time, leave it whole.

    An engine needs it that has slow or lost work done again elsewhere.
    """

    @abstractmethod
    async def start(self) -> None:
        """Connect, and find out whether the place can be used. After a retriable error it is called again.

        Raises:
            RemoteStorageError: it can't; the message says what to do, without secrets.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Release connections and threads. Idempotent."""

    @abstractmethod
    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Copy a segment with its indexes. At return it is durable, and every reader sees all of it.

        Again, for the same metadata, it replaces what is there, a part of a copy that failed included. Indexes that
        `data` does not have stay: with copies that overlap, `replace_index` may have added them meanwhile.

        Returns:
            What the storage wants to find in `metadata.custom_metadata` from now on, None for nothing.
        """

    @abstractmethod
    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        """Read the bytes `start` (inclusive) to `end` (exclusive) of a segment's log.

        An end beyond the log gives what there is. The result is the caller's, who may write to it if it is writable.

        Raises:
            RemoteResourceNotFoundError: no such segment.
        """

    @abstractmethod
    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        """Read an index of a segment, whole.

        Raises:
            RemoteResourceNotFoundError: no such segment, or it was copied without this index.
        """

    async def replace_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType, data: bytes) -> None:
        """Put an index of a copied segment in the place of what `copy` put there, or add it. At return it is durable.

        Optional, see `can_replace_index`. Nobody reads the segment meanwhile: its copy is not known to be complete.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot replace {index} of {metadata.segment_id}: {len(data)}")

    async def discard_unfinished(self, metadata: RemoteLogSegmentMetadata) -> None:  # noqa: B027 - it may keep nothing
        """Throw away what copies of this segment left that never ended, such as those of processes that were killed.

        Optional, for a storage that would keep such parts and bill for them. It is called when a copy is complete,
        before that is noted, and leaves the complete copy as it is. A copy that is still under way may fail.
        """

    @abstractmethod
    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete a segment and its indexes, whole or what a failed copy left of it. It may be gone already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStoragePlugin(Descriptor[RemoteStorage]):
    """Descriptor that `diskless_remote_storages` yields."""

    noun = "remote_storage"


@hookspec
def diskless_remote_storages() -> list[RemoteStoragePlugin]:
    """Storages of segments, chosen with `remote_storage=<name>`.

    Example::

        @hookimpl
        def diskless_remote_storages() -> list[RemoteStoragePlugin]:
            return [
                RemoteStoragePlugin(
                    name="tape",
                    factory=TapeStorage,
                    settings=TapeSettings,
                    api_version="1.0",
                    help="Keeps segments on tape.",
                )
            ]
    """
    raise NotImplementedError

"""Hook noun `segment_compaction`: the engine that turns batches in WAL objects into segments in remote storage.

An engine reads, builds and copies; the core plans, and is the only one to say what is a segment: it notes the states of
each copy, and lets the coordinator forget the batches that a finished one holds. An engine that fails loses no data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from crc32c import crc32c

from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.hookspecs import hookspec
from diskless_core.plugin.remote_storage import IndexType, RemoteStorage
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStore
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.wal.runs import Run


class SegmentCompactionError(Exception):
    """The job could not be finished. What it has finished stays, the rest is done by the next one."""


MAX_RANGES = 20_000
"""Runs of a segment at most: a memory bound, about 8 MB. Tiny runs, of a topic that gets little, reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPlan:
    """A segment to be made.

    Attributes:
        start_offset: where the segment before it ended. Its first batch may begin later.
        end_offset: of its last record, inclusive.
        size_bytes: exact size that its `.log` will have.
        max_timestamp_ms: greatest timestamp of its records; where none has any, of their commits.
        index_interval_bytes: Kafka's `index.interval.bytes`.
        ranges: all of its batches, in order, as runs: where they lie in WAL objects.
    """

    partition: TopicIdPartition
    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    index_interval_bytes: int
    ranges: Sequence[Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """One file of a copy as its storage was given it: the size in bytes and the CRC-32C of all of them."""

    size_bytes: int
    crc32c: int

    @classmethod
    def of(cls, content: ObjectData) -> Self:
        """That of these bytes."""
        return cls(size_bytes=len(content), crc32c=crc32c(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCopy:
    """What a storage was given of a segment: the log, and each index by its type. It can be pickled."""

    log: WrittenFile
    indexes: Mapping[IndexType, WrittenFile]

    def with_index(self, index: IndexType, content: bytes) -> Self:
        """The same with an index in the place of what it had, or added to it."""
        return type(self)(log=self.log, indexes={**self.indexes, index: WrittenFile.of(content)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSources:
    """Makes a job's backends in other processes. It can be pickled, and holds what secrets they need.

    Attributes:
        objects: each call makes a store, not started, without retries. To be started with `start_reading`.
        remote_storage: each call makes a storage, not started, without retries.
        backoff: how the broker retries.
    """

    objects: Callable[[], WalObjectStore] = field(repr=False)
    remote_storage: Callable[[], RemoteStorage] = field(repr=False)
    backoff: Backoff


class CompactionJob(ABC):
    """What an engine is given for one job. The methods belong to the node that runs the job: a driver, say.

    Attributes:
        partitions: what is to be done. Neighbours here are neighbours in WAL objects.
        parallel_partitions: how many of them may be worked on at the same time.
        objects: where the WAL objects are. To be read only. Reads that fail and can succeed are tried again.
        remote_storage: where the segments go. Copies that fail and can succeed are begun anew.
        backends: for an engine that works in other processes: makes both there.
        producer_id_expiration_ms: producers that wrote nothing for so long, by their timestamps, leave the snapshots.
    """

    partitions: Sequence[TopicIdPartition]
    parallel_partitions: int
    objects: WalObjectStore
    remote_storage: RemoteStorage
    backends: BackendSources
    producer_id_expiration_ms: int

    @abstractmethod
    def segments(self, partition: TopicIdPartition) -> AsyncGenerator[SegmentPlan, None]:
        """The segments of a partition in order, without gaps, each planned when it is asked for.

        A plan is some megabytes large at most; those of a whole partition may not fit into memory. It may be asked for
        once.

        Raises:
            SegmentCompactionError: the batches can't be looked up.
        """

    @abstractmethod
    async def producers_before(self, segment: SegmentPlan) -> ProducerState:
        """The state of idempotent producers where this segment, the partition's first one in the job, begins.

        Raises:
            SegmentCompactionError: it can't be read.
        """

    @abstractmethod
    async def begin(self, segment: SegmentPlan) -> RemoteLogSegmentMetadata:
        """Note that the copy of a segment begins, under an id of its own.

        Raises:
            SegmentCompactionError: it can't be noted.
        """

    @abstractmethod
    async def finish(
        self, metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None, written: WrittenCopy | None = None
    ) -> bool:
        """Note that a copy is complete, and have the coordinator forget its batches. In the order of the partition.

        Before that the copy is read back and compared with what the storage was given. The job knows what
        `remote_storage` was given, and reads all of such a copy.

        Args:
            written: for a copy that another process made: what it gave to the storage. It says too that a process
                has read the log back and found it the same, as `segment_building.comparing.compare` does: the job
                compares the indexes and the size of the log. Without it, the job can only check each batch of such a
                log.

        Returns:
            False: the batches have gone meanwhile, or another job was quicker. The copy is removed, and the rest of
            the partition's plan is void.

        Raises:
            SegmentCompactionError: no answer, and the copy stays, for the next job to finish or remove. Or the copy is
                not what was written, and has been removed.
        """

    @abstractmethod
    async def abandon(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove a copy that failed, if that can be done now; else the next job does it."""

    @abstractmethod
    def progressed(self, size_bytes: int) -> None:
        """Tell that so many more bytes of segments have been copied."""


class SegmentCompaction(ABC):
    """Runs compaction jobs, one or several at a time."""

    @abstractmethod
    async def compact(self, job: CompactionJob) -> None:
        """Make the segments of a job: `begin`, read, build, copy, `finish`, for each of them.

        One that cannot be made ends its partition; the others go on. It runs on the broker's event loop, which it
        must not block, and may be cancelled at any time.

        Raises:
            SegmentCompactionError: some partition was not done, after all others were tried. It says which and why.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCompactionPlugin(Descriptor[SegmentCompaction]):
    """Descriptor that `diskless_segment_compactions` yields."""

    noun = "segment_compaction"


@hookspec
def diskless_segment_compactions() -> list[SegmentCompactionPlugin]:
    """Engines that make segments of WAL objects, chosen with `segment_compaction=<name>`.

    Example::

        @hookimpl
        def diskless_segment_compactions() -> list[SegmentCompactionPlugin]:
            return [
                SegmentCompactionPlugin(
                    name="ray",
                    factory=RayCompaction,
                    settings=RaySettings,
                    api_version="1.0",
                    help="Compacts on a Ray cluster.",
                )
            ]
    """
    raise NotImplementedError

"""One compaction: its partitions, whose segments are planned as the engine asks for them, and what becomes of each."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import structlog

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.shard import DisklessShard
from diskless_core.log import producer_snapshot
from diskless_core.log.producer_snapshot import CorruptSnapshotError, ProducerState
from diskless_core.log.segment_indexer import MAX_OFFSETS
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.plugin.remote_storage import (
    IndexType,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
)
from diskless_core.plugin.segment_building.comparing import (
    CopyDiffersError,
    CopyMissingError,
    NotingRemoteStorage,
    compare,
)
from diskless_core.plugin.segment_compaction import (
    BackendSources,
    CompactionJob,
    SegmentCompactionError,
    SegmentPlan,
    WrittenCopy,
)
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.tiering.copies import Copies
from diskless_core.tiering.migration.segment_copy import SegmentDamagedError, check_segment
from diskless_core.tiering.planning import NotDue, SegmentPlanner, SegmentRules
from diskless_core.tiering.report import JobReport
from diskless_core.tiering.topics import key_of
from diskless_core.wal import batches
from diskless_core.wal.runs import Run

_log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class PartitionWork:
    """A partition to be compacted.

    Attributes:
        everything: whether the last segment is made although it is not full.
        expected: where WAL objects begin, as far as this job has come.
        not_due: what was too early; None when that is not known.
        swapped: whether any of its segments was taken.
        is_planned: whether the engine has asked for all segments.
        unfinished: segments that it has asked for and that have not been taken.
        is_void: whether somebody else has moved or deleted the records meanwhile.
    """

    partition: TopicIdPartition
    shard: DisklessShard
    rules: SegmentRules
    everything: bool = False
    expected: int = 0
    not_due: NotDue | None = None
    swapped: bool = False
    is_planned: bool = False
    unfinished: int = 0
    is_void: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether a job that has ended should have done more of it."""
        return not self.is_void and (not self.is_planned or self.unfinished > 0)

    @property
    def wal_bytes(self) -> int:
        """Bytes of the partition in WAL objects."""
        head = self.shard.head(key_of(self.partition))
        return head.appended_bytes - head.local_start_bytes if head is not None else 0


async def planned(work: PartitionWork, now_ms: int, objects: WalObjectStore) -> AsyncGenerator[SegmentPlan, None]:
    """The segments of a partition, of what is committed at the beginning. It notes in `work` what it finds.

    Raises:
        CoordinatorStoreError: the store failed.
        SegmentCompactionError: a run does not fit a segment, and its batches cannot be read.
    """
    key = key_of(work.partition)
    head = work.shard.head(key)
    if head is None:
        return
    work.expected = offset = head.local_start_offset
    planner = SegmentPlanner(work.partition, offset, work.rules)
    found = False
    while offset < head.next_offset:
        runs = await work.shard.runs_from(key, offset)
        for run in runs:
            if run.base_offset < head.next_offset:
                for part in await _fitting(run, head.local_start_offset, objects):
                    if (full := planner.add(part)) is not None:
                        found = True
                        yield full
        offset = runs[-1].last_offset + 1 if runs else head.next_offset
    last = planner.last(now_ms, everything=work.everything)
    if last is not None:
        yield last
    elif not found:
        work.not_due = planner.not_due(head)


async def _fitting(run: Run, from_offset: int, objects: WalObjectStore) -> Sequence[Run]:
    """A run, or the parts of one whose offsets do not fit a segment: earlier releases did not bound them.

    Where a segment has the first parts already, those at `from_offset` or later.
    """
    if run.last_offset - run.base_offset <= MAX_OFFSETS:
        return [run]
    place = f"the batches at byte {run.byte_offset} of {run.object_key}"
    try:
        data = await objects.get(run.object_key, run.byte_offset, run.byte_offset + run.byte_size)
        parts = batches.parts(data, run, MAX_OFFSETS)
    except WalObjectStoreError as error:
        raise SegmentCompactionError(f"{place} cannot be read: {error}") from error
    except CorruptBatchError as error:
        raise SegmentCompactionError(f"{place} do not fit a segment and cannot be cut: {error}") from error
    return [part for part in parts if part.last_offset >= from_offset]


class TieringJob(CompactionJob):
    """A job for an engine. It keeps `report` up to date."""

    def __init__(
        self,
        work: Mapping[TopicIdPartition, PartitionWork],
        copies: Copies,
        report: JobReport,
        *,
        objects: WalObjectStore,
        remote_storage: RemoteStorage,
        backends: BackendSources,
        parallel_partitions: int,
        producer_id_expiration_ms: int,
        now_ms: int,
    ) -> None:
        self.partitions = sorted(work, key=lambda one: (one.topic_id.bytes, one.partition))
        self.parallel_partitions = parallel_partitions
        self.objects = objects
        self.remote_storage = self._noting = NotingRemoteStorage(remote_storage)
        self.backends = backends
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.report = report
        self._work = work
        self._copies = copies
        self._now_ms = now_ms
        self._begun: list[RemoteLogSegmentId] = []

    def end(self) -> None:
        """The engine has ended, well or not: copies that it left are nobody's."""
        self._copies.give_up(self._begun)

    async def segments(self, partition: TopicIdPartition) -> AsyncGenerator[SegmentPlan, None]:
        work = self._work[partition]
        report = self.report
        try:
            await self._copies.clear(work.shard, partition)
            expected_bytes = work.wal_bytes
            report.bytes_expected += expected_bytes
            try:
                async with aclosing(planned(work, self._now_ms, self.objects)) as segments:
                    async for segment in segments:
                        report.bytes_planned += segment.size_bytes
                        report.bytes_expected -= segment.size_bytes
                        expected_bytes -= segment.size_bytes
                        work.unfinished += 1
                        yield segment
                work.is_planned = True
            finally:
                report.bytes_expected -= expected_bytes
        except (CoordinatorError, CoordinatorStoreError, RemoteLogMetadataError) as error:
            raise SegmentCompactionError(f"{partition.name} cannot be planned: {error}") from error

    async def producers_before(self, segment: SegmentPlan) -> ProducerState:
        """They are in the snapshot of the segment before, where there is one that has it."""
        shard, key = self._work[segment.partition].shard, key_of(segment.partition)
        words = {"topic": segment.partition.topic, "partition": segment.partition.partition}
        before = [one for one in shard.tiered(key) if one.end_offset < segment.start_offset]
        if not before:
            head = shard.head(key)
            if head is not None and head.log_start_offset > 0:
                _log.info("snapshots begin without the producers of deleted records", **words)
            return {}
        before_id = uuid.UUID(bytes=before[-1].segment_id)
        try:
            known = {one.segment_id.id: one for one in await self._copies.list(segment.partition)}
            if before_id in known:
                snapshot = await self.remote_storage.fetch_index(known[before_id], IndexType.PRODUCER_SNAPSHOT)
                return producer_snapshot.decode(bytes(snapshot))
        except RemoteResourceNotFoundError:
            pass
        except (RemoteLogMetadataError, RemoteStorageError, CorruptSnapshotError) as error:
            raise SegmentCompactionError(
                f"the producers of {segment.partition.name} before offset {segment.start_offset} are unknown: {error}"
            ) from error
        _log.warning(
            "the segment before has no snapshot of its producers: the next one begins without them",
            segment=str(before_id),
            start_offset=segment.start_offset,
            **words,
        )
        return {}

    async def begin(self, segment: SegmentPlan) -> RemoteLogSegmentMetadata:
        try:
            metadata = await self._copies.begin(self._work[segment.partition].shard, segment)
        except RemoteLogMetadataError as error:
            raise SegmentCompactionError(f"a segment of {segment.partition.name} cannot be noted: {error}") from error
        if metadata is None:
            raise SegmentCompactionError(f"{segment.partition.name} has been deleted")
        self._begun.append(metadata.segment_id)
        return metadata

    async def finish(
        self, metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None, written: WrittenCopy | None = None
    ) -> bool:
        await self._require_same(replace(metadata, custom_metadata=custom_metadata), written)
        partition = metadata.segment_id.topic_id_partition
        work, topic = self._work[partition], self.report.of(partition.topic)
        try:
            is_taken = await self._copies.finish(work.shard, metadata, custom_metadata, expected=work.expected)
        except (CoordinatorError, RemoteLogMetadataError) as error:
            raise SegmentCompactionError(
                f"it is not known whether a segment of {partition.name} was taken: {error}"
            ) from error
        if not is_taken:
            topic.segments_lost += 1
            work.is_void = True
            return False
        work.expected = metadata.end_offset + 1
        work.unfinished -= 1
        work.swapped = True
        topic.segments += 1
        topic.size_bytes += metadata.segment_size_bytes
        return True

    async def abandon(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._noting.take_written(metadata.segment_id)
        await self._copies.abandon(metadata)

    def progressed(self, size_bytes: int) -> None:
        self.report.bytes_copied += size_bytes

    async def _require_same(self, metadata: RemoteLogSegmentMetadata, written: WrittenCopy | None) -> None:
        """Compare a copy with what was written. From here on the batches in WAL objects may be forgotten.

        Raises:
            CopyDiffersError: it is not the same, and has been removed.
            SegmentCompactionError: it cannot be read. It stays, for the next job to remove.
        """
        noted = self._noting.take_written(metadata.segment_id)
        try:
            if written is not None:
                await compare(self.remote_storage, metadata, written, with_log=False)
            elif noted is not None:
                await compare(self.remote_storage, metadata, noted)
            else:
                await check_segment(metadata, self.remote_storage)
        except CopyDiffersError as error:
            await self._copies.refuse(metadata, str(error))
            raise
        except SegmentDamagedError as error:
            await self._copies.refuse(metadata, str(error))
            raise CopyDiffersError(str(error)) from error
        except RemoteResourceNotFoundError as error:
            await self._copies.refuse(metadata, str(error))
            raise CopyMissingError(str(error)) from error
        except RemoteStorageError as error:
            partition = metadata.segment_id.topic_id_partition
            raise SegmentCompactionError(
                f"the segment of {partition.name} at offset {metadata.start_offset} cannot be read back: {error}"
            ) from error

"""A compaction job on fakes, for the contract suite of `segment_compaction`: what an engine gets, and what it did."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from diskless_core.clock import SystemClock
from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.log.segment_indexer import SegmentIndexer
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.segment_building.backends import RetryingRemoteStorage
from diskless_core.plugin.segment_compaction import (
    BackendSources,
    CompactionJob,
    SegmentCompactionError,
    SegmentPlan,
    WrittenCopy,
    WrittenFile,
)
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import RecordData
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage, Operation, StoredSegment, access_denied
from diskless_core.testing.patience import within
from diskless_core.wal.runs import Run

TIME_MS = 1_700_000_000_000
APPEND_TIME_MS = TIME_MS + 5_000
EXPIRATION_MS = 60_000
INDEX_INTERVAL_BYTES = 100
CUSTOM_METADATA = b"custom"
NO_RETRIES = Backoff(attempts=1, first_ms=1, max_ms=1, jitter=0)
SOME_RETRIES = Backoff(attempts=5, first_ms=1, max_ms=1, jitter=0)


def partition_of(index: int) -> TopicIdPartition:
    """A partition of the one topic that there is."""
    return TopicIdPartition(uuid.UUID(int=7), "t", index)


def a_batch(*values: bytes, timestamp_ms: int = TIME_MS, producer: tuple[int, int] | None = None) -> bytes:
    """A batch as a producer sends it; `producer` is its id and the first sequence number."""
    producer_id, base_sequence = producer or (record_batch.NO_PRODUCER_ID, record_batch.NO_SEQUENCE)
    return record_batch.build(
        [RecordData(None, value) for value in values],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=0 if producer else record_batch.NO_PRODUCER_EPOCH,
        base_sequence=base_sequence,
    )


class FakeCompactionJob(CompactionJob):
    """Give it objects, then segments of them; then an engine.

    Both backends are in memory; `diskless_core.testing.compaction_folder` has a job for engines with other processes.

    Attributes:
        stored_objects: the bytes of each WAL object by key, which a test may change.
        steps: what the engine did, in order: (`begin`, `finish` or `abandon`, partition, start offset).
        finished: the metadata of the segments that it finished, by partition and start offset.
        progress_bytes: what it told of.
        lost: start offsets of segments, by partition, that another job was quicker with.
        unknown: the same, of segments whose `finish` has no answer.
        failing: steps that fail, by their name (`segments`, `producers_before` or `begin`) and partition.
        broken_promises: what an engine did that it may not, as sentences.
        most_at_once: of how many partitions at once there were segments that were begun and not finished.
    """

    def __init__(self, *, parallel_partitions: int = 2) -> None:
        self.clock = SystemClock(seed=1)
        self._make_backends()
        self.partitions: list[TopicIdPartition] = []
        self.parallel_partitions = parallel_partitions
        self.producer_id_expiration_ms = EXPIRATION_MS
        self.producers: ProducerState = {}
        self.steps: list[tuple[str, int, int]] = []
        self.finished: dict[tuple[int, int], RemoteLogSegmentMetadata] = {}
        self.expected: dict[tuple[int, int], bytes] = {}
        self.progress_bytes = 0
        self.lost: set[tuple[int, int]] = set()
        self.unknown: set[tuple[int, int]] = set()
        self.failing: set[tuple[str, int]] = set()
        self.broken_promises: list[str] = []
        self.most_at_once = 0
        self._begun: dict[uuid.UUID, RemoteLogSegmentMetadata] = {}
        self._under_way: set[uuid.UUID] = set()
        self._plans: dict[TopicIdPartition, list[SegmentPlan]] = {}
        self._next_offsets: dict[int, int] = {}
        self._asked: list[TopicIdPartition] = []

    def _make_backends(self) -> None:
        self.memory_objects = MemoryWalObjectStore(self.clock)
        self.memory_storage = MemoryRemoteStorage(custom_metadata=CUSTOM_METADATA)
        self.stored_objects: MutableMapping[str, bytes] = self.memory_objects.objects
        self.objects: WalObjectStore = self.memory_objects
        self.remote_storage: RemoteStorage = self.memory_storage
        self.backends = BackendSources(
            objects=lambda: self.memory_objects, remote_storage=lambda: self.memory_storage, backoff=NO_RETRIES
        )

    # --- remote storage ---------------------------------------------------------------------------------------------

    def stored(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment | None:
        """What remote storage has of a segment whose copy is complete."""
        found = self.memory_storage.segments.get(metadata.segment_id)
        return found if found is not None and found.is_complete else None

    def refuse_next_copy(self) -> None:
        """The next copy fails with AccessDenied, once its log has gone by."""
        self.memory_storage.fail_next(Operation.COPY, error=access_denied)

    def begin_next_copy_anew(self) -> None:
        """The next copy fails once its log has gone by, and is tried again, as the broker does it."""
        self.memory_storage.fail_next(Operation.COPY)
        self._retry(self.memory_storage, SOME_RETRIES)

    def _retry(self, storage: RemoteStorage, backoff: Backoff) -> None:
        self.remote_storage = RetryingRemoteStorage(storage, Retrying(backoff, self.clock))
        self.backends = replace(self.backends, backoff=backoff)

    @asynccontextmanager
    async def while_copying(self, engine: asyncio.Task[None]) -> AsyncIterator[None]:
        """Begins when a copy has got to its end, and holds it there."""
        with self.memory_storage.hold(Operation.COPY) as hold:
            async with within("a copy gets to its end"):
                await hold.reached()
            assert not engine.done()
            yield

    # --- making ----------------------------------------------------------------------------------------------------

    def put(self, key: str, batches: Mapping[int, Sequence[bytes]], *, timestamp_type: int = 0) -> dict[int, Run]:
        """Store an object with these batches by partition. Their ranges, one for each partition."""
        data, ranges = bytearray(b"a header"), {}
        for index, sent in sorted(batches.items()):
            start, base_offset = len(data), self._next_offsets.get(index, 0)
            offset, max_timestamp_ms = base_offset, -1
            for batch in sent:
                data += batch
                header = record_batch.read_header(batch)
                offset += header.last_offset_delta + 1
                max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp)
            ranges[index] = Run(
                base_offset=base_offset,
                last_offset=offset - 1,
                object_key=key,
                byte_offset=start,
                byte_size=len(data) - start,
                append_time=APPEND_TIME_MS,
                max_timestamp=APPEND_TIME_MS if timestamp_type else max_timestamp_ms,
                timestamp_type=timestamp_type,
            )
            self._next_offsets[index] = offset
        self.stored_objects[key] = bytes(data + b"a footer")
        return ranges

    def plan(self, index: int, *ranges: Run, start_offset: int | None = None) -> SegmentPlan:
        """One more segment of a partition, of these ranges."""
        partition = partition_of(index)
        if partition not in self._plans:
            self._plans[partition] = []
            self.partitions.append(partition)
        start = ranges[0].base_offset if start_offset is None else start_offset
        plan = SegmentPlan(
            partition=partition,
            start_offset=start,
            end_offset=ranges[-1].last_offset,
            size_bytes=sum(one.byte_size for one in ranges),
            max_timestamp_ms=max(one.max_timestamp for one in ranges),
            index_interval_bytes=INDEX_INTERVAL_BYTES,
            ranges=ranges,
        )
        self._plans[partition].append(plan)
        self.expected[index, start] = b"".join(map(self._prepared, ranges))
        return plan

    def _prepared(self, one: Run) -> bytes:
        """A range as consumers get it, made in the most simple way."""
        data = bytearray(self.stored_objects[one.object_key][one.byte_offset : one.byte_offset + one.byte_size])
        offset = one.base_offset
        for position, header in list(record_batch.walk(data)):
            record_batch.patch_base_offset(data, position, offset)
            if one.log_append_time is not None:
                record_batch.patch_log_append_time(data, position, one.log_append_time)
            offset += header.last_offset_delta + 1
        return bytes(data)

    def indexed(self, index: int, start_offset: int, producers: ProducerState | None = None) -> SegmentIndexer:
        """What an indexer makes of a segment that should be there."""
        indexer = SegmentIndexer(start_offset, interval_bytes=INDEX_INTERVAL_BYTES, producers=producers)
        for _, header in record_batch.walk(self.expected[index, start_offset]):
            indexer.add(header)
        return indexer

    # --- what an engine calls ----------------------------------------------------------------------------------------

    async def segments(self, partition: TopicIdPartition) -> AsyncGenerator[SegmentPlan, None]:
        self._demand(partition not in self._asked, "the segments of a partition are asked for once")
        self._asked.append(partition)
        self._require_answer("segments", partition)
        for plan in self._plans[partition]:
            yield plan

    async def producers_before(self, segment: SegmentPlan) -> ProducerState:
        is_first = segment is self._plans[segment.partition][0]
        self._demand(is_first, "producers are asked for where a partition's first segment begins")
        self._require_answer("producers_before", segment.partition)
        return dict(self.producers)

    async def begin(self, segment: SegmentPlan) -> RemoteLogSegmentMetadata:
        self._require_answer("begin", segment.partition)
        self.steps.append(("begin", segment.partition.partition, segment.start_offset))
        metadata = RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(segment.partition, self.clock.new_uuid()),
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            max_timestamp_ms=segment.max_timestamp_ms,
            broker_id=1,
            event_timestamp_ms=TIME_MS,
            segment_size_bytes=segment.size_bytes,
            segment_leader_epochs={0: segment.start_offset},
        )
        self._begun[metadata.segment_id.id] = metadata
        self._under_way.add(metadata.segment_id.id)
        at_once = {self._begun[one].segment_id.topic_id_partition for one in self._under_way}
        self.most_at_once = max(self.most_at_once, len(at_once))
        return metadata

    async def finish(
        self, metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None, written: WrittenCopy | None = None
    ) -> bool:
        index = metadata.segment_id.topic_id_partition.partition
        key = index, metadata.start_offset
        self.steps.append(("finish", *key))
        self._under_way.discard(metadata.segment_id.id)
        begun = self._begun.get(metadata.segment_id.id)
        self._demand(metadata == begun, "a segment is finished with the metadata that `begin` gave")
        self._demand(custom_metadata == CUSTOM_METADATA, "what the copy returned is handed on")
        stored = self.stored(metadata)
        self._demand(stored is not None, "a segment is finished once its copy is complete")
        if stored is not None and written is not None:
            indexes = {index: WrittenFile.of(content) for index, content in stored.indexes.items()}
            there = WrittenCopy(log=WrittenFile.of(stored.log), indexes=indexes)
            self._demand(written == there, "what an engine says that it has written is what is there")
        self._demand(key not in self.finished, "a segment is finished once")
        if key in self.unknown:
            raise SegmentCompactionError("no answer")
        if key in self.lost:
            return False
        self.finished[key] = metadata
        return True

    async def abandon(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.steps.append(("abandon", metadata.segment_id.topic_id_partition.partition, metadata.start_offset))
        self._under_way.discard(metadata.segment_id.id)
        await self.remote_storage.delete(metadata)

    def progressed(self, size_bytes: int) -> None:
        self.progress_bytes += size_bytes

    def _require_answer(self, step: str, partition: TopicIdPartition) -> None:
        if (step, partition.partition) in self.failing:
            raise SegmentCompactionError(f"{step} of {partition.name}: no answer")

    def _demand(self, is_kept: bool, promise: str) -> None:
        """Note a promise that is not kept: an engine may take the error for another failure."""
        if not is_kept:
            self.broken_promises.append(promise)
            raise AssertionError(promise)

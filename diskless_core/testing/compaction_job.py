"""A compaction job on fakes, for the contract suite of `segment_compaction`: what an engine gets, and what it did."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager

from diskless_core.clock import SystemClock
from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.log.segment_indexer import SegmentIndexer
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.segment_compaction import BackendSources, CompactionJob, SegmentCompactionError, SegmentPlan
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
from diskless_core.wal.runs import Run

TIME_MS = 1_700_000_000_000
APPEND_TIME_MS = TIME_MS + 5_000
EXPIRATION_MS = 60_000
INDEX_INTERVAL_BYTES = 100
CUSTOM_METADATA = b"custom"
NO_RETRIES = Backoff(attempts=1, first_ms=1, max_ms=1, jitter=0)


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

    @asynccontextmanager
    async def while_copying(self, engine: asyncio.Task[None]) -> AsyncIterator[None]:
        """Begins when a copy has got to its end, and holds it there."""
        with self.memory_storage.hold(Operation.COPY) as hold:
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
        assert partition not in self._asked, "the segments of a partition can be asked for once"
        self._asked.append(partition)
        for plan in self._plans[partition]:
            yield plan

    async def producers_before(self, segment: SegmentPlan) -> ProducerState:
        assert segment is self._plans[segment.partition][0], "producers are known where a partition's first one begins"
        return dict(self.producers)

    async def begin(self, segment: SegmentPlan) -> RemoteLogSegmentMetadata:
        self.steps.append(("begin", segment.partition.partition, segment.start_offset))
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(segment.partition, self.clock.new_uuid()),
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            max_timestamp_ms=segment.max_timestamp_ms,
            broker_id=1,
            event_timestamp_ms=TIME_MS,
            segment_size_bytes=segment.size_bytes,
            segment_leader_epochs={0: segment.start_offset},
        )

    async def finish(self, metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None) -> bool:
        index = metadata.segment_id.topic_id_partition.partition
        key = index, metadata.start_offset
        self.steps.append(("finish", *key))
        assert custom_metadata == CUSTOM_METADATA, "what the copy returned has to be handed on"
        assert self.stored(metadata) is not None, "it is not copied yet"
        if key in self.unknown:
            raise SegmentCompactionError("no answer")
        if key in self.lost:
            return False
        self.finished[key] = metadata
        return True

    async def abandon(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.steps.append(("abandon", metadata.segment_id.topic_id_partition.partition, metadata.start_offset))
        await self.remote_storage.delete(metadata)

    def progressed(self, size_bytes: int) -> None:
        self.progress_bytes += size_bytes

"""What the rest of the broker asks of the Diskless coordinators: one call for each operation of KIP-1164.

A local shard is called without the wire codec. Partitions belong to the shard that they were created in.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import TypeVar

from diskless_core.coordinator.errors import CoordinatorLoadingError
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.coordinator.tables import Key, Writes
from diskless_core.diskless import file_operations, operations, tiering_operations, time_index, time_lookup
from diskless_core.diskless.commands import (
    BatchResult,
    CommitFile,
    DeletedRecords,
    FoundRuns,
    HandOver,
    ListedOffset,
    PartitionKey,
)
from diskless_core.diskless.commit_results import count_results
from diskless_core.diskless.file_stages import Stage, count_ending
from diskless_core.diskless.oldest_file import oldest_live_ms
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.records import DisklessRecord
from diskless_core.diskless.run_lookup import (
    PAGE_RUNS,
    UNLIMITED_BYTES,
    RecentRuns,
    stored_runs,
    total_bytes,
    within_budget,
)
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.diskless.tables import BATCHES, FILES, LIVE_FILES, PARTITIONS, TIERED, TOPICS, PartitionHead
from diskless_core.diskless.time_lookup import PartitionRuns
from diskless_core.plugin.coordinator_store import StoreView
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.errors import ErrorCode
from diskless_core.remote_log import tiered
from diskless_core.remote_log.tiered import TieredLog, TieredSegment
from diskless_core.wal.runs import Run

T = TypeVar("T")

PARTITIONS_IN_ONE_ENTRY = 4096
"""That one entry of the log creates at most: some milliseconds on each replica."""

HeadListener = Callable[[Sequence[PartitionKey]], None]

OffsetFinder = Callable[["DisklessShard", PartitionKey, int], Awaitable[ListedOffset]]
"""Looks up an offset by timestamp in what the node knows of a partition; it may have to read the batches themselves."""

DeletionListener = Callable[[uuid.UUID], Awaitable[None]]
"""Sees to what else there is of a topic. It raises CoordinatorError where it could not; then it is called again."""


class DisklessShard(CoordinatorShard[DisklessRecord]):
    """One Diskless coordinator that lives on this node."""

    def __init__(self, shard_id: ShardId, services: ShardServices, rules: CommitRules) -> None:
        super().__init__(shard_id, DisklessMachine(), services)
        self._rules = rules
        name, metrics = str(shard_id), services.metrics
        self._commits = metrics.coordinator_commits.labels(name)
        self._committed_batches = metrics.coordinator_committed_batches.labels(name)
        self._committed_runs = metrics.coordinator_committed_runs.labels(name)
        self._recent = RecentRuns(self.state)
        self._listeners: list[HeadListener] = []
        self._find_offset: OffsetFinder | None = None
        self._before_deletion: DeletionListener | None = None
        self.on_restore(self._recent.forget)
        self.on_commit(self._committed)

    def on_head_moved(self, listener: HeadListener) -> None:
        """Call `listener` with the partitions whose head moved, right after each commit that the node learns of."""
        self._listeners.append(listener)

    def find_offsets_with(self, finder: OffsetFinder) -> None:
        """Answer `list_offsets` from now on, with what `finder` finds."""
        self._find_offset = finder

    def before_deletion(self, listener: DeletionListener) -> None:
        """From now on, call `listener` with a topic that is to be deleted, and delete it if that raises nothing."""
        self._before_deletion = listener

    def _committed(self, writes: Writes) -> None:
        self._recent.note(writes)
        self._count(writes)
        moved = list(starmap(PartitionKey, writes.get(PARTITIONS, ())))
        if moved:
            for listener in self._listeners:
                listener(moved)

    def _count(self, writes: Writes) -> None:
        committed = [file for file in writes.get(FILES, {}).values() if file is not None and file.results]
        if committed:
            self._commits.inc(len(committed))
            self._committed_batches.inc(sum(count_results(file.results) for file in committed))
            self._committed_runs.inc(len(writes.get(BATCHES, ())))

    async def create_partitions(self, topic_id: uuid.UUID, name: str, partitions: Sequence[int]) -> None:
        """DisklessCreatePartitions: those that exist already stay as they are.

        Many are created by several commands. After an error some of them may be there; it can be asked again.
        """
        for first in range(0, len(partitions), PARTITIONS_IN_ONE_ENTRY):
            some = partitions[first : first + PARTITIONS_IN_ONE_ENTRY]
            await self.submit(
                partial(operations.create_partitions, topic_id=topic_id.bytes, name=name, partitions=some)
            )

    async def delete_topic(self, topic_id: uuid.UUID) -> ErrorCode:
        """DisklessDeleteTopics: UNKNOWN_TOPIC_ID when this shard has nothing of it."""
        if self._before_deletion is not None:
            await self._before_deletion(topic_id)
        return await self.submit_in_slices(lambda command: operations.delete_topic(command, topic_id.bytes))

    async def commit_file(self, request: CommitFile) -> list[BatchResult]:
        """DisklessCommitFile: a result for each batch, in order; INVALID_REQUEST for all when the owners make no sense.

        Raises:
            CoordinatorError: no answer; the same request can be sent again and will be answered as the first time.
        """
        return (await self.commit_files([request]))[0]

    async def commit_files(self, requests: Sequence[CommitFile]) -> list[list[BatchResult]]:
        """The same for several objects, in this order, in one entry of the log: all or none are committed.

        Raises:
            CoordinatorError: no answer, as `commit_file`. EntryTooLargeError: fewer objects at once may do.
        """
        owned = [request.is_owned_by(self.id.index) for request in requests]
        return await self.submit_in_slices(
            lambda command: operations.commit_files(command, requests, owned, self._rules),
            prefetch=[(FILES, (request.object_key,)) for request in requests],
        )

    async def delete_records(self, partition: PartitionKey, offset: int) -> DeletedRecords:
        """DisklessDeleteRecords: the partition begins at `offset` now, -1 standing for the high watermark.

        At or below the log start it changes nothing; above the high watermark it is OFFSET_OUT_OF_RANGE. A batch that
        contains `offset` is kept. The rows and objects behind what is deleted go later.

        Raises:
            CoordinatorError: no answer; it may have happened.
        """
        bytes_before = await self._bytes_before(partition, offset)
        return await self.submit(lambda command: operations.delete_records(command, partition, offset, bytes_before))

    async def _bytes_before(self, partition: PartitionKey, offset: int) -> int | None:
        head = self.head(partition)
        if head is None or offset > head.next_offset:
            return None
        if offset <= head.log_start_offset:
            return head.log_start_bytes
        if offset == head.next_offset:
            return head.appended_bytes
        if offset < head.local_start_offset:
            return head.local_start_bytes - tiered.size_from(self.tiered(partition), offset)
        with self.store_errors():
            runs = await self.runs_from(partition, offset, 1)
        # A segment may have the first batches of the run that contains `offset`: they count among its bytes.
        return max(runs[0].bytes_before, head.local_start_bytes) if runs else head.appended_bytes

    async def tier(self, partition: PartitionKey, segment: TieredSegment, *, expected: int) -> bool:
        """Forget the batches from `expected` to the segment's end: the segment has them, complete and durable.

        False when WAL objects do not begin at `expected` any more and the segment is not the reason: its records are
        gone, or in another segment. The same call again gives the same answer while the records are not deleted.

        Raises:
            CoordinatorError: no answer; it may have happened, and has to be asked again.
        """
        return await self.submit(lambda command: tiering_operations.tier(command, partition, segment, expected))

    async def adopt(
        self, partition: PartitionKey, log_start_offset: int, segments: Sequence[TieredSegment]
    ) -> ErrorCode:
        """Give an empty partition the records of segments that were made elsewhere; see `tiering_operations.adopt`.

        Raises:
            CoordinatorError: no answer; it can be asked again.
        """
        return await self.submit(
            lambda command: tiering_operations.adopt(command, partition, log_start_offset, segments)
        )

    async def expire_producers(self, producers: Iterable[Key], expiration_ms: int) -> None:
        """Forget producers that have been silent for `expiration_ms`; see `operations.expire_producers`.

        Raises:
            CoordinatorError: no answer; it can be asked again.
        """
        await self.submit(
            lambda command: operations.expire_producers(command, producers, self.clock_watch.passed(), expiration_ms)
        )

    async def list_offsets(self, partition: PartitionKey, timestamp: int) -> ListedOffset:
        """DisklessListOffsets, strictly: it reflects all that was committed before the call.

        Raises:
            CoordinatorError: no answer.
        """
        await self.barrier()
        if self._find_offset is None:
            raise CoordinatorLoadingError(f"the node of {self.id} is starting")
        with self.store_errors():
            return await self._find_offset(self, partition, timestamp)

    async def oldest_file_ms(self) -> int | None:
        """When the oldest object with live batches here was created, by its key, in milliseconds since the epoch.

        Raises:
            CoordinatorError: no answer.
        """
        await self.barrier()
        with self.store_errors():
            await self.flush()
            return await self.with_store(oldest_live_ms)

    async def hand_over(self, files: Sequence[HandOver]) -> None:
        """Take over objects of which an owner before has no live batches; again, if need be: it changes nothing.

        When it returns, the shard owns them, or had them and is through with them. One that is not committed here
        never will be.

        Raises:
            CoordinatorError: no answer; it can be asked again.
        """
        index = self.id.index
        await self.submit(
            lambda command: file_operations.receive_files(command, index, files),
            prefetch=file_operations.rows_to_receive(files),
        )

    async def files_handed_over(self, object_keys: Sequence[str], next_owner: int) -> None:
        """Note that `next_owner` has confirmed that it has these objects; errors as `forget_files`."""
        await self.submit(
            lambda command: file_operations.files_handed_over(command, object_keys, next_owner),
            prefetch=file_operations.rows_to_leave(object_keys),
        )

    async def files_deleted(self, object_keys: Sequence[str]) -> None:
        """Note that the object store has confirmed that these objects are gone; errors as `forget_files`."""
        await self.submit(
            lambda command: file_operations.files_deleted(command, object_keys),
            prefetch=file_operations.rows_to_leave(object_keys),
        )

    async def forget_files(self, object_keys: Sequence[str]) -> None:
        """Forget objects that were handed over or deleted, the answers to their CommitFiles included.

        Raises:
            CoordinatorError: no answer; it can be asked again.
        """
        await self.submit(
            lambda command: file_operations.forget_files(command, object_keys),
            prefetch=file_operations.rows_to_forget(object_keys),
        )

    async def raise_horizon(self, horizon_ms: int) -> None:
        """From now on no object is committed whose key says that it was created before; see `HorizonRaised`.

        Raises:
            ClockSkewError: it is less than `operations.HORIZON_AGE_MS` in the past by the leader's clock.
            CoordinatorError: no answer; it can be asked again.
        """
        await self.submit(lambda command: operations.raise_horizon(command, self.clock_watch.passed(), horizon_ms))

    async def describe_files(self, object_keys: Sequence[str]) -> Mapping[str, bool]:
        """DisklessDescribeFiles, strictly: whether objects have live batches here.

        An object that never was committed here, nor is about to be, or that was forgotten, is not among them. A leader
        that was deposed and does not know it has no answer to this.

        Raises:
            CoordinatorError: no answer.
        """
        await self.barrier()
        return await self.submit(
            lambda command: operations.known_files(command, object_keys),
            prefetch=[(table, (object_key,)) for table in (FILES, LIVE_FILES) for object_key in object_keys],
        )

    def head(self, partition: PartitionKey) -> PartitionHead | None:
        """What this node knows of a partition now; None when it is not there."""
        return self.state.committed(PARTITIONS, partition)

    def tiered(self, partition: PartitionKey) -> TieredLog:
        """The segments of a partition, down to its log start, as this node knows them."""
        return self.state.committed(TIERED, partition) or ()

    def heads(self) -> Mapping[PartitionKey, PartitionHead]:
        """All partitions of the shard."""
        return {PartitionKey(*key): head for key, head in self.state.rows(PARTITIONS)}

    def topics(self) -> Iterator[tuple[uuid.UUID, str]]:
        """The ids and the names of all topics that have partitions in the shard."""
        return ((uuid.UUID(bytes=topic_id), topic.name) for (topic_id,), topic in self.state.rows(TOPICS))

    def find_recent(self, partition: PartitionKey, offset: int, max_bytes: int) -> FoundRuns | None:
        """FindBatches from memory alone; None when the store has to be asked.

        An offset at the high watermark finds nothing, nor does one that is in a segment; beyond the high watermark, or
        below log start, is OFFSET_OUT_OF_RANGE.
        """
        head = self.head(partition)
        if head is None:
            return FoundRuns(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not head.log_start_offset <= offset <= head.next_offset:
            return _found(head, (), ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset == head.next_offset or offset < head.local_start_offset or max_bytes <= 0:
            return _found(head, ())
        runs = self._recent.since(partition, offset)
        return None if runs is None else _found(head, within_budget(runs, max_bytes))

    async def find(self, partition: PartitionKey, offset: int, max_bytes: int) -> FoundRuns:
        """FindBatches: runs from the one that contains `offset` on, about `max_bytes` of them, at least one."""
        found = self.find_recent(partition, offset, max_bytes)
        if found is not None:
            return found
        runs = await self.runs_from(partition, offset, max_bytes)
        head = self.head(partition)
        if head is None:
            return FoundRuns(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if offset < head.log_start_offset:
            return _found(head, (), ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset < head.local_start_offset:
            return _found(head, ())
        return _found(head, within_budget(runs, max_bytes))

    def data_bytes(self) -> int:
        return sum(head.size_bytes for _, head in self.state.rows(PARTITIONS))

    def count_objects(self, stored: StoreView, rows: Mapping[str, int]) -> Mapping[str, int]:
        counts = {Stage.LIVE: rows[LIVE_FILES.name], **count_ending(stored, self.id.index)}
        return {stage.value: counts[stage] for stage in Stage}

    async def runs_from(self, partition: PartitionKey, offset: int, max_bytes: int = UNLIMITED_BYTES) -> Sequence[Run]:
        """A page of runs from the one that contains `offset` on, or the next one, from store and memory.

        It may have fewer when they come to `max_bytes`.
        """
        recent = self._recent.since(partition, offset)
        if recent is not None:
            return recent
        newer = self._recent.after(partition, offset)
        stored = await self.with_store(lambda store: stored_runs(store, partition, offset, max_bytes))
        if total_bytes(stored) >= max_bytes:
            return stored
        reached = stored[-1].last_offset if stored else offset - 1
        return [*stored, *(run for run in newer if run.base_offset > reached)][:PAGE_RUNS]

    async def first_run_at_or_after(self, partition: PartitionKey, timestamp: int, offset: int) -> Run | None:
        """The first run from `offset` on that has a record of `timestamp`, in milliseconds, or later.

        One that contains `offset` may have it before `offset`: whoever does not find it behind asks again from the next
        run on.

        Raises:
            CoordinatorError: the store failed.
        """
        head = self.head(partition)
        if head is None or timestamp > head.max_timestamp:
            return None
        return await self._by_time(
            partition, lambda runs: time_index.first_at_or_after(runs, timestamp, offset, head.next_offset)
        )

    async def latest_runs(self, partition: PartitionKey) -> Sequence[Run]:
        """The runs, two at most, one of which has the latest record; see `time_lookup.latest_runs`.

        Raises:
            CoordinatorError: the store failed.
        """
        head = self.head(partition)
        if head is None:
            return []
        return await self._by_time(
            partition, lambda runs: time_lookup.latest_runs(runs, head.local_start_offset, head.next_offset)
        )

    async def _by_time(self, partition: PartitionKey, look_up: Callable[[PartitionRuns], T]) -> T:
        newer = self._recent.of(partition)
        with self.store_errors():
            return await self.with_store(lambda store: look_up(PartitionRuns(store, partition, newer)))


def _found(head: PartitionHead, runs: Sequence[Run], error: ErrorCode = ErrorCode.NONE) -> FoundRuns:
    return FoundRuns(error, head.log_start_offset, head.next_offset, runs, head.local_start_offset)

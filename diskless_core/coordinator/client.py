"""What the rest of the broker asks of the Diskless coordinators: one call for each operation of KIP-1164.

A local shard is called without the wire codec. Partitions belong to the shard that they were created in.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

from diskless_core.coordinator import operations
from diskless_core.coordinator.commands import (
    BatchResult,
    CommitFile,
    DeletedRecords,
    FoundRuns,
    PartitionKey,
    Run,
)
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.operations import CommitRules
from diskless_core.coordinator.records import DisklessRecord
from diskless_core.coordinator.runs import PAGE_RUNS, RecentRuns, stored_runs, within_budget
from diskless_core.coordinator.runtime import Shard
from diskless_core.coordinator.schema import DEAD_FILES, FILES, PARTITIONS, TOPICS, PartitionHead
from diskless_core.coordinator.tables import Writes
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.protocol.errors import ErrorCode

CommitListener = Callable[[Sequence[PartitionKey]], None]


class DisklessShard:
    """One Diskless coordinator that lives on this node."""

    def __init__(self, shard: Shard[DisklessRecord], rules: CommitRules) -> None:
        self.shard = shard
        self._rules = rules
        self._recent = RecentRuns(shard.state)
        self._listeners: list[CommitListener] = []
        shard.on_commit(self._committed)

    def on_commit(self, listener: CommitListener) -> None:
        """Call `listener` with the partitions whose head moved, right after each commit that the node learns of."""
        self._listeners.append(listener)

    def _committed(self, writes: Writes) -> None:
        self._recent.note(writes)
        moved = [PartitionKey(*key) for key in writes.get(PARTITIONS, ())]
        if moved:
            for listener in self._listeners:
                listener(moved)

    async def create_partitions(self, topic_id: uuid.UUID, name: str, partitions: Sequence[int]) -> None:
        """DisklessCreatePartitions: those that exist already stay as they are."""
        await self.shard.submit(lambda command: operations.create_partitions(command, topic_id.bytes, name, partitions))

    async def delete_topic(self, topic_id: uuid.UUID) -> ErrorCode:
        """DisklessDeleteTopics: UNKNOWN_TOPIC_ID when this shard has nothing of it."""
        return await self.shard.submit(lambda command: operations.delete_topic(command, topic_id.bytes))

    async def commit_file(self, request: CommitFile) -> list[BatchResult]:
        """DisklessCommitFile: a result for each batch, in order.

        Raises:
            CoordinatorError: no answer; the same request can be sent again and will be answered as the first time.
        """
        return await self.shard.submit(
            lambda command: operations.commit_file(command, request, self._rules),
            prefetch=[(FILES, (request.object_key,))],
        )

    async def delete_records(self, partition: PartitionKey, offset: int) -> DeletedRecords:
        """DisklessDeleteRecords: the partition begins at `offset` now, -1 standing for the high watermark.

        At or below the log start it changes nothing; above the high watermark it is OFFSET_OUT_OF_RANGE. A batch that
        contains `offset` is kept. The rows and objects behind what is deleted go later.

        Raises:
            CoordinatorError: no answer; it may have happened.
        """
        bytes_before = await self._bytes_before(partition, offset)
        return await self.shard.submit(
            lambda command: operations.delete_records(command, partition, offset, bytes_before)
        )

    async def _bytes_before(self, partition: PartitionKey, offset: int) -> int | None:
        head = self.head(partition)
        if head is None or offset > head.next_offset:
            return None
        if offset <= head.log_start_offset:
            return head.log_start_bytes
        if offset == head.next_offset:
            return head.appended_bytes
        try:
            runs = await self.runs_from(partition, offset)
        except CoordinatorStoreError as error:
            raise CoordinatorError(f"the store of {self.shard.id} failed: {error}") from error
        return runs[0].bytes_before if runs else head.appended_bytes

    async def forget_files(self, object_keys: Sequence[str]) -> None:
        """Forget dead objects that the object store has confirmed to be gone.

        Raises:
            CoordinatorError: no answer; it can be asked again.
        """
        await self.shard.submit(
            lambda command: operations.forget_files(command, object_keys),
            prefetch=[(DEAD_FILES, (object_key,)) for object_key in object_keys],
        )

    async def raise_horizon(self, horizon_ms: int) -> None:
        """From now on no object is committed whose key says that it was created before; see `HorizonRaised`.

        Raises:
            CoordinatorError: no answer; it can be asked again.
        """
        await self.shard.submit(lambda command: operations.raise_horizon(command, horizon_ms))

    async def describe_files(self, object_keys: Sequence[str]) -> list[str]:
        """DisklessDescribeFiles, strictly: those that are committed here, those about to be included.

        Raises:
            CoordinatorError: no answer.
        """
        return await self.shard.submit(
            lambda command: operations.known_files(command, object_keys),
            prefetch=[(FILES, (object_key,)) for object_key in object_keys],
        )

    def head(self, partition: PartitionKey) -> PartitionHead | None:
        """What this node knows of a partition now; None when it is not there."""
        return self.shard.state.committed(PARTITIONS, partition)

    def heads(self) -> Mapping[PartitionKey, PartitionHead]:
        """All partitions of the shard."""
        return {PartitionKey(*key): head for key, head in self.shard.state.rows(PARTITIONS)}

    def topics(self) -> Mapping[uuid.UUID, str]:
        """The names of all topics that have partitions in the shard."""
        return {uuid.UUID(bytes=topic_id): topic.name for (topic_id,), topic in self.shard.state.rows(TOPICS)}

    async def barrier(self) -> None:
        """Return when `head` reflects everything that was committed before this call (strict reads)."""
        await self.shard.barrier()

    def find_recent(self, partition: PartitionKey, offset: int, max_bytes: int) -> FoundRuns | None:
        """FindBatches from memory alone; None when the store has to be asked.

        An offset at the high watermark finds nothing; beyond it, or below log start, is OFFSET_OUT_OF_RANGE.
        """
        head = self.head(partition)
        if head is None:
            return FoundRuns(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not head.log_start_offset <= offset <= head.next_offset:
            return _found(head, (), ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset == head.next_offset or max_bytes <= 0:
            return _found(head, ())
        runs = self._recent.since(partition, offset)
        return None if runs is None else _found(head, within_budget(runs, max_bytes))

    async def find(self, partition: PartitionKey, offset: int, max_bytes: int) -> FoundRuns:
        """FindBatches: runs from the one that contains `offset` on, about `max_bytes` of them, at least one."""
        found = self.find_recent(partition, offset, max_bytes)
        if found is not None:
            return found
        runs = await self.runs_from(partition, offset)
        head = self.head(partition)
        if head is None:
            return FoundRuns(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if offset < head.log_start_offset:
            return _found(head, (), ErrorCode.OFFSET_OUT_OF_RANGE)
        return _found(head, within_budget(runs, max_bytes))

    async def runs_from(self, partition: PartitionKey, offset: int) -> Sequence[Run]:
        """Up to a page of runs from the one that contains `offset` on, or the next one, from store and memory."""
        recent = self._recent.since(partition, offset)
        if recent is not None:
            return recent
        newer = self._recent.after(partition, offset)
        stored = await self.shard.with_store(lambda store: stored_runs(store, partition, offset))
        reached = stored[-1].last_offset if stored else offset - 1
        return [*stored, *(run for run in newer if run.base_offset > reached)][:PAGE_RUNS]


def _found(head: PartitionHead, runs: Sequence[Run], error: ErrorCode = ErrorCode.NONE) -> FoundRuns:
    return FoundRuns(error, head.log_start_offset, head.next_offset, runs)

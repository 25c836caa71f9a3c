"""Removes segments that nobody can be told to read: below the log start, and those of deleted partitions.

(KIP-405, "RemotePartitionRemover" and DELETE_PARTITION_MARKED.) `removal_rules` decides what is to go; `SegmentRemover`
removes it, for ever, less and less often while it fails. Nothing needs remembering: the next leader goes on where this
node was. `DeletionMarks` marks the partitions of a topic that is deleted: the remover finds them by their marks when
nothing else is left of the topic.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial

import structlog

from diskless_core.clock import Clock
from diskless_core.config.tiering import TieringConfig
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.tables import Writes
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.remote_segments import REMOTE_DELETIONS
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import TIERED, TOPICS, TRIMS
from diskless_core.plugin.remote_log_metadata import IllegalTransitionError, RemoteLogMetadata, RemoteLogMetadataError
from diskless_core.plugin.remote_storage import RemoteStorageError
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from diskless_core.side_by_side import together
from diskless_core.tiering.copies import Copies, SegmentServices
from diskless_core.tiering.removal_rules import Removable, below_log_start, of_deleted_partition
from diskless_core.tiering.topics import topic_id_partition

PARALLEL_DELETIONS = 8
"""Segments of a partition that are deleted at once."""

PARALLEL_MARKS = 16
"""Partitions that are marked at once, so that the entries of a log share its writes."""

_log = structlog.get_logger(__name__)


class SegmentRemover:
    """One for each node. It works on the partitions of the shards that the node leads.

    The pauses of `services.retries` are those between rounds that failed; no single step is repeated.

    Args:
        copies: the node's.
        removes_here: whether this node sees to the segments of a deleted partition, as far as its copies tell.
        having_all: has copies of all shards that have caught up, as long as it lasts: they tell for sure.
    """

    def __init__(
        self,
        services: SegmentServices,
        copies: Copies,
        removes_here: Callable[[TopicIdPartition], bool],
        settings: TieringConfig,
        having_all: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self._having_all = having_all
        self._services = services
        self._copies = copies
        self._removes_here = removes_here
        self._settings = settings
        self._wake = asyncio.Event()
        self._suspects: dict[PartitionKey, DisklessShard] = {}
        self._terms: dict[int, int | None] = dict.fromkeys(services.shards)
        self._looks_for_partitions = True
        for shard in services.shards.values():
            shard.on_commit(partial(self._committed, shard))

    def wake(self) -> None:
        """Partitions may have been marked for deletion."""
        self._looks_for_partitions = True
        self._wake.set()

    async def run(self) -> None:
        """Work while there is something to do, and then whatever comes."""
        services, failures = self._services, 0
        look_s = self._settings.remote_partition_remover_task_interval_ms / 1000
        look_at = services.clock.monotonic() + look_s
        while True:
            self._wake.clear()
            if services.clock.monotonic() >= look_at:
                look_at = services.clock.monotonic() + look_s
                self.wake()
                self._wake.clear()
            if await self.round():
                failures = 0
                await self._rest(self._settings.remote_log_manager_task_interval_ms / 1000)
            else:
                failures += 1
                await asyncio.sleep(services.retries.pause_s(failures))

    async def round(self) -> bool:
        """Remove what can be removed now. Whether nothing failed; what did is there for the next round."""
        self._note_terms()
        lag: list[RemoteLogSegmentMetadata] = []
        is_done = await self._remove_below_log_starts(lag)
        if self._looks_for_partitions:
            self._looks_for_partitions = False
            if not await self._remove_partitions(lag):
                self._looks_for_partitions = True
                is_done = False
        self._services.metrics.remote_delete_lag_segments.set(len(lag))
        self._services.metrics.remote_delete_lag_bytes.set(sum(segment.segment_size_bytes for segment in lag))
        return is_done

    # --- what happens --------------------------------------------------------------------------------------------

    def _committed(self, shard: DisklessShard, writes: Writes) -> None:
        # Where no segment was taken, a deletion of records leaves TIERED as it is; unfinished copies may lie below it.
        changed = {**writes.get(TIERED, {}), **writes.get(TRIMS, {})}
        if changed and shard.leading:
            self._suspects.update((PartitionKey(*key), shard) for key in changed)
            self._wake.set()
        if REMOTE_DELETIONS in writes:
            self.wake()

    def _note_terms(self) -> None:
        """A shard that this node has come to lead may have anything left to do."""
        for index, shard in self._services.shards.items():
            if shard.term != self._terms[index]:
                self._terms[index] = shard.term
                self._looks_for_partitions = True
                if shard.leading:
                    heads = shard.heads().items()
                    self._suspects.update((key, shard) for key, head in heads if head.local_start_offset > 0)

    async def _rest(self, longest_s: float) -> None:
        try:
            async with asyncio.timeout(longest_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    # --- partitions that live ------------------------------------------------------------------------------------

    async def _remove_below_log_starts(self, lag: list[RemoteLogSegmentMetadata]) -> bool:
        suspects, self._suspects = self._suspects, {}
        is_done = True
        for key, shard in suspects.items():
            await asyncio.sleep(0)
            place = topic_id_partition(shard, key)
            if place is None or not shard.leading:
                continue
            try:
                removable = await self._below_log_start(shard, key, place)
            except RemoteLogMetadataError as error:
                self._failed(place, error)
                self._suspects.setdefault(key, shard)
                is_done = False
                continue
            left = await self._remove_all(removable.now)
            if left or removable.later:
                lag += [*left, *removable.later]
                self._suspects.setdefault(key, shard)
            is_done = is_done and not left
        return is_done

    async def _below_log_start(self, shard: DisklessShard, key: PartitionKey, place: TopicIdPartition) -> Removable:
        segments = await self._services.metadata.list(place)
        head = shard.head(key)
        if head is None:
            return Removable((), ())
        taken = {segment.segment_id for segment in shard.tiered(key)}
        return below_log_start(segments, taken, head.log_start_offset, self._copies.is_given_up)

    # --- partitions that are gone --------------------------------------------------------------------------------

    async def _remove_partitions(self, lag: list[RemoteLogSegmentMetadata]) -> bool:
        try:
            deletions = await self._services.metadata.deleting_partitions()
        except RemoteLogMetadataError as error:
            self._failed(None, error)
            return False
        if not any(self._removes_here(deletion.topic_id_partition) for deletion in deletions):
            return True
        try:
            async with self._having_all():
                return await self._remove_those_of_this_node(deletions, lag)
        except CoordinatorError as error:
            self._failed(None, error)
            return False

    async def _remove_those_of_this_node(
        self, deletions: Sequence[RemotePartitionDeleteMetadata], lag: list[RemoteLogSegmentMetadata]
    ) -> bool:
        is_done = True
        for deletion in deletions:
            place = deletion.topic_id_partition
            if self._removes_here(place):
                try:
                    is_done &= await self._remove_partition(deletion, lag)
                except RemoteLogMetadataError as error:
                    self._failed(place, error)
                    is_done = False
        return is_done

    async def _remove_partition(
        self, deletion: RemotePartitionDeleteMetadata, lag: list[RemoteLogSegmentMetadata]
    ) -> bool:
        """Whether nothing of a partition is left."""
        metadata, place = self._services.metadata, deletion.topic_id_partition
        await self._note_partition(place, RemotePartitionDeleteState.DELETE_PARTITION_STARTED)
        tried = set[RemoteLogSegmentId]()
        while segments := await metadata.list(place):
            if any(segment.segment_id in tried for segment in segments):
                return False  # somebody else is about to finish the removal
            tried.update(segment.segment_id for segment in segments)
            removable = of_deleted_partition(segments, self._copies.is_given_up)
            left = await self._remove_all(removable.now)
            if left or removable.later:
                lag += [*left, *removable.later]
                return False
        await self._note_partition(place, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
        _log.info("the segments of a deleted partition are removed", **_words(place))
        return True

    async def _note_partition(self, place: TopicIdPartition, state: RemotePartitionDeleteState) -> None:
        await self._services.metadata.update_partition(
            RemotePartitionDeleteMetadata(
                topic_id_partition=place,
                state=state,
                event_timestamp_ms=self._services.clock.now_ms(),
                broker_id=self._services.node_id,
            )
        )

    # --- segments ------------------------------------------------------------------------------------------------

    async def _remove_all(self, segments: Iterable[RemoteLogSegmentMetadata]) -> list[RemoteLogSegmentMetadata]:
        """Remove segments, a few at once; those that could not be."""
        waiting, left = iter(segments), list[RemoteLogSegmentMetadata]()

        async def work() -> None:
            for segment in waiting:
                try:
                    await self._remove(segment)
                except (RemoteStorageError, RemoteLogMetadataError) as error:
                    self._failed(segment.segment_id.topic_id_partition, error)
                    left.append(segment)

        await together(work() for _ in range(PARALLEL_DELETIONS))
        return left

    async def _remove(self, segment: RemoteLogSegmentMetadata) -> None:
        """From the first note on nobody finds it; the last one is made when its bytes are gone.

        Why it may, however long this node was away: log starts never go back and ids of topics and segments never come
        back, so what was to be removed stays so. The first note is refused where another node has removed it.
        """
        try:
            await self._note(segment, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
        except IllegalTransitionError:
            return  # somebody else has removed it meanwhile
        self._services.metrics.remote_delete_requests.inc()
        await self._services.remote_storage.delete(segment)
        await self._note(segment, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)

    async def _note(self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> None:
        await self._services.metadata.update(self._services.update_of(segment, state))

    def _failed(self, place: TopicIdPartition | None, error: Exception) -> None:
        self._services.metrics.remote_delete_errors.inc()
        words = {} if place is None else _words(place)
        _log.warning("segments could not be removed and are tried again", error=str(error), **words)


class DeletionMarks:
    """To be called where a shard is led, before it forgets a topic: `mark` is repeated until both have been done."""

    def __init__(self, metadata: RemoteLogMetadata, node_id: int, clock: Clock) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._clock = clock

    async def mark(self, shard: DisklessShard, topic_id: uuid.UUID) -> None:
        """Mark those of a topic's partitions in a shard that have segments; again, it changes nothing.

        Raises:
            CoordinatorError: some are not marked.
        """
        topic = shard.state.committed(TOPICS, (topic_id.bytes,))
        if topic is None:
            return
        remaining = iter(topic.partitions)
        failures: list[CoordinatorError] = []
        workers = range(min(PARALLEL_MARKS, len(topic.partitions)))
        await together(self._mark_each(shard, topic_id, remaining, failures) for _ in workers)
        if failures:
            raise failures[0]

    async def _mark_each(
        self, shard: DisklessShard, topic_id: uuid.UUID, remaining: Iterator[int], failures: list[CoordinatorError]
    ) -> None:
        for index in remaining:
            partition = topic_id_partition(shard, PartitionKey(topic_id.bytes, index))
            if partition is None:
                continue
            try:
                await self._mark(partition)
            except RemoteLogMetadataError as error:
                failure = CoordinatorError(f"the segments of {partition.name} are not marked: {error}")
                failure.__cause__ = error
                failures.append(failure)
                return

    async def _mark(self, partition: TopicIdPartition) -> None:
        if not await self._metadata.list(partition):
            return
        with suppress(IllegalTransitionError):  # its segments are being removed already
            await self._metadata.update_partition(
                RemotePartitionDeleteMetadata(
                    topic_id_partition=partition,
                    state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
                    event_timestamp_ms=self._clock.now_ms(),
                    broker_id=self._node_id,
                )
            )


def _words(place: TopicIdPartition) -> dict[str, str | int]:
    return {"topic": place.topic, "partition": place.partition}

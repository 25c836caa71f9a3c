"""Removes segments that nobody can be told to read: below the log start, and those of deleted partitions.

(KIP-405, "RemotePartitionRemover".) What is to go is decided in `removal`; here it is done, for ever, less and less
often while it fails. Nothing needs remembering: whoever leads next goes on where this node was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from diskless_core.clock import Clock
from diskless_core.config.tiering import TieringConfig
from diskless_core.coordinator.tables import Writes
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.remote_segments import REMOTE_DELETIONS
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import TIERED
from diskless_core.metrics import Metrics
from diskless_core.plugin.remote_log_metadata import IllegalTransitionError, RemoteLogMetadata, RemoteLogMetadataError
from diskless_core.plugin.remote_storage import RemoteStorage, RemoteStorageError
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from diskless_core.tiering.leftovers import GRACE_MS
from diskless_core.tiering.partitions import topic_id_partition
from diskless_core.tiering.removal import Removable, below_log_start, of_deleted_partition
from diskless_core.tiering.retrying import Retries

PARALLEL_DELETIONS = 8
"""Segments of a partition that are deleted at once."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoverServices:
    """What the remover needs.

    Attributes:
        shards: those that have a replica on this node.
        removes_here: whether this node sees to the segments of a deleted partition.
        retries: its pauses are those between rounds that failed; it repeats nothing by itself.
    """

    node_id: int
    clock: Clock
    shards: Mapping[int, DisklessShard]
    metadata: RemoteLogMetadata
    remote_storage: RemoteStorage
    removes_here: Callable[[TopicIdPartition], bool]
    retries: Retries
    settings: TieringConfig
    metrics: Metrics


class SegmentRemover:
    """One for each node. It works on the partitions of the shards that the node leads."""

    def __init__(self, services: RemoverServices) -> None:
        self._services = services
        self._started_ms = services.clock.now_ms()
        self._wake = asyncio.Event()
        self._suspects: dict[PartitionKey, DisklessShard] = {}
        self._terms: dict[int, int | None] = dict.fromkeys(services.shards)
        self._looks_for_partitions = True
        for shard in services.shards.values():
            shard.shard.on_commit(partial(self._committed, shard))

    def wake(self) -> None:
        """Partitions may have been marked for deletion."""
        self._looks_for_partitions = True
        self._wake.set()

    async def run(self) -> None:
        """Work while there is something to do, and then whatever comes."""
        services, failures = self._services, 0
        look_s = services.settings.remote_partition_remover_task_interval_ms / 1000
        look_at = services.clock.monotonic() + look_s
        while True:
            self._wake.clear()
            if services.clock.monotonic() >= look_at:
                look_at = services.clock.monotonic() + look_s
                self.wake()
                self._wake.clear()
            if await self.round():
                failures = 0
                await self._rest(services.settings.remote_log_manager_task_interval_ms / 1000)
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
        if TIERED in writes and shard.shard.leading:
            self._suspects.update((PartitionKey(*key), shard) for key in writes[TIERED])
            self._wake.set()
        if REMOTE_DELETIONS in writes:
            self.wake()

    def _note_terms(self) -> None:
        """A shard that this node has come to lead may have anything left to do."""
        for index, shard in self._services.shards.items():
            if shard.shard.term != self._terms[index]:
                self._terms[index] = shard.shard.term
                self._looks_for_partitions = True
                if shard.shard.leading:
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
            if place is None or not shard.shard.leading:
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
        return below_log_start(segments, taken, head.log_start_offset, self._is_given_up)

    # --- partitions that are gone --------------------------------------------------------------------------------

    async def _remove_partitions(self, lag: list[RemoteLogSegmentMetadata]) -> bool:
        try:
            deletions = await self._services.metadata.deleting_partitions()
        except RemoteLogMetadataError as error:
            self._failed(None, error)
            return False
        is_done = True
        for deletion in deletions:
            place = deletion.topic_id_partition
            if self._services.removes_here(place):
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
        while segments := await metadata.list(place):
            removable = of_deleted_partition(segments, self._is_given_up)
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

        async with asyncio.TaskGroup() as workers:
            for _ in range(PARALLEL_DELETIONS):
                workers.create_task(work())
        return left

    async def _remove(self, segment: RemoteLogSegmentMetadata) -> None:
        """From the first note on nobody finds it; the last one is made when its bytes are gone."""
        try:
            await self._note(segment, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
        except IllegalTransitionError:
            return  # somebody else has removed it meanwhile
        self._services.metrics.remote_delete_requests.inc()
        await self._services.remote_storage.delete(segment)
        await self._note(segment, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)

    async def _note(self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> None:
        await self._services.metadata.update(
            RemoteLogSegmentMetadataUpdate(
                segment_id=segment.segment_id,
                event_timestamp_ms=self._services.clock.now_ms(),
                state=state,
                broker_id=self._services.node_id,
            )
        )

    def _is_given_up(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Copies of this node do not outlive its process; of other nodes it cannot be known."""
        if segment.broker_id == self._services.node_id and segment.event_timestamp_ms < self._started_ms:
            return True
        return self._services.clock.now_ms() - segment.event_timestamp_ms > GRACE_MS

    def _failed(self, place: TopicIdPartition | None, error: Exception) -> None:
        self._services.metrics.remote_delete_errors.inc()
        words = {} if place is None else _words(place)
        _log.warning("segments could not be removed and are tried again", error=str(error), **words)


def _words(place: TopicIdPartition) -> dict[str, str | int]:
    return {"topic": place.topic, "partition": place.partition}

"""The life of a segment's copy: noted, copied, noted as complete, taken by the coordinator; or removed.

(KIP-405, RemoteLogSegmentState.) Whatever ends this in between, nothing is lost: a copy counts from the moment when the
coordinator takes it, which is when it forgets the batches. `clear` finds what was left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from diskless_core.clock import Clock
from diskless_core.clock_watch import ClockWatch
from diskless_core.diskless.shard import DisklessShard
from diskless_core.metrics import Metrics
from diskless_core.plugin.remote_log_metadata import IllegalTransitionError, RemoteLogMetadata, RemoteLogMetadataError
from diskless_core.plugin.remote_storage import RemoteStorage, RemoteStorageError
from diskless_core.plugin.segment_compaction import SegmentPlan
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.tiering import removal_rules
from diskless_core.tiering.removal_rules import PartitionBounds, fits, leftovers
from diskless_core.tiering.retrying import Retries
from diskless_core.tiering.topics import key_of

_EPOCH = 0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentServices:
    """What the parts need that make segments and remove them. `shards` are those with a replica on this node."""

    node_id: int
    clock: Clock
    clock_watch: ClockWatch
    shards: Mapping[int, DisklessShard]
    metadata: RemoteLogMetadata
    remote_storage: RemoteStorage
    retries: Retries
    metrics: Metrics

    def update_of(
        self, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, custom_metadata: bytes | None = None
    ) -> RemoteLogSegmentMetadataUpdate:
        """The event that lets a segment come into a state, now and by this node."""
        return RemoteLogSegmentMetadataUpdate(
            segment_id=metadata.segment_id,
            event_timestamp_ms=self.clock.now_ms(),
            state=state,
            broker_id=self.node_id,
            custom_metadata=custom_metadata,
        )


class Copies:
    """The copies that this node makes, and those that it finds. A node has one."""

    def __init__(self, services: SegmentServices) -> None:
        self._services = services
        self._living: set[RemoteLogSegmentId] = set()

    def is_given_up(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether nobody works on an unfinished copy any more; see `removal_rules.is_given_up`."""
        services = self._services
        return removal_rules.is_given_up(
            segment, node_id=services.node_id, living=self._living, passed=services.clock_watch.passed()
        )

    async def list(self, partition: TopicIdPartition) -> Sequence[RemoteLogSegmentMetadata]:
        """All that is known of a partition's segments.

        Raises:
            RemoteLogMetadataError: no answer.
        """
        return await self._services.retries.do(lambda: self._services.metadata.list(partition))

    async def begin(self, shard: DisklessShard, segment: SegmentPlan) -> RemoteLogSegmentMetadata | None:
        """Note that a copy begins; None when its partition is gone.

        Raises:
            RemoteLogMetadataError: no answer.
        """
        services = self._services
        metadata = RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(segment.partition, services.clock.new_uuid()),
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            max_timestamp_ms=segment.max_timestamp_ms,
            broker_id=services.node_id,
            event_timestamp_ms=services.clock.now_ms(),
            segment_size_bytes=segment.size_bytes,
            segment_leader_epochs={_EPOCH: segment.start_offset},
        )
        self._living.add(metadata.segment_id)
        try:
            await services.retries.do(lambda: services.metadata.add(metadata))
        except BaseException:
            self._living.discard(metadata.segment_id)
            raise
        if shard.head(key_of(segment.partition)) is not None:
            return metadata
        await self.abandon(metadata)
        return None

    async def finish(
        self, shard: DisklessShard, metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None, *, expected: int
    ) -> bool:
        """Note that a copy is complete, and have the coordinator take it for the records from `expected` on.

        False when it doesn't; then the copy is removed.

        Raises:
            CoordinatorError, RemoteLogMetadataError: no answer; the copy stays for `clear`.
        """
        complete = replace(metadata, custom_metadata=custom_metadata)
        try:
            # Before the copy counts: if this process ends now, the copy is removed, and what is unfinished with it.
            await self._discard_unfinished(complete)
            try:
                await self._note(complete, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, custom_metadata)
            except IllegalTransitionError:  # somebody removes it
                await self._remove_if_possible(complete)
                return False
            if await self._take(shard, complete, expected):
                return True
            await self._remove_if_possible(complete)
            return False
        finally:
            self._living.discard(metadata.segment_id)

    async def abandon(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove a copy of this node that is not complete, if that can be done now."""
        try:
            await self._remove_if_possible(metadata)
        finally:
            self._living.discard(metadata.segment_id)

    async def refuse(self, metadata: RemoteLogSegmentMetadata, difference: str) -> None:
        """Remove a copy of this node that is not what was written, if that can be done now, and report it."""
        self._services.metrics.remote_copy_errors.inc()
        _log.error("a copy is not what was written, and is removed", difference=difference, **_words(metadata))
        await self.abandon(metadata)

    def give_up(self, segment_ids: Iterable[RemoteLogSegmentId]) -> None:
        """Nobody works on these copies any more: `clear` may remove what there is of them."""
        self._living.difference_update(segment_ids)

    async def clear(self, shard: DisklessShard, partition: TopicIdPartition) -> None:
        """Finish or remove what was left of a partition. What cannot be done now, the next time does.

        Raises:
            CoordinatorError, CoordinatorStoreError, RemoteLogMetadataError: no answer.
        """
        key, tried = key_of(partition), set[RemoteLogSegmentId]()
        while True:
            segments = await self.list(partition)
            head = shard.head(key)
            if head is None:
                return
            bounds = PartitionBounds(
                taken={segment.segment_id for segment in shard.tiered(key)},
                log_start_offset=head.log_start_offset,
                local_start_offset=head.local_start_offset,
                next_offset=head.next_offset,
            )
            found = leftovers(segments, bounds, self.is_given_up)
            for segment in found.remove:
                if segment.segment_id not in tried:
                    tried.add(segment.segment_id)
                    await self._remove_if_possible(segment)
            if found.finish is None or found.finish.segment_id in tried:
                return
            is_ours = await self._fits(shard, found.finish, head.local_start_offset)
            now = shard.head(key)
            if now is None or now.local_start_offset != head.local_start_offset:
                continue  # the runs that were looked at may not be those of `head`
            tried.add(found.finish.segment_id)
            if not is_ours:
                _log.warning("a complete copy has not what the partition has, and is removed", **_words(found.finish))
                await self._remove_if_possible(found.finish)
            elif await self._take(shard, found.finish, head.local_start_offset):
                _log.info("a copy that an earlier compaction left is taken", **_words(found.finish))

    # --- steps ---------------------------------------------------------------------------------------------------

    async def _fits(self, shard: DisklessShard, copy: RemoteLogSegmentMetadata, local_start_offset: int) -> bool:
        key = key_of(copy.segment_id.topic_id_partition)
        first = await shard.runs_from(key, local_start_offset, 1)
        last = await shard.runs_from(key, copy.end_offset, 1)
        return bool(first and last) and fits(copy, local_start_offset, first[0], last[0])

    async def _take(self, shard: DisklessShard, metadata: RemoteLogSegmentMetadata, expected: int) -> bool:
        segment = TieredSegment(
            segment_id=metadata.segment_id.id.bytes,
            start_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            size_bytes=metadata.segment_size_bytes,
            max_timestamp=metadata.max_timestamp_ms,
        )
        key = key_of(metadata.segment_id.topic_id_partition)
        return await self._services.retries.do(lambda: shard.tier(key, segment, expected=expected))

    async def _discard_unfinished(self, metadata: RemoteLogSegmentMetadata) -> None:
        """What is left goes with the segment at the latest."""
        services = self._services
        try:
            await services.retries.do(lambda: services.remote_storage.discard_unfinished(metadata))
        except RemoteStorageError as error:
            _log.warning(
                "what unfinished copies of a segment left stays until the segment is deleted",
                error=str(error),
                **_words(metadata),
            )

    async def _note(
        self, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, custom_metadata: bytes | None = None
    ) -> None:
        update = self._services.update_of(metadata, state, custom_metadata)
        await self._services.retries.do(lambda: self._services.metadata.update(update))

    async def _remove_if_possible(self, metadata: RemoteLogSegmentMetadata) -> None:
        try:
            await self._remove(metadata)
        except (RemoteStorageError, RemoteLogMetadataError) as error:
            self._services.metrics.remote_delete_errors.inc()
            _log.warning("a copy is removed later", error=str(error), **_words(metadata))

    async def _remove(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Its bytes go even if it is not known any more: whoever forgot it may have done so while it was written.

        Why it may, however long this node was away: a copy that was not taken when WAL objects began behind it never
        will be, and once its removal is noted nobody can finish it.
        """
        is_known = await self._note_if_legal(metadata, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
        self._services.metrics.remote_delete_requests.inc()
        await self._services.retries.do(lambda: self._services.remote_storage.delete(metadata))
        if is_known:
            await self._note_if_legal(metadata, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)

    async def _note_if_legal(self, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> bool:
        try:
            await self._note(metadata, state)
        except IllegalTransitionError:
            return False
        return True


def _words(metadata: RemoteLogSegmentMetadata) -> dict[str, str | int]:
    partition = metadata.segment_id.topic_id_partition
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "segment": str(metadata.segment_id.id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
    }

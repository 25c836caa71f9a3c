"""Where the records of partitions lie, as this node knows it: an exact answer, made while records move and go.

It says what stood at one moment, below the high watermarks of then. What is tiered or deleted before the answer is
complete is told as it is by then.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.coordinator.strict_reads import catch_up
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import TOPICS, PartitionHead, Topic
from diskless_core.layout.codec import LayoutEncoder
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataError
from diskless_core.remote_log import tiered
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from diskless_core.tiering.topics import TopicNames, UnknownTopicError, key_of

BLOCK_BYTES = 1 << 16
"""So much of an answer is collected before it is sent."""

TOPICS_AT_ONCE = 500
"""Topics that are judged before others get their turn: about a millisecond."""

LOOK_S = 0.1
LOOKS = 100
"""How often the metadata of segments is looked at: it can come later than the news that they were taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutServices:
    """What layouts are made from. `cluster` is the shard that has the topics.

    Attributes:
        having_all: has copies of all shards that have caught up, as long as it lasts.
    """

    cluster: CoordinatorShard[Any]
    shards: Mapping[int, DisklessShard]
    topics: TopicNames
    metadata: RemoteLogMetadata
    having_all: Callable[[], AbstractAsyncContextManager[None]] = nullcontext


class PinnedPartition(NamedTuple):
    """A partition, its high watermark at the moment that the answer is about, and from which offset on it is told."""

    partition: TopicIdPartition
    shard: DisklessShard
    end_offset: int
    from_offset: int


class Layouts:
    """Makes layouts of the partitions of a cluster, whoever leads them."""

    def __init__(self, services: LayoutServices) -> None:
        self._services = services

    async def pin(
        self, names: Sequence[str], wants: Callable[[str], bool], from_offsets: Mapping[PartitionKey, int]
    ) -> Sequence[PinnedPartition]:
        """The partitions of these topics, and of all that are wanted, by topic and partition, at one moment.

        Everything that was committed before the call is in.

        Args:
            from_offsets: in which partitions it is enough to tell where the records from an offset on are.

        Raises:
            UnknownTopicError: there is no topic of one of these names.
            CoordinatorLogError, CoordinatorError: this node cannot say it now.
        """
        async with self._services.having_all():
            return await self._pin(names, wants, from_offsets)

    async def _pin(
        self, names: Sequence[str], wants: Callable[[str], bool], from_offsets: Mapping[PartitionKey, int]
    ) -> Sequence[PinnedPartition]:
        services = self._services
        shards = services.shards.values()
        await catch_up([services.cluster, *(shard for shard in shards)])
        unknown = [name for name in names if services.topics.id_of(name) is None]
        if unknown:
            raise UnknownTopicError(f"there is no topic {unknown[0]}")
        named = frozenset(names)
        chosen = await self._chosen(cache(lambda name: name in named or wants(name)))
        pinned = []
        for shard, topic_id, topic in chosen:
            if services.topics.name_of(topic_id) is None:
                continue
            for index in topic.partitions:
                key = PartitionKey(topic_id.bytes, index)
                head = shard.head(key)
                if head is not None:
                    partition = TopicIdPartition(topic_id, topic.name, index)
                    pinned.append(PinnedPartition(partition, shard, head.next_offset, from_offsets.get(key, 0)))
        return sorted(pinned, key=lambda one: (one.partition.topic, one.partition.partition))

    async def _chosen(self, wants: Callable[[str], bool]) -> Sequence[tuple[DisklessShard, uuid.UUID, Topic]]:
        """The topics that are wanted, with their partitions in each of the shards."""
        chosen = []
        for shard in self._services.shards.values():
            for count, ((topic_id,), topic) in enumerate(shard.state.rows(TOPICS), start=1):
                if wants(topic.name):
                    chosen.append((shard, uuid.UUID(bytes=topic_id), topic))
                if count % TOPICS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return chosen

    async def encoded(self, pinned: Sequence[PinnedPartition]) -> AsyncIterator[bytes]:
        """The layouts of these partitions, some lines at a time. An error that comes up is told in the last one."""
        encoder = LayoutEncoder()
        block = bytearray(encoder.begin())
        try:
            async with self._services.having_all():
                for one in pinned:
                    async with aclosing(self._partition(encoder, one)) as lines:
                        async for line in lines:
                            block += line
                            if len(block) >= BLOCK_BYTES:
                                yield bytes(block)
                                block.clear()
                    await asyncio.sleep(0)  # what lies in memory would keep the event loop busy
        except (CoordinatorError, CoordinatorStoreError, RemoteLogMetadataError) as error:
            block += encoder.broken_off(str(error))
        else:
            block += encoder.end()
        yield bytes(block)

    async def _partition(self, encoder: LayoutEncoder, pinned: PinnedPartition) -> AsyncGenerator[bytes, None]:
        """Runs come first, then the segments: what moves in between is in both then, and the reader drops its runs."""
        key, shard = key_of(pinned.partition), pinned.shard
        yield encoder.partition(pinned.partition)
        head = shard.head(key)
        offset = max(head.local_start_offset, pinned.from_offset) if head is not None else pinned.end_offset
        while offset < pinned.end_offset and (runs := await shard.runs_from(key, offset)):
            yield encoder.ranges([run for run in runs if run.base_offset < pinned.end_offset])
            offset = runs[-1].last_offset + 1
        found = await self._segments(pinned)
        if found is None:
            yield encoder.gone()
            return
        head, segments = found
        for line in encoder.layout(
            segments,
            start_offset=head.log_start_offset,
            end_offset=max(head.log_start_offset, pinned.end_offset),
            local_start_offset=head.local_start_offset,
        ):
            yield line

    async def _segments(
        self, pinned: PinnedPartition
    ) -> tuple[PartitionHead, Sequence[RemoteLogSegmentMetadata]] | None:
        """The segments with records that are to be told, and the head that goes with them; None if it is deleted.

        Raises:
            RemoteLogMetadataError: no answer, or one is not known to be complete and stays so.
        """
        key, shard = key_of(pinned.partition), pinned.shard
        lacking = b""
        for _ in range(LOOKS):
            head = shard.head(key)
            if head is None:
                return None
            # Deleted since, it is not among the segments any more, when they are asked for anew.
            known = tiered.from_offset(shard.tiered(key), pinned.from_offset)
            wanted = [one.segment_id for one in known if one.start_offset < pinned.end_offset]
            if not wanted:
                return head, ()
            complete = {
                one.segment_id.id.bytes: one
                for one in await self._services.metadata.list(pinned.partition)
                if one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            }
            lacking = next((one for one in wanted if one not in complete), b"")
            if not lacking:
                return head, [complete[one] for one in wanted]
            await asyncio.sleep(LOOK_S)
        raise RemoteLogMetadataError(
            f"nothing is known of the segment {uuid.UUID(bytes=lacking)} of "
            f"{pinned.partition.name}, or not that it is complete"
        )

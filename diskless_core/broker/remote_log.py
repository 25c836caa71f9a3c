"""What an operator sees of the segments in remote storage, and can have a broker take over."""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.clock import Clock
from diskless_core.cluster.topics import Topics
from diskless_core.diskless.commands import PartitionKey
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.tiering.adoption import AdoptionError, adopt
from diskless_core.tiering.compaction import UnknownTopicError


class RemoteLog:
    """The segments of the topics that there are."""

    def __init__(self, metadata: RemoteLogMetadata, topics: Topics, clock: Clock) -> None:
        self._metadata = metadata
        self._topics = topics
        self._clock = clock

    async def segments(self, *, topic: str | None, partition: int | None) -> Sequence[RemoteLogSegmentMetadata]:
        """Those that are not deleted, by topic, partition and start offset; of one topic, or partition number, or all.

        Raises:
            UnknownTopicError: there is no such topic.
            RemoteLogMetadataError: who keeps that did not answer.
        """
        if topic is not None and self._topics.by_name(topic) is None:
            raise UnknownTopicError(f"there is no topic {topic}")
        found: list[RemoteLogSegmentMetadata] = []
        for info in self._topics.all():
            if topic in (None, info.name):
                for index in range(info.partition_count):
                    if partition in (None, index):
                        found += await self._metadata.list(TopicIdPartition(info.topic_id, info.name, index))
        return found

    async def adopt(
        self, topic: str, partition: int, log_start_offset: int, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> None:
        """Let an empty partition have segments that lie in its remote storage; see `tiering.adoption`.

        Raises:
            AdoptionError: it cannot have them.
            CoordinatorError, RemoteLogMetadataError: no answer; it can be asked again.
        """
        info = self._topics.by_name(topic)
        if info is None:
            raise AdoptionError(f"there is no topic {topic}")
        own = TopicIdPartition(info.topic_id, topic, partition)
        shard = self._topics.replica_of(PartitionKey(info.topic_id.bytes, partition))
        if shard is None:
            raise AdoptionError(f"there is no partition {own.name}")
        if any(segment.segment_id.topic_id_partition != own for segment in segments):
            raise AdoptionError(f"the segments are not those of {own.name} with the id {info.topic_id}")
        await adopt(shard, self._metadata, self._clock, own, log_start_offset, segments)

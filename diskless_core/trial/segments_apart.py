"""A remote storage as a trial sees it: with a topic that no broker has, and a memory of what was copied."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import TypeVar

from diskless_core.plugin.forwarding import ForwardingRemoteStorage, take_abilities
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData, RemoteStorage
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata

T = TypeVar("T")

_LONG_TOPIC = 120
"""A topic's name gets no longer than it was if it has so many characters: storages make names of files of it."""

Copied = MutableMapping[RemoteLogSegmentId, RemoteLogSegmentMetadata]
"""The segments that were copied, or begun to be, as the storage knows them."""


class SegmentsApart(ForwardingRemoteStorage):
    """Another storage, with other topics.

    Args:
        place: what the names of the topics begin with.
        topics: the ids of the topics that stand for those of the caller; filled here.
        copied: filled here.
    """

    def __init__(
        self,
        behind: RemoteStorage,
        place: str,
        *,
        topics: MutableMapping[uuid.UUID, uuid.UUID],
        copied: Copied,
        new_id: Callable[[], uuid.UUID],
    ) -> None:
        super().__init__(behind)
        self._place = place
        self._topics = topics
        self._copied = copied
        self._new_id = new_id

    async def start(self) -> None:
        await self._storage.start()
        take_abilities(RemoteStorage, self._storage, self)

    async def stop(self) -> None:
        await self._storage.stop()

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        apart = self._apart(metadata)
        self._copied[apart.segment_id] = apart
        custom_metadata = await self._storage.copy(apart, data)
        self._copied[apart.segment_id] = replace(apart, custom_metadata=custom_metadata)
        return custom_metadata

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        return await super().fetch(self._apart(metadata), start, end)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        return await super().fetch_index(self._apart(metadata), index)

    async def replace_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType, data: bytes) -> None:
        await super().replace_index(self._apart(metadata), index, data)

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        await super().delete(self._apart(metadata))

    async def _ask(self, step: Callable[[RemoteStorage], Awaitable[T]]) -> T:
        return await step(self._storage)

    def _apart(self, metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        topic_id, topic, partition = metadata.segment_id.topic_id_partition
        apart = self._topics.setdefault(topic_id, self._new_id())
        place = metadata.segment_id.topic_id_partition._replace(
            topic_id=apart, topic=f"{self._place}-{topic}"[: max(len(topic), _LONG_TOPIC)], partition=partition
        )
        return replace(metadata, segment_id=metadata.segment_id._replace(topic_id_partition=place))

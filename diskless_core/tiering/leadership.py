"""Tells `remote_log_metadata` which partitions this node leads, follows, and has no more.

(KIP-405, `onPartitionLeadershipChanges` and `onStopPartitions`.)
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import structlog

from diskless_core.coordinator.tables import Key, Writes
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import TOPICS, Topic
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataError
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.side_by_side import together
from diskless_core.tiering.retrying import Retries

SLICE_PARTITIONS = 1_000
"""About how many partitions are told of before others have their turn on the event loop."""

_log = structlog.get_logger(__name__)


class LeadershipNews:
    """Follows the shards of a node."""

    def __init__(self, shards: Iterable[DisklessShard], metadata: RemoteLogMetadata, retries: Retries) -> None:
        self._followers = [_Follower(shard, metadata) for shard in shards]
        self._retries = retries

    async def run(self) -> None:
        """Tell what there is, and then what changes."""
        await together(
            work for follower in self._followers for work in (follower.watch_terms(), self._tell_all(follower))
        )

    async def _tell_all(self, follower: _Follower) -> None:
        failures = 0
        while True:
            try:
                await follower.tell()
            except RemoteLogMetadataError as error:
                failures += 1
                shard = str(follower.shard.id)
                _log.warning("remote_log_metadata did not take the news", shard=shard, error=str(error))
                await asyncio.sleep(self._retries.pause_s(failures))
                continue
            failures = 0
            await follower.news.wait()


class _Told(NamedTuple):
    is_leading: bool
    topic: Topic


class _Follower:
    """What is to be told of a shard: the topics that changed, or all of them when the node begins or ends to lead it.

    Attributes:
        news: set when there may be something to tell.
    """

    def __init__(self, shard: DisklessShard, metadata: RemoteLogMetadata) -> None:
        self.shard = shard
        self.news = asyncio.Event()
        self._metadata = metadata
        self._changed: set[Key] = set()
        self._told: dict[Key, _Told] = {}
        self._was_leading: bool | None = None
        shard.on_commit(self._committed)

    async def watch_terms(self) -> None:
        """Notice when somebody else may be leading."""
        term = self.shard.term
        while True:
            term = await self.shard.until_term_changes(term)
            self.news.set()

    async def tell(self) -> None:
        """Tell what has changed, in slices.

        Raises:
            RemoteLogMetadataError: a slice was not taken; it and those after it are still to be told.
        """
        self.news.clear()
        is_leading = self.shard.leading
        if is_leading is not self._was_leading:
            self._was_leading = is_leading
            self._changed.update(key for key, _ in self.shard.state.rows(TOPICS))
        while self._changed:
            topics = dict(self._next_slice())
            # what changes from here on is told again
            self._changed -= topics.keys()
            try:
                await self._tell(topics, is_leading)
            except BaseException:
                self._changed |= topics.keys()
                raise
            await asyncio.sleep(0)

    async def _tell(self, topics: dict[Key, Topic | None], is_leading: bool) -> None:
        new, gone = [], []
        for key, topic in topics.items():
            told = self._told.get(key)
            known = set(told.topic.partitions) if told is not None else set()
            present = set(topic.partitions) if topic is not None else set()
            if topic is not None:
                as_before = told is not None and told.is_leading is is_leading
                new += _partitions(key, topic.name, present - known if as_before else present)
            if told is not None:
                gone += _partitions(key, told.topic.name, known - present)
        if new:
            await self._metadata.on_leadership_changes(new if is_leading else (), () if is_leading else new)
        if gone:
            await self._metadata.on_stop_partitions(gone)
        for key, topic in topics.items():
            if topic is not None:
                self._told[key] = _Told(is_leading, topic)
            else:
                self._told.pop(key, None)

    def _next_slice(self) -> Iterator[tuple[Key, Topic | None]]:
        partitions = 0
        for key in self._changed:
            topic = self.shard.state.committed(TOPICS, key)
            yield key, topic
            partitions += 1 if topic is None else len(topic.partitions)
            if partitions >= SLICE_PARTITIONS:
                return

    def _committed(self, writes: Writes) -> None:
        if TOPICS in writes:
            self._changed.update(writes[TOPICS])
            self.news.set()


def _partitions(key: Key, name: str, partitions: Iterable[int]) -> list[TopicIdPartition]:
    topic_id = uuid.UUID(bytes=key[0])
    return [TopicIdPartition(topic_id, name, partition) for partition in partitions]

"""Tells `remote_log_metadata` which partitions this node leads, follows, and has no more.

(KIP-405, `onPartitionLeadershipChanges` and `onStopPartitions`.)
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from functools import partial

import structlog

from diskless_core.coordinator.client import DisklessShard
from diskless_core.coordinator.schema import TOPICS
from diskless_core.coordinator.tables import Writes
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataError
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.tiering.retries import Retries

_log = structlog.get_logger(__name__)


class LeadershipNews:
    """Follows the shards of a node."""

    def __init__(self, shards: Iterable[DisklessShard], metadata: RemoteLogMetadata, retries: Retries) -> None:
        self._news = {shard: asyncio.Event() for shard in shards}
        for shard, news in self._news.items():
            shard.shard.on_commit(partial(_committed, news))
        self._metadata = metadata
        self._retries = retries

    async def run(self) -> None:
        """Tell what there is, and then what changes."""
        async with asyncio.TaskGroup() as followers:
            for shard, news in self._news.items():
                followers.create_task(_watch_terms(shard, news))
                followers.create_task(self._tell_all(shard, news))

    async def _tell_all(self, shard: DisklessShard, news: asyncio.Event) -> None:
        told: set[TopicIdPartition] = set()
        was_leading, failures = False, 0
        news.set()
        while True:
            await news.wait()
            news.clear()
            present, is_leading = _partitions(shard), shard.shard.leading
            new = present if is_leading is not was_leading else present - told
            try:
                if new:
                    await self._metadata.on_leadership_changes(new if is_leading else (), () if is_leading else new)
                if told - present:
                    await self._metadata.on_stop_partitions(told - present)
            except RemoteLogMetadataError as error:
                failures += 1
                _log.warning("remote_log_metadata did not take the news", shard=str(shard.shard.id), error=str(error))
                await asyncio.sleep(self._retries.pause_s(failures))
                news.set()
                continue
            told, was_leading, failures = present, is_leading, 0


def _committed(news: asyncio.Event, writes: Writes) -> None:
    if TOPICS in writes:
        news.set()


async def _watch_terms(shard: DisklessShard, news: asyncio.Event) -> None:
    term = shard.shard.term
    while True:
        term = await shard.shard.until_term_changes(term)
        news.set()


def _partitions(shard: DisklessShard) -> set[TopicIdPartition]:
    return {
        TopicIdPartition(uuid.UUID(bytes=topic_id), topic.name, partition)
        for (topic_id,), topic in shard.shard.state.rows(TOPICS)
        for partition in topic.partitions
    }

"""What `remote_log_metadata` is told of the partitions of a node."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection

from diskless_core.config.tiering import TieringConfig
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.testing.fakes.remote_log_metadata import MemoryRemoteLogMetadata
from diskless_core.tiering.leadership import LeadershipNews
from diskless_core.tiering.retries import Retries
from tests.support.produce_path import PARTITIONS, ProducePath
from tests.support.shards import OTHER_TOPIC, TOPIC
from tests.support.virtual_time import run


class Told(MemoryRemoteLogMetadata):
    """Remembers it; `failing` is how often it fails first."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = 0
        self.news: list[tuple[str, list[int]]] = []

    async def on_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        if self.failing:
            self.failing -= 1
            raise RemoteLogMetadataError("injected")
        for word, partitions in (("lead", leaders), ("follow", followers)):
            if partitions:
                self.news.append((word, sorted(place.partition for place in partitions)))

    async def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        self.news.append(("stop", sorted(place.partition for place in partitions)))


def test_it_is_told_what_the_node_leads_follows_and_has_no_more() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            told, every = Told(), list(range(PARTITIONS))
            told.failing = 2
            news = LeadershipNews([path.node.shard], told, Retries(TieringConfig(), path.clock))
            task = asyncio.create_task(news.run())

            async def heard() -> list[tuple[str, list[int]]]:
                await asyncio.sleep(60)
                found, told.news = told.news, []
                return found

            assert await heard() == [("lead", every)]
            path.shared.set_leader(path.node.shard_id, 2)
            assert await heard() == [("follow", every)]
            path.shared.set_leader(path.node.shard_id, 1)
            assert await heard() == [("lead", every)]
            await path.node.shard.create_partitions(uuid.UUID(bytes=OTHER_TOPIC), "u", [7])
            assert await heard() == [("lead", [7])]
            await path.node.shard.delete_topic(uuid.UUID(bytes=TOPIC))
            assert await heard() == [("stop", every)]
            assert await heard() == []
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(main)

"""What `remote_log_metadata` is told of the partitions of a node."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection
from unittest.mock import patch

from diskless_core.config.tiering import TieringConfig
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.testing.fakes.remote_log_metadata import MemoryRemoteLogMetadata
from diskless_core.tiering.leadership import SLICE_PARTITIONS, LeadershipNews
from diskless_core.tiering.retrying import Retries
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


def test_many_partitions_are_told_in_slices_and_a_change_of_one_topic_looks_at_no_other() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            told, shard = Told(), path.node.shard
            topics = [uuid.UUID(int=number) for number in range(1, 6)]
            for topic_id in topics:
                await shard.create_partitions(topic_id, "many", range(SLICE_PARTITIONS // 2))
            task = asyncio.create_task(LeadershipNews([shard], told, Retries(TieringConfig(), path.clock)).run())
            await asyncio.sleep(1)
            sizes = [len(partitions) for _, partitions in told.news]
            assert sum(sizes) == PARTITIONS + 5 * SLICE_PARTITIONS // 2
            assert max(sizes) <= 3 * SLICE_PARTITIONS // 2

            told.news.clear()
            with patch.object(shard.state, "rows", side_effect=AssertionError("all topics are looked at")):
                await shard.create_partitions(topics[0], "many", [SLICE_PARTITIONS])
                await asyncio.sleep(1)
                assert told.news == [("lead", [SLICE_PARTITIONS])]
                await shard.delete_topic(topics[1])
                await asyncio.sleep(1)
                assert told.news[1:] == [("stop", list(range(SLICE_PARTITIONS // 2)))]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(main)


def test_what_changes_while_news_are_told_or_not_taken_is_told_afterwards() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            told, shard, slow = Told(), path.node.shard, asyncio.Event()

            async def told_slowly(
                leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
            ) -> None:
                await slow.wait()
                await Told.on_leadership_changes(told, leaders, followers)

            told.on_leadership_changes = told_slowly  # type: ignore[method-assign]
            task = asyncio.create_task(LeadershipNews([shard], told, Retries(TieringConfig(), path.clock)).run())
            await asyncio.sleep(1)
            await shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [PARTITIONS])
            told.failing = 1
            slow.set()
            await asyncio.sleep(60)
            assert {partition for _, found in told.news for partition in found} == set(range(PARTITIONS + 1))
            path.shared.set_leader(path.node.shard_id, 2)
            await asyncio.sleep(60)
            assert told.news[-1] == ("follow", list(range(PARTITIONS + 1)))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(main)
